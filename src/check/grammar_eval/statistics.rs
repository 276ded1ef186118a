//! The arithmetic of the report.

use serde::Serialize;

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_964;

/// Of a list of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub median: u64,
    pub p95: u64,
}

/// Nothing for an empty list.
pub(super) fn spread(mut values: Vec<u64>) -> Option<Spread> {
    values.sort_unstable();
    let n = values.len();
    let last = n.checked_sub(1)?;
    let mean = values.iter().sum::<u64>() as f64 / n as f64;
    // The nearest rank.
    let at = |share: f64| values[((share * n as f64).ceil() as usize).saturating_sub(1).min(last)];
    Some(Spread { mean, median: at(0.5), p95: at(0.95) })
}

/// Where the share of successes lies with 95 % confidence (Wilson's interval). `n` is 1 or more.
pub(super) fn interval(successes: usize, n: usize) -> (f64, f64) {
    let (n, share) = (n as f64, successes as f64 / n as f64);
    let scale = 1.0 + Z * Z / n;
    let center = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    (((center - half) / scale).max(0.0), ((center + half) / scale).min(1.0))
}

/// How likely wins and losses are at least so uneven where neither side is better: the exact sign test, two-sided.
pub(super) fn sign_test(wins: usize, losses: usize) -> f64 {
    let n = wins + losses;
    // Of the logarithms: a half to the power of some thousands is no f64.
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for k in 0..=wins.min(losses) {
        sum += log.exp();
        log += ((n - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_textbook() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![4, 1, 3, 2]), Some(Spread { mean: 2.5, median: 2, p95: 4 }));
        let close = |a: f64, b: f64| (a - b).abs() < 5e-4;
        let (low, high) = interval(8, 10);
        assert!(close(low, 0.4902) && close(high, 0.9433), "{low} {high}");
        let (low, high) = interval(0, 10);
        assert!(low == 0.0 && close(high, 0.2775), "{low} {high}");
        assert!(close(sign_test(1, 9), 22.0 / 1024.0) && close(sign_test(9, 1), 22.0 / 1024.0));
        assert_eq!((sign_test(0, 0), sign_test(3, 3)), (1.0, 1.0));
        assert!(sign_test(4000, 10) < 1e-100 && sign_test(2000, 2010) > 0.8);
    }
}
