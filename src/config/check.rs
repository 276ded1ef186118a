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
    if let Some(message) = profile.model.kernels.as_deref().and_then(kernels_fault) {
        return refuse("model.kernels", message, "use -NAME, +NAME, -all, +all or mmvq_limit=N, by commas");
    }
    if let Some((key, message, fix)) = drafting(&profile.speculative, engine) {
        return refuse(key, message, fix);
    }
    if let (Some(min), Some(max)) = (profile.vision.min_tokens, profile.vision.max_tokens)
        && min > max
    {
        let message = format!("{min} is more than vision.max_tokens = {max}");
        return refuse("vision.min_tokens", message, "lower it, or raise vision.max_tokens");
    }
    if let Err(text) = profile.images.ports() {
        return refuse("images.fetch_ports", format!("{text:?} is no port"), "write numbers from 1 to 65535");
    }
    if !profile.chat.late_system_wrapper.contains("{}") {
        let message = "the text of the system message would be lost".to_owned();
        return refuse("chat.late_system_wrapper", message, "put {} where the text goes");
    }
    Ok(())
}

/// The kernels of the CUDA plug-in that can be switched (vendor/kernels/src/registry.cu).
pub const KERNELS: [&str; 7] =
    ["fattn_quant", "fattn_quant_prefill", "gdn_chunk", "gdn_exact", "gdn_in_place", "mmvq_limit", "mmq_small"];

/// What is wrong with switches, known here too so that a slip is refused on a machine without a GPU.
fn kernels_fault(switches: &str) -> Option<String> {
    let fault = |word: &str| {
        if let Some(limit) = word.strip_prefix("mmvq_limit=") {
            let fits = limit.parse::<u8>().is_ok_and(|n| n <= 8);
            return (!fits).then(|| format!("mmvq_limit takes 0 to 8, not {limit:?}"));
        }
        let Some(name) = word.strip_prefix(['-', '+']) else {
            return Some(format!("{word:?} does not begin with - or +"));
        };
        let known = name == "all" || KERNELS.contains(&name);
        (!known).then(|| format!("there is no kernel {name:?}; there are {}", KERNELS.join(", ")))
    };
    switches.split(',').map(str::trim).filter(|word| !word.is_empty()).find_map(fault)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_name_kernels_that_exist_and_say_on_or_off() {
        for good in [
            "",
            "-fattn_quant",
            "+fattn_quant_prefill,-mmvq_limit",
            "-all,+fattn_quant",
            "-gdn_chunk,+gdn_exact",
            "mmvq_limit=4",
        ] {
            assert_eq!(kernels_fault(good), None, "{good}");
        }
        for (bad, word) in [
            ("fattn_quant", "begin with"),
            ("-fatn", "\"fatn\""),
            ("mmvq_limit=9", "0 to 8"),
            ("mmvq_limit=", "0 to 8"),
        ] {
            let fault = kernels_fault(bad).expect(bad);
            assert!(fault.contains(word), "{bad}: {fault}");
        }
    }

    #[test]
    fn the_plug_in_has_the_kernels_that_settings_can_name() {
        let registry = include_str!("../../vendor/kernels/src/registry.cu");
        let named: Vec<&str> =
            registry.lines().filter_map(|line| line.trim().strip_prefix("{ \"")?.split('"').next()).collect();
        assert_eq!(named, KERNELS);
    }
}
