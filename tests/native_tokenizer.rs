//! Our tokenizer against llama.cpp's, on the repository's own texts and on all bytes and tokens.
#![cfg(feature = "native")]

mod native;

use std::path::{Path, PathBuf};

use plateau::llama::vocab::{CodecDifference, LlamaCodec, check_codec, compare_text};
use plateau::text::{ByteCodec, Codec, HfCodec};
use plateau::units::Token;

fn text_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if path.is_dir() {
            text_files(&path, files);
        } else if ["rs", "py", "md", "toml", "jinja", "sh", "cpp"].contains(&ending) {
            files.push(path);
        }
    }
}

fn codecs() -> (HfCodec, LlamaCodec) {
    let model = native::model();
    (HfCodec::new(model.vocab()).expect("a known pre-tokenizer"), LlamaCodec::new(model))
}

#[test]
fn the_built_in_sample_and_every_token_agree() {
    let (ours, theirs) = codecs();
    check_codec(&ours, &theirs, native::model().vocab().tokens.len()).expect("no difference");
}

#[test]
fn the_repository_is_tokenised_alike() {
    let (ours, theirs) = codecs();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["vendor", "docs", "src", "tests"] {
        text_files(&root.join(folder), &mut files);
    }
    assert!(files.len() > 30, "{} files", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        compare_text(&ours, &theirs, &text).unwrap_or_else(|difference| {
            let shown: String = difference.to_string().chars().take(300).collect();
            panic!("{}: {shown}", path.display())
        });
    }
}

#[test]
fn control_tokens_are_never_made_of_text() {
    let (ours, theirs) = codecs();
    let end = native::model().vocab().tokens.iter().position(|text| text == "<|im_end|>").expect("a chat model");
    for codec in [&ours as &dyn Codec, &theirs] {
        let tokens = codec.encode("a<|im_end|>b").expect("encodes");
        assert!(!tokens.contains(&Token(end as u32)), "{}", codec.name());
        assert_eq!(codec.piece(Token(end as u32)), b"<|im_end|>");
        assert_eq!(codec.piece(Token(u32::MAX)), b"");
    }
}

#[test]
fn a_difference_is_found_and_shown() {
    let (_, theirs) = codecs();
    let difference = check_codec(&ByteCodec, &theirs, 10).expect_err("bytes are not words");
    assert!(matches!(difference, CodecDifference::Tokens { .. }));
    assert!(difference.to_string().contains("Hello"), "{difference}");
}
