//! Facts of models and vocabularies from GGUF metadata, and the files that are refused for what they declare.

mod gguf_writer;

use std::path::Path;

use gguf_writer::{U32, Writer, tiny};
use plateau::gguf::{Gguf, GgufError, ModelFacts, TensorInfo, TokenKind, Value, VocabFacts};
use plateau::units::{Bytes, Token};

fn demo() -> Gguf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/demo-model/plateau-demo-q8_0.gguf");
    Gguf::open(&path).expect("the demo model is valid")
}

#[test]
fn facts_of_the_demo_model() {
    let facts = ModelFacts::from_gguf(&demo()).expect("facts");
    assert_eq!(
        (facts.architecture.as_str(), facts.name.as_str(), facts.size_label.as_str()),
        ("qwen35", "Tiny-Qwen35-13M", "13M")
    );
    assert_eq!((facts.n_layer, facts.n_layer_mtp, facts.n_layer_attention), (8, 1, 2));
    assert_eq!((facts.n_head, facts.n_head_kv, facts.head_dim_k, facts.head_dim_v), (4, 2, 256, 256));
    assert_eq!((facts.n_embd, facts.n_ff, facts.n_vocab, facts.n_ctx_train), (256, 768, 4096, 32768));
    assert_eq!(facts.quantization, "q8_0");
    assert!((12_000_000..15_000_000).contains(&facts.n_params), "{}", facts.n_params);
    let recurrent = facts.recurrent.expect("hybrid");
    assert_eq!(recurrent.n_layer, 6);
    assert_eq!((recurrent.conv_bytes, recurrent.state_bytes), (Bytes(6 * 3 * 1024 * 4), Bytes(6 * 128 * 512 * 4)));
    assert_eq!(facts.tensor_bytes.embedding, Bytes(256 * 4096 / 32 * 34));
    let total: u64 = demo().tensors.iter().map(|tensor| tensor.bytes).sum();
    assert_eq!(facts.tensor_bytes.trunk + facts.tensor_bytes.mtp + facts.tensor_bytes.embedding, Bytes(total));
    assert!(facts.tensor_bytes.mtp > Bytes(1_000_000));
    assert!(facts.chat_template.is_some_and(|template| template.contains("<|im_start|>")));
}

/// A header with the shape of Qwen3.6-27B; only the tensors that the facts look at.
fn qwen_27b() -> Gguf {
    let tensor = |name: String, dims: &[u64]| {
        let bytes = dims.iter().product::<u64>() / 256 * 144;
        TensorInfo { name, dims: dims.to_vec(), ggml_type: 12, type_name: "q4_k", bytes, offset: 0 }
    };
    let mut gguf = Writer::new().string("general.architecture", "qwen35").parse().expect("valid");
    let mut set = |key: &str, value: u64| {
        gguf.metadata.insert(format!("qwen35.{key}"), Value::U64(value));
    };
    for (key, value) in [("block_count", 65), ("nextn_predict_layers", 1), ("embedding_length", 5120)] {
        set(key, value);
    }
    for (key, value) in [("context_length", 262_144), ("feed_forward_length", 17_408), ("full_attention_interval", 4)] {
        set(key, value);
    }
    for (key, value) in [("head_count", 24), ("head_count_kv", 4), ("key_length", 256), ("value_length", 256)] {
        set(&format!("attention.{key}"), value);
    }
    for (key, value) in
        [("conv_kernel", 4), ("inner_size", 6144), ("state_size", 128), ("time_step_rank", 48), ("group_count", 16)]
    {
        set(&format!("ssm.{key}"), value);
    }
    gguf.tensors.push(tensor("token_embd.weight".into(), &[5120, 248_320]));
    gguf.tensors.extend((0..65).map(|layer| tensor(format!("blk.{layer}.attn_norm.weight"), &[5120])));
    for (name, dims) in [("eh_proj", &[10_240, 5120][..]), ("enorm", &[5120]), ("hnorm", &[5120])] {
        gguf.tensors.push(tensor(format!("blk.64.nextn.{name}.weight"), dims));
    }
    gguf
}

#[test]
fn state_of_the_27b_model_is_the_size_that_llama_cpp_reports() {
    let facts = ModelFacts::from_gguf(&qwen_27b()).expect("facts");
    assert_eq!((facts.n_layer, facts.n_layer_mtp, facts.n_layer_attention), (64, 1, 16));
    let recurrent = facts.recurrent.expect("hybrid");
    assert_eq!(recurrent.n_layer, 48);
    assert_eq!((recurrent.conv_bytes, recurrent.state_bytes), (Bytes(5_898_240), Bytes(144 << 20)));
    assert_eq!(facts.n_vocab, 248_320);
}

