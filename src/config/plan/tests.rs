//! The plan against the measured sizes of the 27B and against itself.

mod drafting;

use proptest::prelude::*;

use super::*;
use crate::config::profile::{CacheType, EngineConfig, Profile, SpeculativeConfig};
use crate::units::Bytes;

const MIB: u64 = 1 << 20;

/// The 27B of docs/vram.md: 64 layers, 16 of them with attention (4 KV heads of 256), 149.6 MiB of
/// recurrent state.
fn model_27b() -> ModelSizes {
    ModelSizes {
        trunk: Bytes(14_058 * MIB),
        token_embedding: Bytes(682 * MIB),
        output_head: Some(Bytes(995 * MIB)),
        mtp: Bytes(229 * MIB),
        recurrent: Some(Bytes(48 * (128 * 128 * 48 * 4 + 3 * 10_240 * 4))),
        n_layer: 64,
        n_layer_mtp: 1,
        n_layer_attention: 16,
        n_embd: 5120,
        n_ff: 17_408,
        n_vocab: 248_320,
        n_head: 24,
        n_head_kv: 4,
        head_dim_k: 256,
        head_dim_v: 256,
        n_ctx_train: 262_144,
        images: None,
    }
}

fn engine(ctx: u32, k: CacheType, v: CacheType) -> EngineConfig {
    let mut engine = Profile::demo().engine;
    engine.ctx_tokens = Some(ctx);
    engine.cache_type_k = k;
    engine.cache_type_v = v;
    engine.parallel = 1;
    engine
}

fn agent() -> EngineConfig {
    engine(204_800, CacheType::Q4_0, CacheType::Q4_0)
}

fn off() -> SpeculativeConfig {
    SpeculativeConfig { mtp: false, lookup: false, ..Profile::demo().speculative }
}

/// MTP alone with an f16 cache.
fn mtp(n_max: u32) -> SpeculativeConfig {
    SpeculativeConfig { mtp: true, n_max, ..off() }
}

/// Without drafting.
fn plan_of(model: &ModelSizes, engine: &EngineConfig, gpu_layers: Option<u32>, has_gpu: bool) -> Plan {
    Plan::new(model, engine, &off(), gpu_layers, has_gpu)
}

fn alternatives_of(
    model: &ModelSizes,
    engine: &EngineConfig,
    gpu_layers: Option<u32>,
    free: &FreeMemory,
) -> Vec<Alternative> {
    alternatives(model, engine, &off(), gpu_layers, free)
}

fn item(plan: &Plan, what: &str) -> Bytes {
    plan.items.iter().filter(|item| item.what == what).map(|item| item.bytes).sum()
}

/// (free on the GPU, free on the host) in MiB.
fn free(gpu: u64, host: u64) -> FreeMemory {
    FreeMemory { gpu: Some(Bytes(gpu * MIB)), host: Bytes(host * MIB) }
}

#[test]
fn kv_bytes_per_token_are_those_of_the_table() {
    use CacheType::*;
    let rows = [
        (F16, F16, 65_536),
        (Q8_0, Q8_0, 34_816),
        (Q5_1, Q5_1, 24_576),
        (Q5_0, Q5_0, 22_528),
        (Q5_0, Q4_1, 21_504),
        (Q4_1, Q4_1, 20_480),
        (Q4_0, Q4_0, 18_432),
    ];
    for (k, v, bytes) in rows {
        assert_eq!(kv_bytes_per_token(&model_27b(), &engine(4096, k, v)), Bytes(bytes), "{k:?}/{v:?}");
    }
}

#[test]
fn a_recurrent_row_is_149_6_mib_and_there_is_one_a_sequence() {
    let mut config = agent();
    assert_eq!(item(&plan_of(&model_27b(), &config, None, true), "recurrent state").to_string(), "149.6 MiB");
    config.parallel = 2;
    assert_eq!(item(&plan_of(&model_27b(), &config, None, true), "recurrent state").to_string(), "299.2 MiB");
}

