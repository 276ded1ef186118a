//! What drafting takes, against the measured sizes of the 27B, and that it takes nothing when it is off.

use super::*;
use crate::config::plan::drafting::mtp_width;
use crate::config::{Layers, resolve};

const DRAFTING_ROWS: [&str; 8] = [
    "rollback states",
    "MTP weights",
    "MTP KV cache",
    "MTP activations",
    "MTP logits",
    "MTP mask",
    "MTP scratch",
    "output rows",
];

/// llama-server at 262,144 tokens, q4_0, f16 for the head: MiB on the GPU without MTP and with 1 to 5 drafted tokens.
const MEASURED_MIB: [u64; 6] = [21_525, 23_259, 23_409, 23_559, 23_709, 23_857];

fn measured_engine() -> EngineConfig {
    engine(262_144, CacheType::Q4_0, CacheType::Q4_0)
}

fn drafting(speculative: &SpeculativeConfig) -> Plan {
    Plan::new(&model_27b(), &measured_engine(), speculative, None, true)
}

#[test]
fn each_drafted_token_costs_one_recurrent_state_as_measured() {
    let state = model_27b().recurrent.unwrap();
    for n in 1..=5 {
        let (with, without) = (drafting(&mtp(n)), drafting(&mtp(n - 1)));
        let (a, b) = (item(&with, "rollback states"), item(&without, "rollback states"));
        assert_eq!(Bytes(a.0 - b.0), state, "{n} drafted tokens");
        assert_eq!(Bytes(a.0 - b.0).to_string(), "149.6 MiB");
    }
    for n in 2..=5_u32 {
        let more = drafting(&mtp(n)).need(Place::Gpu).0 - drafting(&mtp(n - 1)).need(Place::Gpu).0;
        let measured = MEASURED_MIB[n as usize] - MEASURED_MIB[n as usize - 1];
        assert!((more / MIB).abs_diff(measured) <= 2, "{n}: planned {} MiB, measured {measured}", more / MIB);
    }
}

/// The first drafted token brings the head: weights, f16 cache and the buffers of its context. llama-server's context takes 512
/// rows at once, ours 256: with its rows the estimate must give what it took.
#[test]
fn the_head_takes_what_was_measured() {
    let plan = drafting(&mtp(1));
    assert_eq!(item(&plan, "MTP KV cache"), Bytes(1024 * MIB));
    assert_eq!(mtp_kv_bytes_per_token(&model_27b(), &mtp(1)), Bytes(4096));
    assert_eq!(item(&plan, "MTP scratch"), Bytes(0), "an f16 cache needs none");
    let exact: u64 = ["rollback states", "MTP weights", "MTP KV cache"].map(|what| item(&plan, what).0).iter().sum();
    let measured = (MEASURED_MIB[1] - MEASURED_MIB[0]) * MIB - exact;
    let buffers = |rows: u64| rows * (mtp_width(&model_27b()) * 4 + 262_144 * 2) + u64::from(model_27b().n_vocab) * 4;
    assert!(buffers(512).abs_diff(measured) < measured / 20, "{} planned, {measured} measured", buffers(512));
    let ours: u64 = ["MTP activations", "MTP logits", "MTP mask"].map(|what| item(&plan, what).0).iter().sum();
    assert_eq!(ours, buffers(256));
}

#[test]
fn off_means_off() {
    let mut headless = model_27b();
    headless.n_layer_mtp = 0;
    headless.mtp = Bytes(0);
    let nothing = [
        drafting(&off()),
        drafting(&mtp(0)),
        drafting(&SpeculativeConfig { lookup: true, lookup_n_max: 0, ..off() }),
        Plan::new(&headless, &measured_engine(), &mtp(3), None, true),
    ];
    for plan in nothing {
        let drafting: Vec<_> = plan.items.iter().filter(|item| DRAFTING_ROWS.contains(&item.what)).collect();
        assert_eq!(drafting, Vec::<&Item>::new());
        assert_eq!(item(&plan, "logits"), Bytes(248_320 * 4), "one row a sequence");
    }
}