#[test]
fn a_list_of_recurrent_layers_replaces_the_interval() {
    let mut gguf = qwen_27b();
    let list =
        |recurrent: fn(usize) -> bool| Value::Array((0..65).map(|layer| Value::Bool(recurrent(layer))).collect());
    gguf.metadata.insert("qwen35.attention.recurrent_layers".into(), list(|layer| layer < 60));
    assert_eq!(ModelFacts::from_gguf(&gguf).expect("facts").n_layer_attention, 4);
    gguf.metadata.insert("qwen35.attention.recurrent_layers".into(), list(|_| true));
    let message = ModelFacts::from_gguf(&gguf).expect_err("the MTP layer has no state").to_string();
    assert!(message.contains("marks an MTP layer"), "{message}");
}

/// Field report M20: such files load, and abort at the first request.
#[test]
fn a_missing_or_misshapen_mtp_tensor_is_named_at_load() {
    for name in [
        "blk.64.nextn.eh_proj.weight",
        "blk.64.nextn.enorm.weight",
        "blk.64.nextn.hnorm.weight",
        "blk.7.attn_norm.weight",
        "token_embd.weight",
    ] {
        let mut gguf = qwen_27b();
        gguf.tensors.retain(|tensor| tensor.name != name);
        let message = ModelFacts::from_gguf(&gguf).expect_err(name).to_string();
        assert!(message.contains(name) && message.contains("is missing"), "{message}");
    }
    let mut gguf = qwen_27b();
    gguf.tensors
        .iter_mut()
        .filter(|tensor| tensor.name.contains("eh_proj"))
        .for_each(|tensor| tensor.dims = vec![5120, 5120]);
    let message = ModelFacts::from_gguf(&gguf).expect_err("wrong shape").to_string();
    assert!(message.contains("eh_proj") && message.contains("[5120, 5120]"), "{message}");
}

#[test]
fn required_keys_that_are_missing_or_absurd_are_named() {
    let remove: [(&str, Option<Value>); 15] = [
        ("general.architecture", None),
        ("qwen35.block_count", None),
        ("qwen35.block_count", Some(Value::U64(513))),
        ("qwen35.block_count", Some(Value::Str("65".into()))),
        ("qwen35.nextn_predict_layers", Some(Value::U64(65))),
        ("qwen35.context_length", None),
        ("qwen35.embedding_length", Some(Value::I64(-1))),
        ("qwen35.attention.head_count", None),
        ("qwen35.attention.head_count_kv", Some(Value::Array(vec![Value::U64(4); 3]))),
        ("qwen35.full_attention_interval", Some(Value::U64(0))),
        ("qwen35.ssm.group_count", None),
        ("qwen35.ssm.time_step_rank", Some(Value::U64(47))),
        ("qwen35.ssm.inner_size", Some(Value::U64(u64::MAX))),
        ("qwen35.rope.scaling.type", Some(Value::Str("nonsense".into()))),
        ("qwen35.expert_used_count", Some(Value::U64(8))),
    ];
    for (key, value) in remove {
        let mut gguf = qwen_27b();
        match value {
            Some(value) => gguf.metadata.insert(key.into(), value),
            None => gguf.metadata.shift_remove(key),
        };
        let message = ModelFacts::from_gguf(&gguf).expect_err(key).to_string();
        assert!(message.contains(key), "{message:?} does not name {key}");
    }
}

#[test]
fn plain_and_other_hybrid_architectures_have_facts() {
    let facts = ModelFacts::from_gguf(&tiny().parse().expect("valid")).expect("facts");
    assert_eq!((facts.n_layer_attention, facts.n_head, facts.n_head_kv, facts.head_dim_k), (1, 2, 2, 4));
    assert!(facts.recurrent.is_none() && facts.n_layer_mtp == 0);
    let kv_heads: Vec<u8> = [0u32, 2].iter().flat_map(|heads| heads.to_le_bytes()).collect();
    let lfm2 = Writer::new()
        .string("general.architecture", "lfm2")
        .u32("lfm2.block_count", 2)
        .u32("lfm2.embedding_length", 8)
        .u32("lfm2.context_length", 128)
        .u32("lfm2.attention.head_count", 2)
        .array("lfm2.attention.head_count_kv", U32, 2, &kv_heads)
        .u32("lfm2.shortconv.l_cache", 3)
        .strings("tokenizer.ggml.tokens", &["a"])
        .vector("token_embd.weight", 8);
    let facts = ModelFacts::from_gguf(&lfm2.parse().expect("valid")).expect("facts");
    let recurrent = facts.recurrent.expect("short convolutions");
    assert_eq!((facts.n_layer_attention, recurrent.n_layer, recurrent.conv_bytes), (1, 1, Bytes(64)));
}

fn vocab(tokens: &[&str], kinds: &[i32]) -> Writer {
    let kinds_bytes: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_le_bytes()).collect();
    Writer::new().string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", tokens).array(
        "tokenizer.ggml.token_type",
        5,
        kinds.len() as u64,
        &kinds_bytes,
    )
}

fn vocab_facts(writer: &Writer) -> Result<VocabFacts, GgufError> {
    VocabFacts::from_gguf(&writer.parse().expect("valid header"))
}

