//! A simulated model drives the policy step by step: acceptance and costs are given, throughput is
//! measured.

use proptest::prelude::*;

use super::acceptance::Acceptance;
use super::offer::TextOffer;
use super::*;
use crate::engine::request::draft::DraftSource;
use crate::engine::request::draft::MAX_DRAFT_TOKENS;

/// Costs in parts of a plain step of one sequence.
#[derive(Clone, Copy, Debug)]
struct Machine {
    row: f64,
    pass: f64,
    steady: bool,
}

const CPU: Machine = Machine { row: 0.35, pass: 0.20, steady: false };
const GPU: Machine = Machine { row: 0.05, pass: 0.08, steady: true };
const MACHINES: [Machine; 3] = [CPU, GPU, Machine { row: 0.12, pass: 0.10, steady: false }];

impl Machine {
    fn step(&self, n_rows: usize) -> f64 {
        0.01 * (1.0 + self.row * (n_rows as f64 - 1.0))
    }
    fn pass(&self, n_sequences: usize) -> f64 {
        0.01 * self.pass * (1.0 + 0.05 * (n_sequences as f64 - 1.0))
    }
}

/// Conditional acceptance of a text: of the MTP head at a position (from 0), and of lookup, with
/// what lookup offers.
#[derive(Clone, Copy, Debug)]
struct Text {
    mtp: f64,
    /// Each position is this much of the one before.
    next: f64,
    lookup: f64,
    offer: Option<TextOffer>,
}

const PROSE: Text = Text { mtp: 0.8, next: 0.92, lookup: 0.0, offer: None };

struct Noise(u64);

impl Noise {
    /// 0..1
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn accepted(&mut self, text: &Text, choice: DraftChoice) -> usize {
        let mut rate = if choice.source == DraftSource::Mtp { text.mtp } else { text.lookup };
        let mut n = 0;
        while n < choice.n && self.next() < rate {
            n += 1;
            if choice.source == DraftSource::Mtp {
                rate *= text.next;
            }
        }
        n
    }
}

/// Time and tokens of all series, and what was decided in the last one.
#[derive(Default)]
struct Run {
    seconds: f64,
    tokens: usize,
    widths: Vec<usize>,
    sources: Vec<DraftSource>,
}