#[test]
fn lookup_alone_takes_states_and_rows_and_no_head() {
    let plan = drafting(&SpeculativeConfig { lookup: true, lookup_n_max: 4, ..off() });
    assert_eq!(item(&plan, "rollback states"), Bytes(4 * model_27b().recurrent.unwrap().0));
    assert_eq!(item(&plan, "logits"), Bytes(5 * 248_320 * 4));
    assert_eq!(plan.items.iter().filter(|item| item.what.starts_with("MTP")).count(), 0);
    let mut attention_alone = model_27b();
    attention_alone.recurrent = None;
    let plan = Plan::new(&attention_alone, &measured_engine(), &mtp(3), None, true);
    assert_eq!(item(&plan, "rollback states"), Bytes(0), "a model of attention alone is cut anywhere");
}

#[test]
fn states_and_rows_are_for_the_longer_draft_and_every_sequence() {
    let mut config = measured_engine();
    config.parallel = 4;
    let both = SpeculativeConfig { lookup: true, lookup_n_max: 5, ..mtp(3) };
    let plan = Plan::new(&model_27b(), &config, &both, None, true);
    assert_eq!(item(&plan, "rollback states"), Bytes(4 * 5 * model_27b().recurrent.unwrap().0));
    assert_eq!(item(&plan, "logits"), Bytes(4 * 6 * 248_320 * 4));
}

#[test]
fn a_quantized_cache_of_the_head_reserves_a_scratch_and_may_not_suit_the_model() {
    let quantized = SpeculativeConfig { cache_type_k: CacheType::Q8_0, cache_type_v: CacheType::Q8_0, ..mtp(3) };
    assert_eq!(item(&drafting(&quantized), "MTP scratch"), Bytes(1024 * MIB));
    let mut odd = model_27b();
    odd.head_dim_k = 80;
    let plain = engine(4096, CacheType::F16, CacheType::F16);
    let message = cache_types_fit(&odd, &plain, &quantized).unwrap_err();
    assert!(message.contains("speculative.cache_type_k") && message.contains("80"), "{message}");
    assert_eq!(cache_types_fit(&odd, &plain, &SpeculativeConfig { mtp: false, ..quantized }), Ok(()));
}

fn keys(found: &[Alternative]) -> Vec<Vec<String>> {
    let text = |c: &Change| format!("{}={}", c.key, c.value);
    found.iter().map(|alternative| alternative.changes.iter().map(text).collect()).collect()
}

#[test]
fn shorter_drafts_and_no_head_are_offered_where_they_help() {
    let both = SpeculativeConfig { lookup: true, lookup_n_max: 5, n_min: 4, ..mtp(5) };
    let room = |speculative: &SpeculativeConfig| {
        let plan = drafting(speculative);
        free((plan.need(Place::Gpu) + plan.margin(Place::Gpu)).0 / MIB + 1, 32_000)
    };
    let offered = |gpu: &FreeMemory| keys(&alternatives(&model_27b(), &measured_engine(), &both, None, gpu));
    let shorter = offered(&room(&SpeculativeConfig { n_max: 3, lookup_n_max: 3, n_min: 0, ..both.clone() }));
    let expected = ["speculative.n_max=3", "speculative.n_min=3", "speculative.lookup_n_max=3"];
    assert!(shorter.contains(&expected.map(str::to_owned).to_vec()), "{shorter:?}");
    let headless = offered(&room(&SpeculativeConfig { mtp: false, ..both.clone() }));
    assert!(headless.contains(&vec!["speculative.mtp=false".to_owned()]), "{headless:?}");
    let neither = offered(&room(&off()));
    let expected = ["speculative.mtp=false", "speculative.lookup=false"];
    assert!(neither.contains(&expected.map(str::to_owned).to_vec()), "{neither:?}");
}

/// The profiles for 24 GB are for a GPU of which a desktop has taken a little.
#[test]
fn the_profiles_for_one_gpu_fit_it_with_their_drafts() {
    for name in ["agent", "vision", "bounded-thinking"] {
        let layers = Layers { profile: Some(name.to_owned()), ..Layers::default() };
        let profile = resolve(&layers).unwrap().profile;
        assert!(profile.speculative.mtp, "{name}");
        let plan = Plan::new(&model_27b(), &profile.engine, &profile.speculative, None, true);
        assert_eq!(plan.shortfalls(&free(24_100, 32_000)), [], "{name}");
    }
}