#[test]
fn quantized_kv_reserves_4096_bytes_a_token_of_scratch_on_the_gpu_alone() {
    let config = engine(262_144, CacheType::Q4_0, CacheType::Q4_0);
    assert_eq!(item(&plan_of(&model_27b(), &config, None, true), "attention scratch"), Bytes(1024 * MIB));
    assert_eq!(item(&plan_of(&model_27b(), &config, None, false), "attention scratch"), Bytes(0));
    let plain = engine(262_144, CacheType::F16, CacheType::F16);
    assert_eq!(item(&plan_of(&model_27b(), &plain, None, true), "attention scratch"), Bytes(0));
}

/// Measured: 21,525 MiB on the GPU at 262,144 tokens, q4_0, no MTP, micro-batch 512.
#[test]
fn the_gpu_total_is_within_two_percent_of_the_measured_one() {
    let config = engine(262_144, CacheType::Q4_0, CacheType::Q4_0);
    let need = plan_of(&model_27b(), &config, None, true).need(Place::Gpu).0 / MIB;
    assert!((21_095..=21_955).contains(&need), "{need} MiB");
}

/// Users saw 262K boot on 24 GB and die at 125K: the plan counts a full context and its margin.
#[test]
fn what_boots_but_cannot_fill_is_refused() {
    let mut config = engine(262_144, CacheType::Q8_0, CacheType::Q8_0);
    let gpu = free(24_100, 32_000);
    let plan = plan_of(&model_27b(), &config, None, true);
    assert_eq!(plan.shortfalls(&gpu).iter().map(|s| s.place).collect::<Vec<_>>(), [Place::Gpu]);
    config.ctx_tokens = Some(204_800);
    config.cache_type_k = CacheType::Q4_0;
    config.cache_type_v = CacheType::Q4_0;
    assert!(plan_of(&model_27b(), &config, None, true).fits(&gpu));
}

#[test]
fn alternatives_name_a_context_and_a_cache_type_that_fit() {
    let config = engine(262_144, CacheType::F16, CacheType::F16);
    let gpu = free(24_100, 32_000);
    let found = alternatives_of(&model_27b(), &config, None, &gpu);
    let keys: Vec<_> = found.iter().map(|a| a.changes[0].key).collect();
    assert_eq!(keys, ["engine.cache_type_k", "engine.ctx_tokens", "model.gpu_layers"]);
    assert_eq!(found[0].changes[0].value, "q4_0", "q8_0 is still too large");
    assert!(found.iter().all(|a| a.plan.fits(&gpu)));
}

#[test]
fn the_context_offered_is_the_largest_that_fits() {
    let config = engine(262_144, CacheType::F16, CacheType::F16);
    let gpu = free(24_100, 32_000);
    let found = alternatives_of(&model_27b(), &config, None, &gpu);
    let offered = found.iter().find(|a| a.changes[0].key == "engine.ctx_tokens").unwrap();
    let mut more = config.clone();
    more.ctx_tokens = Some(offered.plan.ctx_tokens + 256);
    assert!(!plan_of(&model_27b(), &more, None, true).fits(&gpu));
}

#[test]
fn fewer_sequences_are_offered_where_the_state_is_what_is_too_much() {
    let mut config = agent();
    config.parallel = 8;
    let one = plan_of(&model_27b(), &agent(), None, true);
    let gpu = free((one.need(Place::Gpu) + one.margin(Place::Gpu)).0 / MIB + 160, 32_000);
    let found = alternatives_of(&model_27b(), &config, None, &gpu);
    let fewer = found.iter().find(|a| a.changes[0].key == "engine.parallel").unwrap();
    assert_eq!(fewer.changes[0].value, "2");
}

#[test]
fn several_changes_are_combined_only_when_no_single_one_helps() {
    let mut config = engine(262_144, CacheType::F16, CacheType::F16);
    config.parallel = 8;
    let gpu = free(17_700, 1_900);
    let found = alternatives_of(&model_27b(), &config, None, &gpu);
    assert_eq!(found.len(), 1);
    assert!(found[0].changes.len() > 1, "{:?}", found[0].changes);
    assert!(found[0].plan.fits(&gpu));
}

