//! Checks of a profile as a whole: values that are fine alone and wrong together. Ranges of single values are in `settings`.

use super::error::{ConfigError, Origin};
use super::profile::{FlashAttention, Profile};

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
    if !profile.chat.late_system_wrapper.contains("{}") {
        let message = "the text of the system message would be lost".to_owned();
        return refuse("chat.late_system_wrapper", message, "put {} where the text goes");
    }
    Ok(())
}