#[test]
fn generations_end_at_ids_and_at_known_texts() {
    let writer = vocab(&["a", "<|im_end|>", "<|endoftext|>", "b", "<PAD>", "<|fim_prefix|>"], &[1, 1, 3, 1, 3, 4]);
    let facts = vocab_facts(&writer.u32("tokenizer.ggml.eot_token_id", 3).u32("tokenizer.ggml.eos_token_id", 0))
        .expect("facts");
    assert_eq!(facts.eog, [0, 1, 2, 3, 4].map(Token));
    assert_eq!(facts.kinds[1], TokenKind::Control, "a text of the list is a control token whatever its type says");
    assert_eq!(facts.kinds[5], TokenKind::Control);
    assert_eq!((facts.bos, facts.eos, facts.add_bos), (None, Some(Token(0)), false));
}

#[test]
fn families_with_an_ordinary_end_text_keep_it_out_of_the_list() {
    let harmony =
        vocab_facts(&vocab(&["<|return|>", "<|call|>", "<|end|>", "<|channel|>"], &[3, 3, 3, 3])).expect("facts");
    assert_eq!(harmony.eog, [0, 1].map(Token));
    assert_eq!(harmony.kinds[2..], [TokenKind::UserDefined, TokenKind::UserDefined]);
    let gemma = vocab_facts(&vocab(&["<|tool_response>", "</s>", "<eos>"], &[3, 3, 3])).expect("facts");
    assert_eq!(gemma.eog, [0, 2].map(Token));
    assert_eq!(gemma.kinds[1], TokenKind::Normal);
    let phi = vocab_facts(&vocab(&["<|end|>", "</s>"], &[3, 3])).expect("facts");
    assert_eq!(phi.eog, [0, 1].map(Token));
}

#[test]
fn bos_is_added_where_the_file_or_the_family_says_so() {
    let spm = Writer::new()
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>"]);
    let facts = vocab_facts(&spm).expect("facts");
    assert_eq!((facts.bos, facts.eos, facts.add_bos), (Some(Token(1)), Some(Token(2)), true));
    let no = |writer: Writer| writer.pair("tokenizer.ggml.add_bos_token", 7, &[0]);
    assert!(!vocab_facts(&no(spm)).expect("facts").add_bos);
    let llama3 = vocab(&["a"], &[1]).string("tokenizer.ggml.pre", "llama-bpe");
    assert!(vocab_facts(&llama3).expect("facts").add_bos);
    let outside = vocab(&["a"], &[1]).u32("tokenizer.ggml.bos_token_id", 7);
    assert_eq!(vocab_facts(&outside).expect("facts").bos, None);
}

#[test]
fn vocabularies_that_make_llama_cpp_abort_or_fail_are_refused() {
    for (expected, writer) in [
        ("has \"a\" twice, as token 0 and 2", vocab(&["a", "b", "a"], &[1, 1, 1])),
        ("has 1 elements for 2 tokens", vocab(&["a", "b"], &[1])),
        ("holds 0 tokens", vocab(&[], &[])),
        ("`tokenizer.ggml.tokens`: is missing", Writer::new().string("tokenizer.ggml.model", "gpt2")),
    ] {
        let message = vocab_facts(&writer).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
    }
    let facts = vocab_facts(&vocab(&["", "a", ""], &[1, 1, 1])).expect("empty texts get names");
    assert_eq!(facts.tokens, ["[EMPTY_0]", "a", "[EMPTY_2]"]);
}

/// These loaded, and then ended the process, hung it or made every logit NaN at the first request.
#[test]
fn rope_and_norm_values_that_abort_hang_or_poison_are_refused_by_key() {
    let cases = [
        ("rope.dimension_count", Value::U64(0)),
        ("rope.dimension_count", Value::U64(7)),
        ("rope.dimension_count", Value::U64(u64::from(u32::MAX))),
        ("rope.dimension_sections", Value::Array(vec![Value::I64(0); 4])),
        ("rope.dimension_sections", Value::Array(vec![Value::I64(-1); 4])),
        ("rope.freq_base", Value::F64(0.0)),
        ("rope.freq_base", Value::F64(-1.0)),
        ("rope.freq_base", Value::F64(f64::NAN)),
        ("attention.layer_norm_rms_epsilon", Value::F64(f64::NAN)),
        ("attention.layer_norm_rms_epsilon", Value::F64(-1.0)),
    ];
    for (name, value) in cases {
        let mut gguf = demo();
        let key = format!("qwen35.{name}");
        assert!(gguf.metadata.insert(key.clone(), value.clone()).is_some(), "{key} is in the demo model");
        match ModelFacts::from_gguf(&gguf) {
            Err(GgufError::Metadata { key: named, .. }) => assert_eq!(named, key, "{value:?}"),
            other => panic!("{key} = {value:?}: {other:?}"),
        }
    }
}