#[test]
fn nothing_is_offered_where_the_weights_alone_are_too_much() {
    assert_eq!(alternatives_of(&model_27b(), &agent(), None, &free(8_000, 4_000)), []);
    let no_gpu = FreeMemory { gpu: None, host: Bytes(4_000 * MIB) };
    assert_eq!(alternatives_of(&model_27b(), &agent(), None, &no_gpu), []);
}

#[test]
fn without_a_gpu_everything_is_on_the_host() {
    let plan = plan_of(&model_27b(), &agent(), None, false);
    assert_eq!(plan.need(Place::Gpu), Bytes(0));
    assert_eq!(plan.margin(Place::Gpu), Bytes(0));
    assert_eq!(item(&plan, "output head"), Bytes(995 * MIB));
}

#[test]
fn a_tied_head_is_copied_to_the_gpu() {
    let mut model = model_27b();
    model.output_head = None;
    let plan = plan_of(&model, &agent(), None, true);
    assert_eq!(item(&plan, "output head"), model.token_embedding);
    assert_eq!(item(&plan_of(&model, &agent(), None, false), "output head"), Bytes(0));
}

/// llama.cpp fills the GPU from the end; a head without layers before it was planned on the host.
#[test]
fn the_gpu_takes_the_output_head_first_then_the_mtp_block_then_the_last_layers() {
    let config = agent();
    let on_gpu = |gpu_layers, what| {
        let plan = Plan::new(&model_27b(), &config, &mtp(3), Some(gpu_layers), true);
        plan.items.iter().any(|item| item.what == what && item.place == Place::Gpu)
    };
    for (gpu_layers, placed) in [(0, [false; 3]), (1, [true, false, false]), (2, [true, true, false]), (3, [true; 3])] {
        let found = ["output head", "MTP weights", "weights"].map(|what| on_gpu(gpu_layers, what));
        assert_eq!(found, placed, "{gpu_layers} layers");
    }
    let all = Plan::new(&model_27b(), &config, &mtp(3), None, true);
    assert_eq!(Plan::new(&model_27b(), &config, &mtp(3), Some(66), true), all);
    assert_ne!(Plan::new(&model_27b(), &config, &mtp(3), Some(65), true), all);
}

#[test]
fn a_quantized_cache_is_refused_for_heads_that_blocks_do_not_divide() {
    let mut model = model_27b();
    model.head_dim_v = 80;
    let message = cache_types_fit(&model, &agent(), &off()).unwrap_err();
    assert!(message.contains("cache_type_v") && message.contains("80"), "{message}");
    assert_eq!(cache_types_fit(&model, &engine(4096, CacheType::Q4_0, CacheType::F16), &off()), Ok(()));
}

proptest! {
    /// Layers only move between GPU and host.
    #[test]
    fn weights_cache_and_state_are_the_same_wherever_the_layers_are(layers in 0u32..70) {
        let whole = plan_of(&model_27b(), &agent(), None, false);
        let split = plan_of(&model_27b(), &agent(), Some(layers), true);
        for what in ["weights", "KV cache", "recurrent state", "output head", "token embedding"] {
            prop_assert_eq!(item(&whole, what), item(&split, what), "{}", what);
        }
    }

    #[test]
    fn need_grows_with_the_context(ctx in 256u32..400_000, more in 1u32..400_000) {
        let need = |ctx| plan_of(&model_27b(), &engine(ctx, CacheType::Q8_0, CacheType::Q4_0), None, true).need(Place::Gpu);
        prop_assert!(need(ctx) <= need(ctx + more));
    }

    #[test]
    fn whatever_is_offered_fits(
        gpu in 0u64..40_000,
        host in 0u64..40_000,
        parallel in 1u32..9,
        n_max in 0u32..9,
        lookup in any::<bool>(),
    ) {
        let mut config = engine(262_144, CacheType::F16, CacheType::F16);
        config.parallel = parallel;
        let memory = free(gpu, host);
        let speculative = SpeculativeConfig { lookup, ..mtp(n_max) };
        for alternative in alternatives(&model_27b(), &config, &speculative, None, &memory) {
            prop_assert!(alternative.plan.fits(&memory), "{:?}", alternative.changes);
        }
    }
}