impl Run {
    fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

/// Several runs with other chances; no claim here is about one lucky series.
const SEEDS: u64 = 4;

/// `n_tokens` of each of `n` sequences (counted over all). `text` by tokens done. `context`: this
/// width instead of the policy's.
fn run(machine: Machine, n: usize, n_tokens: usize, text: &dyn Fn(usize) -> Text, context: Option<usize>) -> Run {
    let mut all = (0..SEEDS).map(|seed| run_with(seed, (machine, n, n_tokens), text, context));
    let first = all.next().unwrap_or_default();
    all.fold(first, |sum, run| Run { seconds: sum.seconds + run.seconds, tokens: sum.tokens + run.tokens, ..run })
}

fn run_with(
    seed: u64,
    (machine, n, n_tokens): (Machine, usize, usize),
    text: &dyn Fn(usize) -> Text,
    context: Option<usize>,
) -> Run {
    let mut noise = Noise(seed);
    let mut policy = Policy::new(machine.steady);
    let mut sequences = vec![Acceptance::new(); n];
    let mut out = Run::default();
    let mut choices = Vec::new();
    while out.tokens < n_tokens * n {
        let now = text(out.tokens / n);
        let width = if let Some(context) = context {
            // The better source by the truth.
            let lookup = now.offer.is_some() && now.lookup > now.mtp;
            let source = if lookup { DraftSource::Lookup } else { DraftSource::Mtp };
            choices.clear();
            choices.resize(n, DraftChoice { source, n: if lookup { context } else { context.min(6) } });
            context
        } else {
            let offer = |acceptance| Offer { acceptance, mtp_max: 6, text: now.offer };
            let offers: Vec<Offer<'_>> = sequences.iter().map(offer).collect();
            policy.choose(&offers, &mut choices)
        };
        let mtp = choices.iter().filter(|c| c.source == DraftSource::Mtp && c.n > 0);
        let passes = mtp.clone().map(|c| c.n).max().unwrap_or(0);
        let pass = machine.pass(mtp.count());
        let n_rows = n * (width + 1);
        // Measured times scatter by 5 % either way.
        let step = machine.step(n_rows) * (0.95 + 0.1 * noise.next());
        policy.observe_step(n_rows, step);
        (0..passes).for_each(|_| policy.observe_draft_pass(n, pass));
        out.seconds += step + passes as f64 * pass;
        for (acceptance, choice) in sequences.iter_mut().zip(&choices) {
            let accepted = noise.accepted(&now, *choice);
            acceptance.observe(choice.source, now.offer.map_or(0, |o| o.n_match), choice.n, accepted);
            out.tokens += 1 + accepted;
            out.sources.push(choice.source);
        }
        out.widths.push(width);
    }
    out
}

fn best_fixed(machine: Machine, n: usize, n_tokens: usize, text: &dyn Fn(usize) -> Text) -> (usize, f64) {
    let longest = if text(0).offer.is_some() { MAX_DRAFT_TOKENS } else { 6 };
    let all = (0..=longest).map(|width| (width, run(machine, n, n_tokens, text, Some(width)).rate()));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

#[track_caller]
fn converges(machine: Machine, n: usize, what: &str, text: &dyn Fn(usize) -> Text) {
    let (width, best) = best_fixed(machine, n, 2000, text);
    let mine = run(machine, n, 2000, text, None);
    let part = mine.rate() / best;
    println!("{what} n={n} {machine:?}: best fixed {width}, policy {part:.3} of it");
    assert!(part >= 0.95, "{what}, {n} sequences, {machine:?}: {part:.3} of width {width}; {:?}", mine.widths);
}

#[test]
fn it_comes_within_five_percent_of_the_best_fixed_width() {
    for machine in MACHINES {
        for mtp in [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97] {
            converges(machine, 1, &format!("mtp {mtp}"), &|_| Text { mtp, ..PROSE });
        }
    }
}

#[test]
fn it_follows_a_text_that_changes_half_way() {
    for machine in MACHINES {
        for (a, b) in [(0.85, 0.0), (0.9, 0.4), (0.4, 0.9), (0.6, 0.95)] {
            let text = move |done| Text { mtp: if done < 1000 { a } else { b }, ..PROSE };
            converges(machine, 1, &format!("mtp {a} then {b}"), &text);
        }
    }
}

#[test]
fn it_comes_back_when_the_text_becomes_predictable() {
    for machine in MACHINES {
        let text = |done| Text { mtp: if done < 1000 { 0.0 } else { 0.9 }, ..PROSE };
        let mine = run(machine, 1, 2500, &text, None);
        let n = mine.widths.len();
        assert!(mine.widths[n - 100..].iter().filter(|&&w| w > 0).count() > 80, "{machine:?}: {:?}", mine.widths);
    }
}

#[test]
fn drafts_that_never_come_true_cost_five_percent_at_most() {
    for machine in MACHINES {
        for offer in [
            None,
            Some(TextOffer { source: DraftSource::Lookup, n_tokens: 16, n_match: 4 }),
            Some(TextOffer { source: DraftSource::Lookup, n_tokens: 16, n_match: 20 }),
        ] {
            for n in [1, 4] {
                let text = move |_| Text { mtp: 0.0, next: 1.0, lookup: 0.0, offer };
                let all = run(machine, n, 2000, &text, None);
                let early = run(machine, n, 200, &text, None);
                let plain = |tokens: usize| run(machine, n, tokens, &text, Some(0)).seconds;
                let late = (all.seconds - early.seconds) / (plain(2000) - plain(200));
                println!("{machine:?} {offer:?} n={n}: {:.3} first, {late:.3} later", early.seconds / plain(200));
                assert!(late <= 1.05, "{machine:?} {offer:?} {n}: {late}");
                assert!(
                    early.seconds <= 1.08 * plain(200),
                    "{machine:?} {offer:?} {n}: {}",
                    early.seconds / plain(200)
                );
            }
        }
    }
}

#[test]
fn a_quotation_is_drafted_from_lookup_and_long() {
    for machine in MACHINES {
        let offer = Some(TextOffer { source: DraftSource::Lookup, n_tokens: 16, n_match: 32 });
        let text = move |_| Text { lookup: 0.99, offer, ..PROSE };
        converges(machine, 1, "quotation", &text);
        let mine = run(machine, 1, 2000, &text, None);
        let n = mine.widths.len();
        assert!(mine.widths[n / 2..].iter().filter(|&&w| w >= 12).count() > n / 3, "{:?}", mine.widths);
        let lookups = mine.sources.iter().filter(|&&s| s == DraftSource::Lookup).count();
        assert!(lookups * 10 > mine.sources.len() * 9);
    }
}

#[test]
fn a_chance_match_does_not_displace_a_good_head() {
    let offer = Some(TextOffer { source: DraftSource::Lookup, n_tokens: 16, n_match: 3 });
    let text = move |_| Text { mtp: 0.9, lookup: 0.1, offer, ..PROSE };
    let mine = run(GPU, 1, 2000, &text, None);
    let mtp = mine.sources.iter().filter(|&&s| s == DraftSource::Mtp).count();
    assert!(mtp * 10 > mine.sources.len() * 9, "{mtp} of {}", mine.sources.len());
}

#[test]
fn several_sequences_share_one_width() {
    for n in [2, 4, 16] {
        for machine in MACHINES {
            converges(machine, n, "several", &|_| Text { mtp: 0.8, ..PROSE });
        }
    }
    // One with a quotation, one without anything: a choice each, neither beyond what it offers.
    let acceptance = Acceptance::new();
    let quoting = Offer {
        acceptance: &acceptance,
        mtp_max: 0,
        text: Some(TextOffer { source: DraftSource::Lookup, n_tokens: 9, n_match: 32 }),
    };
    let nothing = Offer { acceptance: &acceptance, mtp_max: 0, text: None };
    let head = Offer { acceptance: &acceptance, mtp_max: 3, text: None };
    let mut choices = Vec::new();
    let width = Policy::new(false).choose(&[quoting, nothing, head], &mut choices);
    assert_eq!(width, 9);
    assert_eq!(choices[0], DraftChoice { source: DraftSource::Lookup, n: 9 });
    assert_eq!((choices[1].n, choices[2]), (0, DraftChoice { source: DraftSource::Mtp, n: 3 }));
}

#[test]
fn a_steady_width_is_held_for_sixteen_steps_unless_much_is_to_be_gained() {
    let mine = run(GPU, 1, 4000, &|_| Text { mtp: 0.75, ..PROSE }, None);
    // Runs of equal width, the first step (all on offer) and the probes (three steps, or one while
    // plain) left out.
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &width in &mine.widths[1..] {
        match runs.last_mut() {
            Some((w, n)) if *w == width => *n += 1,
            _ => runs.push((width, 1)),
        }
    }
    let changes = runs.len();
    assert!(changes * 16 <= mine.widths.len() + 16 * 20, "{runs:?}");
    for run in runs.windows(3) {
        // A short run is a probe: it goes back to where it came from.
        assert!(run[1].1 >= 16 || run[1].1 <= 3 || run[0].1 <= 3 || run[2].1 <= 3, "{runs:?}");
    }
}

#[test]
fn probes_of_costs_are_rare() {
    for machine in MACHINES {
        let mut policy_widths = run(machine, 1, 6000, &|_| Text { mtp: 0.95, next: 1.0, ..PROSE }, None).widths;
        let n = policy_widths.len();
        let plain = policy_widths.drain(20..).filter(|&w| w == 0).count();
        assert!(plain * 100 <= n + 400, "{plain} of {n}");
    }
}

#[test]
fn the_gain_is_told_once_costs_are_known() {
    let mut policy = Policy::new(false);
    let mut acceptance = Acceptance::new();
    let mut choices = Vec::new();
    assert_eq!(policy.gain(), None);
    for _ in 0..200 {
        let offer = Offer { acceptance: &acceptance, mtp_max: 3, text: None };
        let width = policy.choose(&[offer], &mut choices);
        policy.observe_step(width + 1, GPU.step(width + 1));
        (0..choices[0].n).for_each(|_| policy.observe_draft_pass(1, GPU.pass(1)));
        acceptance.observe(DraftSource::Mtp, 0, choices[0].n, choices[0].n);
    }
    // Everything accepted at depth 3: 4 / (1.15 + 0.24).
    assert!((policy.gain().unwrap() - 2.88).abs() < 0.2, "{:?}", policy.gain());
}

#[test]
fn no_offers_no_draft() {
    let mut choices = vec![DraftChoice { source: DraftSource::Mtp, n: 3 }];
    let mut policy = Policy::new(true);
    policy.observe_step(1, 0.01);
    assert_eq!(policy.choose(&[], &mut choices), 0);
    assert!(choices.is_empty());
    let acceptance = Acceptance::new();
    assert_eq!(policy.choose(&[Offer { acceptance: &acceptance, mtp_max: 0, text: None }], &mut choices), 0);
    assert_eq!(choices.len(), 1);
    assert_eq!(choices[0].n, 0);
}

fn any_seconds() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 1e-4f64..1.0,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e300]),
    ]
}

