//! The sampling chain against a naive reference in f64: whole-vocabulary sorts, counts by search, the rules as they read.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod sampling_reference;

use plateau::sampling::{Distribution, Dry, Mask, SampleError, Sampler, SamplingParams, Xtc, logprobs};
use proptest::prelude::*;
use sampling_reference::{Case, Reference};

/// Everything off, temperature 1.
fn plain() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::greedy() }
}

fn primed(params: SamplingParams, history: &[u32]) -> Sampler {
    let mut sampler = Sampler::new(params);
    history.iter().for_each(|&token| sampler.accept(token));
    sampler
}

fn mask_of(allowed: &[u32]) -> Vec<u32> {
    let mut words = vec![0; 80];
    allowed.iter().for_each(|&token| words[token as usize / 32] |= 1 << (token % 32));
    words
}

/// The tokens with a probability, for a row of `len`.
fn support(distribution: &Distribution<'_>, len: usize) -> Vec<u32> {
    (0..len as u32).filter(|&token| distribution.probability(token) > 0.0).collect()
}

fn supported(params: SamplingParams, history: &[u32], logits: &[f32]) -> Vec<u32> {
    let mut sampler = primed(params, history);
    support(&sampler.distribution(logits, None).unwrap(), logits.len())
}

/// Continuous values, or a few steps that give many ties; some tokens excluded by the model.
fn any_logits(longest: usize) -> impl Strategy<Value = Vec<f32>> {
    let continuous = (-12.0_f32..12.0).boxed();
    let stepped = (-6_i32..6).prop_map(|step| step as f32 * 0.5).boxed();
    let value = |base: BoxedStrategy<f32>| prop_oneof![12 => base, 1 => Just(f32::NEG_INFINITY)];
    let row = move |base| prop::collection::vec(value(base), 1..longest);
    prop_oneof![row(continuous), row(stepped)]
}

fn or_off<T: Clone + std::fmt::Debug + 'static>(on: impl Strategy<Value = T> + 'static, off: T) -> BoxedStrategy<T> {
    prop_oneof![Just(off), on].boxed()
}

prop_compose! {
    fn any_truncation()(
        top_k in or_off(1_u32..400, 0),
        top_p in or_off(0.0_f32..1.0, 1.0),
        min_p in or_off(0.001_f32..1.0, 0.0),
        typical_p in or_off(0.05_f32..1.0, 1.0),
        threshold in or_off(0.01_f32..0.5, 1.0),
        temperature in 0.2_f32..3.0,
    ) -> SamplingParams {
        let xtc = Xtc { probability: 1.0, threshold };
        SamplingParams { temperature, top_k, top_p, min_p, typical_p, xtc, ..plain() }
    }
}

prop_compose! {
    fn any_overlay()(
        repeat_penalty in or_off(0.7_f32..1.6, 1.0),
        presence_penalty in or_off(-1.0_f32..1.5, 0.0),
        frequency_penalty in or_off(-0.5_f32..1.0, 0.0),
        penalty_last_n in prop_oneof![Just(None), (0_u32..40).prop_map(Some)],
        bias in prop::collection::btree_map(0_u32..300, prop_oneof![4 => -5.0_f32..5.0, 1 => Just(f32::NEG_INFINITY)], 0..12),
        multiplier in or_off(0.2_f32..2.0, 0.0),
        base in 1.0_f32..2.5,
        allowed_length in 0_u32..5,
        last_n in prop_oneof![Just(None), (0_u32..60).prop_map(Some)],
        breakers in prop::collection::vec(0_u32..6, 0..2),
    ) -> SamplingParams {
        let dry = Dry { multiplier, base, allowed_length, last_n, breakers: breakers.into() };
        let logit_bias = bias.into_iter().collect();
        SamplingParams { repeat_penalty, presence_penalty, frequency_penalty, penalty_last_n, logit_bias, dry, ..plain() }
    }
}

