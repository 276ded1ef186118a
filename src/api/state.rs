//! What every handler sees.

use std::sync::Arc;

use super::images::Images;
use super::preparing::Preparing;
use crate::chat::constraint::Grammars;
use crate::chat::{ChatTemplate, ServedModel, TemplateOrigin};
use crate::config::Profile;
use crate::engine::Handle;
use crate::telemetry::Metrics;
use crate::text::tokenizer::Tokenizer;
use crate::units::Bytes;

/// What every handler sees. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub handle: Handle,
    pub tokenizer: Tokenizer,
    pub template: Arc<ChatTemplate>,
    pub profile: Arc<Profile>,
    pub model: Arc<ModelInfo>,
    pub metrics: Metrics,
    pub build: Arc<BuildInfo>,
    pub preparing: Preparing,
    pub images: Images,
    pub grammars: Grammars,
}

impl ApiState {
    /// What requests are checked and prepared with.
    pub fn served(&self) -> ServedModel<'_> {
        ServedModel {
            tokenizer: &self.tokenizer,
            template: &self.template,
            profile: &self.profile,
            grammars: &self.grammars,
        }
    }
}

/// The served model as clients are told about it.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    pub id: String,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    pub architecture: String,
    pub n_ctx: usize,
    pub n_ctx_train: usize,
    pub n_params: u64,
    pub size: Bytes,
    /// Most frequent tensor type by bytes, e.g. "q4_k".
    pub quantization: String,
    /// Layers of its multi-token-prediction block; 0 where the file has none.
    pub n_layer_mtp: u32,
    /// Where its chat template comes from.
    pub template: TemplateOrigin,
}

/// The running program.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    pub version: String,
    /// What computes, e.g. "llama.cpp (CPU)".
    pub backend: String,
}

impl BuildInfo {
    /// `system_fingerprint` of responses: one word, "plateau-0.1.0-llama.cpp-0.6.0".
    pub fn fingerprint(&self) -> String {
        let words = self.version.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '+'));
        words.filter(|word| !word.is_empty()).fold("plateau".to_owned(), |name, word| name + "-" + word)
    }
}

#[cfg(test)]
mod tests {
    use super::BuildInfo;

    #[test]
    fn a_fingerprint_is_one_word_whatever_the_version_says() {
        let of = |version: &str| BuildInfo { version: version.to_owned(), backend: String::new() }.fingerprint();
        assert_eq!(of("0.1.0 (llama.cpp 0.6.0)"), "plateau-0.1.0-llama.cpp-0.6.0");
        assert_eq!(of("0.1.0 (without model runtime)"), "plateau-0.1.0-without-model-runtime");
    }
}