proptest! {
    #[test]
    fn any_observations_give_choices_within_the_offers(
        steady in any::<bool>(),
        steps in prop::collection::vec(
            (prop::collection::vec((0usize..20, 0usize..20, 0usize..40, any::<usize>()), 0..6), any_seconds(), any_seconds()),
            1..120,
        ),
    ) {
        let mut policy = Policy::new(steady);
        let mut sequences = vec![Acceptance::new(); 6];
        let mut choices = Vec::new();
        for (offered, step, pass) in steps {
            let offers: Vec<Offer<'_>> = sequences.iter().zip(&offered).map(|(acceptance, &(mtp_max, n_tokens, n_match, _))| {
                let lookup = (n_tokens > 0).then_some(TextOffer { source: DraftSource::Lookup, n_tokens, n_match });
                Offer { acceptance, mtp_max, text: lookup }
            }).collect();
            let width = policy.choose(&offers, &mut choices);
            prop_assert_eq!(choices.len(), offered.len());
            let longest = offered.iter().map(|o| o.0.max(o.1)).max().unwrap_or(0).min(MAX_DRAFT_TOKENS);
            prop_assert!(width <= longest);
            for (choice, &(mtp_max, n_tokens, _, _)) in choices.iter().zip(&offered) {
                let limit = if choice.source == DraftSource::Mtp { mtp_max } else { n_tokens };
                prop_assert!(choice.n <= limit.min(width), "{choice:?}");
            }
            policy.observe_step(offered.len() * (width + 1), step);
            policy.observe_draft_pass(offered.len(), pass);
            for ((acceptance, choice), o) in sequences.iter_mut().zip(&choices).zip(&offered) {
                acceptance.observe(choice.source, o.2, choice.n, o.3 % (choice.n + 1));
            }
            prop_assert!(policy.gain().is_none_or(|g| g.is_finite() && g > 0.0));
        }
    }
}