prop_compose! {
    fn any_case(longest: usize)(
        logits in any_logits(longest),
        truncation in any_truncation(),
        overlay in any_overlay(),
        // Few distinct tokens, so that runs repeat.
        history in prop::collection::vec(0_u32..6, 0..120),
        mask in prop::option::weighted(0.4, prop::collection::vec(any::<u32>(), 0..20)),
    ) -> Case {
        let params = SamplingParams {
            temperature: truncation.temperature,
            top_k: truncation.top_k,
            top_p: truncation.top_p,
            min_p: truncation.min_p,
            typical_p: truncation.typical_p,
            xtc: truncation.xtc,
            ..overlay
        };
        Case { logits, params, history, mask }
    }
}

/// The same candidates with the same probabilities, and the same pick for the same number.
fn assert_follows(case: &Case, units: &[f64]) -> Result<(), TestCaseError> {
    let mut sampler = primed(case.params.clone(), &case.history);
    let found = sampler.distribution(&case.logits, case.mask.as_deref().map(Mask));
    let Some(reference) = Reference::of(case) else {
        prop_assert_eq!(found.err(), Some(SampleError::NothingLeft));
        return Ok(());
    };
    // A sum or a distance within rounding of its limit may fall on either side.
    prop_assume!(!reference.ambiguous);
    let found = found.unwrap();
    let mut expected = vec![0.0; case.logits.len() + 3];
    reference.probabilities().into_iter().for_each(|(token, q)| expected[token as usize] = q);
    for (token, q) in (0_u32..).zip(expected) {
        let p = found.probability(token);
        prop_assert!((p - q).abs() < 1e-5, "token {}: {} against {}", token, p, q);
        prop_assert!(p == 0.0 || reference.is_candidate(token), "token {} was cut off", token);
        prop_assert!(p > 0.0 || q < 1e-30, "token {} is missing", token);
    }
    for &unit in units {
        if let Some(token) = reference.pick(unit) {
            prop_assert_eq!(found.pick(unit), token);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn candidates_probabilities_and_picks_equal_the_reference(
        case in any_case(900),
        units in prop::collection::vec(0.0_f64..1.0, 8),
    ) {
        assert_follows(&case, &units)?;
    }

    #[test]
    fn greedy_equals_the_reference_exactly(case in any_case(900)) {
        let params = SamplingParams { temperature: 0.0, ..case.params.clone() };
        let mut sampler = primed(params, &case.history);
        let token = sampler.sample(&case.logits, case.mask.as_deref().map(Mask));
        prop_assert_eq!(token.ok(), sampling_reference::greedy(&case));
    }

    #[test]
    fn every_sampled_token_is_allowed_by_the_mask(case in any_case(300)) {
        let mask = case.mask.clone().unwrap_or_else(|| vec![0xA5A5_0FF0; 10]);
        let mut sampler = primed(case.params.clone(), &case.history);
        for _ in 0..20 {
            match sampler.sample(&case.logits, Some(Mask(&mask))) {
                Ok(token) => {
                    prop_assert!(Mask(&mask).allows(token));
                    prop_assert!(case.logits[token as usize] > f32::NEG_INFINITY);
                    sampler.accept(token);
                }
                Err(error) => prop_assert_eq!(error, SampleError::NothingLeft),
            }
        }
    }

    #[test]
    fn logprobs_equal_a_double_precision_log_softmax(logits in any_logits(900), n in 0_usize..21, token in 0_u32..900) {
        let found = logprobs(&logits, token, n);
        let exact = sampling_reference::log_softmax(&logits);
        let of = |token: u32| exact.get(token as usize).copied().unwrap_or(f64::NEG_INFINITY);
        let near = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-5 || f64::from(a) == b;
        prop_assert!(near(found.logprob, of(token)));
        let best = sampling_reference::by_logit(&logits);
        prop_assert_eq!(found.top.len(), n.min(best.len()));
        for (entry, token) in found.top.iter().zip(best) {
            prop_assert_eq!(entry.token, token);
            prop_assert!(near(entry.logprob, of(token)));
        }
    }
}

/// A row of many blocks: Gaussian by adding up uniform numbers from a fixed generator, and a few peaks.
fn wide_row(n: usize, spread: f32, peaks: &[f32]) -> Vec<f32> {
    let mut state = 12345_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut row: Vec<f32> = (0..n).map(|_| ((0..12).map(|_| next()).sum::<f32>() - 6.0) * spread).collect();
    peaks.iter().for_each(|&peak| row[(next() * n as f32) as usize] = peak);
    row
}

#[test]
fn wide_rows_equal_the_reference_through_every_stage_of_the_cut() {
    let units: Vec<f64> = (0..40).map(|i| (f64::from(i) + 0.37) / 40.0).collect();
    let peaked = wide_row(110_000, 3.0, &[22.0, 20.0, 19.0, 18.0]);
    let flat = wide_row(20_000, 0.2, &[]);
    let mut cases = Vec::new();
    for (logits, name) in [(&peaked, "peaked"), (&flat, "flat")] {
        cases.push((name, logits, SamplingParams { top_k: 20, top_p: 0.95, temperature: 0.6, ..plain() }));
        cases.push((name, logits, SamplingParams { top_k: 3000, ..plain() }));
        cases.push((name, logits, SamplingParams { min_p: 0.05, ..plain() }));
        cases.push((name, logits, plain()));
        for top_p in [0.3, 0.9, 0.985, 0.999] {
            cases.push((name, logits, SamplingParams { top_p, ..plain() }));
        }
    }
    for (name, logits, params) in cases {
        let history: Vec<u32> = (0..500).map(|i| i * i % 19_000).collect();
        let params = SamplingParams { presence_penalty: 1.5, repeat_penalty: 1.2, penalty_last_n: None, ..params };
        let case = Case { logits: logits.clone(), params, history, mask: None };
        assert_nearly_follows(name, &case, &units);
    }
}

/// For rows with so many tokens that one of them weighs less than rounding does: the candidates are exactly the best so
/// many tokens, and both distributions differ by next to nothing.
fn assert_nearly_follows(name: &str, case: &Case, units: &[f64]) {
    let reference = Reference::of(case).unwrap();
    let mut sampler = primed(case.params.clone(), &case.history);
    let found = sampler.distribution(&case.logits, None).unwrap();
    let mut support = support(&found, case.logits.len());
    let mut best = sampling_reference::by_logit(&sampling_reference::changed(case));
    best.truncate(support.len());
    best.sort_unstable();
    support.sort_unstable();
    assert!(support == best, "{name}: holes in the {} candidates of {:?}", support.len(), case.params);
    let mut rest = 0.0;
    let mut distance = 0.0;
    for (token, q) in reference.probabilities() {
        distance += (found.probability(token) - q).abs();
        rest += found.probability(token);
    }
    assert!(distance + (1.0 - rest).abs() < 2e-5, "{name}: {distance} and {rest} apart in {:?}", case.params);
    let picks = units.iter().filter_map(|&unit| reference.pick(unit).map(|token| (token, found.pick(unit))));
    picks.for_each(|(expected, token)| assert_eq!(token, expected, "{name}: pick in {:?}", case.params));
}

#[test]
fn the_whole_vocabulary_is_in_reach_without_truncation() {
    let logits = vec![0.5; 5000];
    assert_eq!(supported(plain(), &[], &logits).len(), 5000);
    let mut sampler = Sampler::new(plain());
    let distribution = sampler.distribution(&logits, None).unwrap();
    assert_eq!(distribution.pick(0.0), 0);
    assert_eq!(distribution.pick(1.0 - f64::EPSILON), 4999);
    assert_eq!(distribution.pick(0.5), 2500);
}

#[test]
fn ties_go_to_the_lowest_id() {
    let logits = [1.0, 3.0, 3.0, -1.0, 3.0];
    assert_eq!(Sampler::new(SamplingParams::greedy()).sample(&logits, None), Ok(1));
    assert_eq!(supported(SamplingParams { top_k: 2, ..plain() }, &[], &logits), [1, 2]);
    assert_eq!(supported(SamplingParams { top_p: 0.4, ..plain() }, &[], &logits), [1, 2]);
    let zeros = [-0.0, 0.0, -0.0];
    assert_eq!(Sampler::new(SamplingParams::greedy()).sample(&zeros, None), Ok(0));
    assert_eq!(supported(SamplingParams { top_k: 1, ..plain() }, &[], &zeros), [0]);
}

#[test]
fn nan_is_named_whatever_hides_it() {
    let mut logits = vec![0.0; 1000];
    logits[777] = f32::NAN;
    let banned = SamplingParams { logit_bias: vec![(777, f32::NEG_INFINITY)], ..plain() };
    let mask = mask_of(&[1, 2, 3]);
    for params in [SamplingParams::greedy(), plain(), SamplingParams { top_k: 5, ..plain() }, banned] {
        for mask in [None, Some(Mask(&mask))] {
            let found = Sampler::new(params.clone()).sample(&logits, mask);
            assert_eq!(found, Err(SampleError::NotANumber { token: 777 }));
        }
    }
}

#[test]
fn an_empty_choice_is_an_error_and_no_pick() {
    let (nothing, empty) = (vec![f32::NEG_INFINITY; 300], Vec::new());
    let some = vec![1.0; 300];
    for params in [SamplingParams::greedy(), plain(), SamplingParams { top_k: 5, top_p: 0.5, ..plain() }] {
        let mut sampler = Sampler::new(params.clone());
        assert_eq!(sampler.sample(&nothing, None), Err(SampleError::NothingLeft));
        assert_eq!(sampler.sample(&empty, None), Err(SampleError::NothingLeft));
        assert_eq!(sampler.sample(&some, Some(Mask(&[0; 10]))), Err(SampleError::NothingLeft));
        assert_eq!(sampler.sample(&some, Some(Mask(&[]))), Err(SampleError::NothingLeft));
        let all = SamplingParams { logit_bias: (0..300).map(|t| (t, f32::NEG_INFINITY)).collect(), ..params };
        assert_eq!(Sampler::new(all).sample(&some, None), Err(SampleError::NothingLeft));
    }
}

#[test]
fn a_logit_of_plus_infinity_takes_everything() {
    let mut logits = vec![3.0; 400];
    (logits[200], logits[300]) = (f32::INFINITY, f32::INFINITY);
    let cut = SamplingParams { top_k: 50, top_p: 0.9, min_p: 0.1, typical_p: 0.95, ..plain() };
    for params in [plain(), cut] {
        let mut sampler = Sampler::new(params);
        let distribution = sampler.distribution(&logits, None).unwrap();
        assert_eq!((distribution.probability(200), distribution.probability(300)), (0.5, 0.5));
    }
    assert_eq!(supported(SamplingParams { top_k: 1, ..plain() }, &[], &logits), [200]);
    assert_eq!(Sampler::new(SamplingParams::greedy()).sample(&logits, None), Ok(200));
    let banned = SamplingParams { logit_bias: vec![(200, f32::NEG_INFINITY)], ..plain() };
    assert_eq!(supported(banned, &[], &logits), [300]);
    let forced = SamplingParams { logit_bias: vec![(7, f32::INFINITY)], ..plain() };
    assert_eq!(supported(forced, &[], &[0.0; 20]), [7]);
}

#[test]
fn penalties_that_touch_every_leading_token_do_not_lose_candidates() {
    // The cut must look at penalised values: the 30 best raw tokens all fall behind the next ones.
    let logits: Vec<f32> = (0..4000).map(|i| if i % 130 == 0 { 20.0 } else { (i % 97) as f32 * 0.1 }).collect();
    let leaders: Vec<u32> = (0..4000).filter(|i| i % 130 == 0).collect();
    let params = SamplingParams { presence_penalty: 100.0, penalty_last_n: None, top_k: 5, ..plain() };
    let found = supported(params, &leaders, &logits);
    assert_eq!(found, [96, 193, 290, 387, 484]);
}

#[test]
fn repeat_penalty_makes_a_negative_logit_less_probable_too() {
    let params = SamplingParams { repeat_penalty: 2.0, ..SamplingParams::greedy() };
    assert_eq!(primed(params.clone(), &[0]).sample(&[-1.0, -1.5, -3.0], None), Ok(1));
    assert_eq!(primed(params, &[0]).sample(&[3.0, 2.0, 1.0], None), Ok(1));
}

#[test]
fn a_token_outside_the_penalty_window_is_free_again() {
    let window = |n| SamplingParams { presence_penalty: 5.0, penalty_last_n: n, ..SamplingParams::greedy() };
    let logits = [2.0, 1.0, 0.0, 0.0];
    assert_eq!(primed(window(Some(2)), &[0, 2, 3]).sample(&logits, None), Ok(0));
    assert_eq!(primed(window(Some(3)), &[0, 2, 3]).sample(&logits, None), Ok(1));
    assert_eq!(primed(window(None), &[0, 2, 3]).sample(&logits, None), Ok(1));
    assert_eq!(primed(window(Some(0)), &[0, 2, 3]).sample(&logits, None), Ok(0));
}

fn dry(multiplier: f32, breakers: Vec<u32>) -> SamplingParams {
    let dry = Dry { multiplier, base: 2.0, allowed_length: 2, last_n: None, breakers: breakers.into() };
    SamplingParams { dry, ..SamplingParams::greedy() }
}

#[test]
fn dry_charges_the_token_that_would_prolong_a_run() {
    // After 1 2 3 4 ... 1 2 3 the token 4 prolongs a run of 3: 0.5 * 2^(3 - 2) = 1.
    let history = [1, 2, 3, 4, 9, 8, 1, 2, 3];
    let row = |lead: f32| {
        let mut row = vec![0.0; 10];
        row[4] = lead;
        row
    };
    assert_eq!(primed(dry(0.5, vec![]), &history).sample(&row(0.99), None), Ok(0));
    assert_eq!(primed(dry(0.5, vec![]), &history).sample(&row(1.01), None), Ok(4));
    assert_eq!(primed(dry(0.0, vec![]), &history).sample(&row(0.01), None), Ok(4), "off");
}

#[test]
fn dry_stops_at_breakers_and_never_charges_them() {
    let history = [1, 2, 3, 4, 9, 8, 1, 2, 3];
    let mut logits = vec![0.0; 10];
    logits[4] = 0.1;
    assert_eq!(primed(dry(5.0, vec![1]), &history).sample(&logits, None), Ok(0), "2 3 is still a run of 2");
    assert_eq!(primed(dry(5.0, vec![2]), &history).sample(&logits, None), Ok(4), "3 alone is no run");
    assert_eq!(primed(dry(5.0, vec![4]), &history).sample(&logits, None), Ok(4), "a breaker itself is free");
    let near = SamplingParams { dry: Dry { last_n: Some(5), ..dry(5.0, vec![]).dry }, ..SamplingParams::greedy() };
    assert_eq!(primed(near, &history).sample(&logits, None), Ok(4), "the first run is outside the window");
}

#[test]
fn xtc_leaves_the_least_probable_of_the_top_choices() {
    let xtc = |probability, threshold| SamplingParams { xtc: Xtc { probability, threshold }, ..plain() };
    // Probabilities 0.5, 0.25, 0.15, 0.1.
    let logits = [0.5_f32, 0.25, 0.15, 0.1].map(f32::ln);
    assert_eq!(supported(xtc(1.0, 0.2), &[], &logits), [1, 2, 3]);
    assert_eq!(supported(xtc(1.0, 0.12), &[], &logits), [2, 3]);
    assert_eq!(supported(xtc(1.0, 0.3), &[], &logits), [0, 1, 2, 3], "a single choice stays");
    assert_eq!(supported(xtc(1.0, 0.6), &[], &logits), [0, 1, 2, 3], "off");
    assert_eq!(supported(xtc(0.0, 0.2), &[], &logits), [0, 1, 2, 3], "off");
    let mut sampler = Sampler::new(xtc(0.3, 0.2));
    let struck = (0..4000).filter(|_| sampler.distribution(&logits, None).unwrap().probability(0) == 0.0).count();
    assert!((1050..1350).contains(&struck), "{struck} of 4000 at 0.3");
}

#[test]
fn picks_are_distributed_as_the_probabilities_say() {
    let weights = [1.0_f32, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0];
    let row = |n: usize| {
        let mut row = vec![f32::NEG_INFINITY; n];
        weights.iter().enumerate().for_each(|(i, w)| row[i * n / 8] = w.ln());
        row
    };
    let narrow = SamplingParams { top_k: 8, ..plain() };
    for (params, logits) in [(plain(), row(320)), (narrow, row(320)), (plain(), row(8))] {
        let mut sampler = Sampler::new(SamplingParams { seed: 42, ..params });
        let mut seen = [0.0_f64; 8];
        for _ in 0..20_000 {
            let token = sampler.sample(&logits, None).unwrap() as usize;
            seen[token * 8 / logits.len()] += 1.0;
        }
        let expected = weights.map(|w| f64::from(w) / 87.0 * 20_000.0);
        let chi: f64 = seen.iter().zip(expected).map(|(s, e)| (s - e).powi(2) / e).sum();
        assert!(chi < 24.3, "chi square {chi} at 7 degrees of freedom: below 24.3 but for one seed in a thousand");
    }
}

fn tokens(sampler: &mut Sampler, count: usize) -> Vec<u32> {
    let row: Vec<f32> = (0..700).map(|i| (i * 37 % 101) as f32 * 0.03125).collect();
    let mut next = || {
        let token = sampler.sample(&row, None).unwrap();
        sampler.accept(token);
        token
    };
    (0..count).map(|_| next()).collect()
}

fn busy(seed: u64) -> SamplingParams {
    let xtc = Xtc { probability: 0.5, threshold: 0.01 };
    SamplingParams { seed, min_p: 0.3, xtc, presence_penalty: 0.3, dry: dry(0.8, vec![3]).dry, ..plain() }
}

#[test]
fn the_same_seed_gives_the_same_tokens_on_every_machine() {
    assert_eq!(tokens(&mut Sampler::new(busy(5)), 50), tokens(&mut Sampler::new(busy(5)), 50));
    assert_ne!(tokens(&mut Sampler::new(busy(5)), 50), tokens(&mut Sampler::new(busy(6)), 50));
    // A change here breaks the promise that a seed keeps its meaning between versions.
    assert_eq!(
        tokens(&mut Sampler::new(SamplingParams { seed: 1, ..plain() }), 8),
        [588, 13, 79, 687, 623, 333, 131, 270]
    );
}

#[test]
fn a_clone_continues_alike_and_apart() {
    let mut first = primed(busy(9), &[1, 2, 3]);
    tokens(&mut first, 10);
    let mut second = first.clone();
    let mut third = first.clone();
    let expected = tokens(&mut second, 30);
    assert_eq!(tokens(&mut first, 30), expected);
    assert_eq!(tokens(&mut third, 30), expected, "what the others drew and accepted did not reach it");
}

#[test]
fn accepting_draws_nothing() {
    let mut quiet = Sampler::new(SamplingParams { seed: 3, ..plain() });
    let mut primed = primed(SamplingParams { seed: 3, ..plain() }, &[5; 1000]);
    assert_eq!(tokens(&mut quiet, 20), tokens(&mut primed, 20));
}

#[test]
fn logprobs_survive_infinite_and_broken_rows() {
    let mut row = vec![f32::NEG_INFINITY; 300];
    assert_eq!(logprobs(&row, 5, 5).logprob, f32::NEG_INFINITY);
    assert!(logprobs(&row, 5, 5).top.is_empty());
    row[7] = -4.0;
    let found = logprobs(&row, 7, 5);
    assert_eq!((found.logprob, found.top.len(), found.top[0].token), (0.0, 1, 7));
    (row[8], row[9]) = (f32::INFINITY, f32::INFINITY);
    let found = logprobs(&row, 8, 3);
    assert_eq!(found.logprob, -std::f32::consts::LN_2);
    assert_eq!(found.top.iter().map(|entry| entry.token).collect::<Vec<_>>(), [8, 9]);
    assert_eq!(logprobs(&row, 7, 0).logprob, f32::NEG_INFINITY);
    row[10] = f32::NAN;
    assert_eq!(logprobs(&row, 8, 3).logprob, f32::NEG_INFINITY);
}
