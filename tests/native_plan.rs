//! The memory plan against what llama.cpp reports of the loaded demo model.

#![cfg(feature = "native")]

use plateau::app::model::{Header, ModelFile};
use plateau::config::plan::{Place, Plan};
use plateau::config::{CacheType, Profile};

/// ggml rounds each of some hundred tensors up to 64 bytes.
const PADDING: u64 = 8192;

/// Bytes of the plan's items with these names.
fn planned(plan: &Plan, names: &[&str]) -> u64 {
    plan.items
        .iter()
        .filter(|item| names.contains(&item.what) && item.place == Place::Host)
        .map(|item| item.bytes.0)
        .sum()
}

#[test]
fn the_plan_is_what_llama_cpp_takes() {
    for (parallel, ubatch, cache, drafts) in [
        (4, 512, CacheType::F16, false),
        (1, 128, CacheType::F16, false),
        (2, 512, CacheType::Q8_0, false),
        (4, 512, CacheType::F16, true),
        (1, 512, CacheType::Q8_0, true),
    ] {
        let mut profile = Profile::demo();
        profile.model.gpu_layers = Some(0);
        profile.engine.parallel = parallel;
        profile.engine.ubatch_tokens = ubatch;
        profile.engine.cache_type_k = cache;
        profile.engine.cache_type_v = cache;
        profile.speculative.mtp = drafts;
        profile.speculative.lookup = drafts;
        let file = ModelFile::locate(&profile.model).unwrap();
        let sizes = Header::read(&file).unwrap().sizes();
        let plan = Plan::new(&sizes, &profile.engine, &profile.speculative, Some(0), false);
        let loaded = plateau::llama::load(&profile, &mut |_| true).unwrap();
        let sum = |of: fn(&plateau::llama::MemoryUse) -> u64| loaded.memory.iter().map(of).sum::<u64>();
        let case = format!("{parallel} sequences, micro-batch {ubatch}, {}, drafts {drafts}", cache.word());

        for (names, taken) in [
            (&["weights", "token embedding", "output head", "MTP weights"][..], sum(|m| m.model.0)),
            (&["KV cache", "recurrent state", "rollback states", "MTP KV cache"], sum(|m| m.context.0)),
        ] {
            assert!(planned(&plan, names).abs_diff(taken) < PADDING, "{case}: {names:?} take {taken} B\n{plan:?}");
        }
        let buffers = [
            "activations",
            "logits",
            "attention mask",
            "MTP activations",
            "MTP logits",
            "MTP mask",
            "rollback scratch",
        ];
        let (estimate, taken) = (planned(&plan, &buffers), sum(|m| m.compute.0));
        assert!(estimate * 100 >= taken * 98, "{case}: {taken} B of compute buffers, {estimate} planned");
        assert!(estimate <= taken * 3 / 2, "{case}: {taken} B of compute buffers, {estimate} planned");
    }
}
