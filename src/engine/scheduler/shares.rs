//! How the prefill rows of a step are shared out: small needs whole, the rest in equal parts.
//!
//! So a short prompt does not wait behind a long one, and several long ones progress together.

/// Shares `budget` rows among sequences that want `needs[i]` rows each; `shares` gets one number
/// for each. Max-min fair; a row that cannot be shared out evenly goes to the earlier sequence.
pub(in crate::engine) fn share(budget: usize, needs: &[usize], shares: &mut Vec<usize>) {
    shares.clear();
    shares.resize(needs.len(), 0);
    let mut left = budget;
    loop {
        let hungry = needs.iter().zip(shares.iter()).filter(|(need, share)| share < need).count();
        if hungry == 0 || left == 0 {
            return;
        }
        let part = (left / hungry).max(1);
        for (need, share) in needs.iter().zip(shares.iter_mut()) {
            let more = part.min(need - *share).min(left);
            *share += more;
            left -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shared(budget: usize, needs: &[usize]) -> Vec<usize> {
        let mut shares = Vec::new();
        share(budget, needs, &mut shares);
        shares
    }

    #[test]
    fn a_short_prompt_goes_whole_beside_long_ones() {
        assert_eq!(shared(512, &[10_000, 40, 10_000]), [236, 40, 236]);
        assert_eq!(shared(3, &[100, 100]), [2, 1]);
    }

    proptest! {
        #[test]
        fn shares_are_fair_and_use_the_budget(budget in 0usize..600, needs in prop::collection::vec(0usize..500, 0..8)) {
            let shares = shared(budget, &needs);
            prop_assert_eq!(shares.iter().sum::<usize>(), budget.min(needs.iter().sum()));
            let most = shares.iter().max().copied().unwrap_or(0);
            for (share, need) in shares.iter().zip(&needs) {
                prop_assert!(share <= need);
                // Whoever has less than it wants has as much as anybody, but for one indivisible
                // row.
                prop_assert!(share == need || share + 1 >= most);
            }
        }
    }
}
