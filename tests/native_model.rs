//! Loading: the embedded model, its facts, what is refused and how a load is cancelled.
#![cfg(feature = "native")]

mod native;

use plateau::llama::{self, DeviceKind, LoadError, Model};
use plateau::text::Specials;
use plateau::units::Bytes;

#[test]
fn the_embedded_model_loads_with_its_facts() {
    let mut last = 0.0;
    let loaded = llama::load(&native::profile(512, 2), &mut |done| {
        last = done;
        true
    })
    .expect("the demo model loads");
    assert_eq!(last, 1.0);
    assert_eq!(loaded.facts.architecture, "qwen35");
    assert!(loaded.facts.recurrent.is_some());
    assert_eq!(loaded.facts.n_vocab as usize, loaded.tokenizer.n_vocab());
    assert!(loaded.tokenizer.codec_name().starts_with("tokenizers"), "{}", loaded.tokenizer.codec_name());
    let end = loaded.tokenizer.special("<|im_end|>").expect("a chat model");
    assert!(loaded.vocab.eog.contains(&end));
    assert_eq!(loaded.tokenizer.encode("<|im_end|>", Specials::Parse).expect("encodes"), vec![end]);
    assert!(loaded.devices.iter().any(|device| device.kind == DeviceKind::Cpu));
}

#[test]
fn memory_is_measured_by_kind() {
    let runner = native::runner(&native::engine_config(512, 2));
    let memory = runner.memory_use();
    let sum = |part: fn(&llama::MemoryUse) -> Bytes| memory.iter().map(part).sum::<Bytes>();
    let weights = sum(|row| row.model);
    let tensors = native::model().facts().tensor_bytes;
    // The MTP block is in the file and is not loaded.
    assert!(weights >= tensors.trunk + tensors.embedding, "{tensors:?} {memory:?}");
    assert!(weights < tensors.trunk + tensors.embedding + tensors.mtp, "{tensors:?} {memory:?}");
    assert!(sum(|row| row.compute) > Bytes(0) && memory.iter().all(|row| row.host), "{memory:?}");
    // Four times the context costs more KV cache, and no more weights.
    let bigger = native::runner(&native::engine_config(2048, 2)).memory_use();
    assert!(bigger.iter().map(|row| row.context).sum::<Bytes>() > sum(|row| row.context));
    assert_eq!(bigger.iter().map(|row| row.model).sum::<Bytes>(), weights);
}

#[test]
fn a_load_is_cancelled_by_its_progress() {
    let result = Model::load(&native::model_config(), &mut |_| false);
    assert!(matches!(result, Err(LoadError::Cancelled)));
}

#[test]
fn a_panic_in_the_progress_cancels_the_load() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = Model::load(&native::model_config(), &mut |_| panic!("from a test"));
    std::panic::set_hook(hook);
    assert!(matches!(result, Err(LoadError::Cancelled)));
}

#[test]
fn a_malformed_file_is_refused_before_llama_cpp_sees_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, b"GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff").expect("a file");
    let config = plateau::config::ModelConfig { path: Some(path.clone()), ..native::model_config() };
    let error = Model::load(&config, &mut |_| true).err().expect("refused");
    assert!(matches!(error, LoadError::Gguf { .. }), "{error}");
    assert!(error.to_string().contains("model.gguf"), "{error}");

    let config = plateau::config::ModelConfig { path: Some(folder.path().join("none.gguf")), ..native::model_config() };
    assert!(matches!(Model::load(&config, &mut |_| true), Err(LoadError::Gguf { .. })));
}

#[test]
fn a_context_that_cannot_be_made_says_what_was_tried() {
    use plateau::config::{CacheType, FlashAttention};
    let mut config = native::engine_config(512, 2);
    (config.cache_type_v, config.flash_attention) = (CacheType::Q8_0, FlashAttention::Off);
    let error =
        llama::LlamaRunner::new(native::model(), &config, llama::ContextOptions::default()).err().expect("fails");
    let text = error.to_string();
    assert!(text.contains("Q8_0") && text.contains("flash_attn"), "{text}");
}
