//! Checks of a profile as a whole: values that are fine alone and wrong together. Ranges of single values are in `settings`.

use super::error::{ConfigError, Origin};
use super::profile::{EngineConfig, FlashAttention, Profile, SpeculativeConfig};

/// The key that is wrong, why, and how to mend it.
type Fault = (&'static str, String, &'static str);

/// The first combination that cannot run. `origin` tells where a key's value comes from.
pub fn whole(profile: &Profile, origin: &dyn Fn(&str) -> Origin) -> Result<(), ConfigError> {
    let refuse = |key: &str, message: String, fix: &str| {
        Err(ConfigError { key: key.to_owned(), origin: origin(key), message, fix: fix.to_owned() })
    };
    let engine = &profile.engine;
    if engine.ubatch_tokens > engine.batch_tokens {
        let message = format!("{} is more than engine.batch_tokens = {}", engine.ubatch_tokens, engine.batch_tokens);
        return refuse("engine.ubatch_tokens", message, "lower it, or raise engine.batch_tokens");
    }
    if engine.prefill_chunk_tokens > engine.batch_tokens {
        let message =
            format!("{} is more than engine.batch_tokens = {}", engine.prefill_chunk_tokens, engine.batch_tokens);
        return refuse("engine.prefill_chunk_tokens", message, "lower it, or raise engine.batch_tokens");
    }
    if engine.parallel >= engine.batch_tokens {
        let message =
            format!("{} sequences leave no row for prompts in a step of {}", engine.parallel, engine.batch_tokens);
        return refuse("engine.parallel", message, "raise engine.batch_tokens");
    }
    if engine.cache_type_v.is_quantized() && engine.flash_attention == FlashAttention::Off {
        let message = format!("{} values need flash attention, which is off", engine.cache_type_v.word());
        return refuse("engine.cache_type_v", message, "use f16 values, or engine.flash_attention = \"auto\"");
    }
    if let Some((key, message, fix)) = drafting(&profile.speculative, engine) {
        return refuse(key, message, fix);
    }
    if !profile.chat.late_system_wrapper.contains("{}") {
        let message = "the text of the system message would be lost".to_owned();
        return refuse("chat.late_system_wrapper", message, "put {} where the text goes");
    }
    Ok(())
}

fn drafting(speculative: &SpeculativeConfig, engine: &EngineConfig) -> Option<Fault> {
    let SpeculativeConfig { mtp, n_max, n_min, cache_type_v, .. } = *speculative;
    if n_min > n_max {
        let message = format!("{n_min} is more than speculative.n_max = {n_max}: every draft would be dropped");
        return Some(("speculative.n_min", message, "lower it, or raise speculative.n_max"));
    }
    // The device keeps a state after each of a sequence's last rows, and only of those in one micro-batch.
    let draft = speculative.draft_tokens_max();
    if draft > 0 && engine.ubatch_tokens <= draft + 1 {
        let message = format!(
            "a draft of {draft} tokens is checked in {} rows, and {} leave no more than those",
            draft + 1,
            engine.ubatch_tokens
        );
        return Some((
            "engine.ubatch_tokens",
            message,
            "raise it, or lower speculative.n_max and speculative.lookup_n_max",
        ));
    }
    if mtp && cache_type_v.is_quantized() && engine.flash_attention == FlashAttention::Off {
        let message = format!("{} values need flash attention, which is off", cache_type_v.word());
        return Some(("speculative.cache_type_v", message, "use f16 values, or engine.flash_attention = \"auto\""));
    }
    None
}
