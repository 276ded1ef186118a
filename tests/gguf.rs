//! GGUF headers: what a good file says, and how every kind of bad one is refused before llama.cpp sees it.

mod gguf_writer;

use std::path::{Path, PathBuf};

use gguf_writer::{ARRAY, STRING, U32, Writer, parse, tiny};
use plateau::gguf::{Gguf, ModelFacts, Value, VocabFacts};
use proptest::prelude::*;

#[test]
fn well_formed_file_is_read() {
    let gguf = tiny().parse().expect("valid");
    assert_eq!((gguf.version, gguf.alignment, gguf.tensors.len()), (3, 32, 2));
    assert_eq!(gguf.metadata["llama.block_count"], Value::U64(1));
    let norm = gguf.tensor("blk.0.attn_norm.weight").expect("is there");
    assert_eq!((norm.dims.as_slice(), norm.type_name, norm.bytes, norm.offset), (&[8u64][..], "f32", 32, 32));
    assert_eq!(gguf.data_offset % 32, 0);
    assert_eq!(gguf.data_offset + 64, gguf.file_bytes);
}

#[test]
fn every_scalar_type_is_read() {
    let gguf = Writer::new()
        .pair("u8", 0, &[200])
        .pair("i8", 1, &[0xFF])
        .pair("u16", 2, &[1, 2])
        .pair("i16", 3, &(-2i16).to_le_bytes())
        .pair("i32", 5, &(-3i32).to_le_bytes())
        .pair("f32", 6, &1.5f32.to_le_bytes())
        .pair("bool", 7, &[1])
        .pair("u64", 10, &u64::MAX.to_le_bytes())
        .pair("i64", 11, &(-4i64).to_le_bytes())
        .pair("f64", 12, &0.1f64.to_le_bytes())
        .array("empty", U32, 0, &[])
        .array("bad text", STRING, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 0xFF])
        .parse()
        .expect("valid");
    let values: Vec<&Value> = gguf.metadata.values().collect();
    let expected = [
        Value::U64(200),
        Value::I64(-1),
        Value::U64(513),
        Value::I64(-2),
        Value::I64(-3),
        Value::F64(1.5),
        Value::Bool(true),
        Value::U64(u64::MAX),
        Value::I64(-4),
        Value::F64(0.1),
        Value::Array(Vec::new()),
        Value::Array(vec![Value::Str("\u{FFFD}".to_owned())]),
    ];
    assert_eq!(values, expected.iter().collect::<Vec<&Value>>());
}

/// Field report Z3. Each row: a mutation of a good file, and what the message must say.
#[test]
fn crafted_files_are_refused_with_the_offset() {
    let huge = |n: u64| n.to_le_bytes();
    let cases: Vec<(&str, Writer)> = vec![
        ("version 1 is not 2 or 3 at byte 4", Writer { version: 1, ..tiny() }),
        ("version 4 is not 2 or 3", Writer { version: 4, ..tiny() }),
        ("big-endian", Writer { version: 3 << 24, ..tiny() }),
        ("metadata count 1152921504606846976 is more than", Writer { n_pairs: Some(1 << 60), ..tiny() }),
        ("tensor count 18446744073709551615 is more than", Writer { n_tensors: Some(u64::MAX), ..tiny() }),
        ("string of 4611686018427387904 bytes is too long", tiny().pair("x", STRING, &huge(1 << 62))),
        ("string of 18446744073709551615 bytes is too long", tiny().pair("x", STRING, &huge(u64::MAX))),
        ("array length 4611686018427387904 is more than", tiny().array("x", 0, 1 << 62, &[])),
        ("array of value type 9, which no array may have", tiny().array("x", ARRAY, 1, &[])),
        ("array of value type 13", tiny().array("x", 13, 1, &[])),
        ("value type 99 is unknown", tiny().pair("x", 99, &[])),
        ("2 is not a bool", tiny().pair("x", 7, &[2])),
        ("metadata key is empty", tiny().u32("", 1)),
        (
            "metadata key is not UTF-8",
            Writer { pairs: vec![[&huge(1)[..], &[0xFF], &U32.to_le_bytes(), &[0; 4]].concat()], ..tiny() },
        ),
        ("metadata key `a` is there twice", tiny().u32("a", 1).u32("a", 2)),
        ("general.alignment is not a u32 power of two", tiny().u32("general.alignment", 0)),
        ("general.alignment is not a u32 power of two", tiny().u32("general.alignment", 48)),
        ("general.alignment is not a u32 power of two", tiny().u32("general.alignment", 1 << 31)),
        ("general.alignment is not a u32 power of two", tiny().pair("general.alignment", 10, &huge(32))),
        ("general.alignment is not a u32 power of two", tiny().string("general.alignment", "32")),
        ("tensor `t` has 0 dimensions", tiny().tensor("t", &[], 0, 64)),
        ("tensor `t` has 5 dimensions", tiny().tensor("t", &[1, 1, 1, 1, 1], 0, 64)),
        ("tensor `t` has a dimension of 0", tiny().tensor("t", &[8, 0], 0, 64)),
        ("more elements than", tiny().tensor("t", &[1 << 32, 1 << 32], 0, 64)),
        ("more elements than", tiny().tensor("t", &[1 << 63], 24, 64)),
        ("more bytes than", tiny().tensor("t", &[1 << 62], 0, 64)),
        ("has the unknown type 255", tiny().tensor("t", &[8], 255, 64)),
        ("has the unknown type 4", tiny().tensor("t", &[8], 4, 64)),
        ("has rows of 33 elements, which q8_0 cannot hold in blocks of 32", tiny().tensor("t", &[33], 8, 64)),
        ("starts at 65, which is not a multiple of 32", tiny().tensor("t", &[8], 0, 65)),
        ("starts at 32 instead of 64", tiny().tensor("t", &[8], 0, 32)),
        ("starts at 9223372036854775808 instead of 64", tiny().tensor("t", &[8], 0, 1 << 63)),
        ("ends behind the end of the file", tiny().tensor("t", &[8], 0, 64)),
        ("tensor `token_embd.weight` is there twice", tiny().vector("token_embd.weight", 8)),
        ("tensor name is empty", tiny().vector("", 8)),
        ("tensor name of 64 bytes is too long", tiny().vector(&"n".repeat(64), 8)),
    ];
    for (expected, writer) in cases {
        let message = writer.parse().expect_err(expected).to_string();
        assert!(message.contains(expected) && message.contains("at byte "), "{message:?} does not say {expected:?}");
    }
}

#[test]
fn an_array_that_would_take_all_memory_is_refused_before_it_is_read() {
    let n = (1u64 << 23) + 1;
    let writer = Writer::new().array("x", 0, n, &vec![0; n as usize]);
    let message = writer.parse().expect_err("too many elements").to_string();
    assert!(message.contains("in all arrays"), "{message}");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = tiny().bytes();
    for end in 0..bytes.len() {
        assert!(parse(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(parse(b"GGML").is_err());
}

#[test]
fn a_path_that_is_no_file_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in [folder.path().join("absent.gguf"), folder.path().to_owned()] {
        let message = Gguf::open(&path).expect_err("no file").to_string();
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
}

proptest! {
    /// Whatever the bytes are, the answer is an error or a table of tensors that lie inside the file.
    #[test]
    fn damaged_headers_never_panic(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = tiny().bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(gguf) = parse(&bytes) {
            for tensor in &gguf.tensors {
                prop_assert!(gguf.data_offset + tensor.offset + tensor.bytes <= bytes.len() as u64);
            }
            let _ = (ModelFacts::from_gguf(&gguf), VocabFacts::from_gguf(&gguf));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [b"GGUF\x03\0\0\0".as_slice(), &bytes].concat();
        if let Ok(gguf) = parse(&bytes) {
            prop_assert!(gguf.tensors.is_empty());
        }
    }
}

fn part(no: u16, tensor: &str) -> Writer {
    let writer = if no == 0 { tiny().pair("split.count", 2, &[3, 0]) } else { Writer::new() };
    let writer = writer.pair("split.no", 2, &no.to_le_bytes());
    writer.pair("split.tensors.count", 5, &4i32.to_le_bytes()).vector(tensor, 8)
}

fn write_parts(folder: &Path, parts: &[Writer]) -> PathBuf {
    for (no, part) in parts.iter().enumerate() {
        std::fs::write(folder.join(format!("m-{:05}-of-00003.gguf", no + 1)), part.bytes()).expect("written");
    }
    folder.join("m-00001-of-00003.gguf")
}

#[test]
fn parts_of_a_split_model_are_read_together() {
    let folder = tempfile::tempdir().expect("a folder");
    // The first part of real models often has metadata alone; here it has two tensors of its own.
    let first = Writer { tensors: part(0, "unused").tensors[..2].to_vec(), ..part(0, "unused") };
    let path = write_parts(folder.path(), &[first.clone(), part(1, "x"), part(2, "y")]);
    let gguf = Gguf::open(&path).expect("three parts");
    let names: Vec<&str> = gguf.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["token_embd.weight", "blk.0.attn_norm.weight", "x", "y"]);
    ModelFacts::from_gguf(&gguf).expect("facts of the whole model");

    for (expected, parts) in [
        ("`split.no`", [first.clone(), part(2, "x"), part(2, "y")]),
        ("`x`: is in", [first.clone(), part(1, "x"), part(2, "x")]),
        ("`split.tensors.count`: says 4, but the 3 parts have 5", [part(0, "z"), part(1, "x"), part(2, "y")]),
    ] {
        let message = Gguf::open(&write_parts(folder.path(), &parts)).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
    }
    std::fs::remove_file(folder.path().join("m-00003-of-00003.gguf")).expect("removed");
    let missing =
        Gguf::open(&write_parts(folder.path(), &[first, part(1, "x")])).expect_err("a part is missing").to_string();
    assert!(missing.contains("m-00003-of-00003.gguf"), "{missing}");
}

#[test]
fn a_part_that_is_not_the_first_or_has_another_name_says_what_to_give() {
    let folder = tempfile::tempdir().expect("a folder");
    let second = part(1, "x").pair("split.count", 2, &[3, 0]);
    std::fs::write(folder.path().join("m.gguf"), second.bytes()).expect("written");
    let message = Gguf::open(&folder.path().join("m.gguf")).expect_err("not the first").to_string();
    assert!(message.contains("-00001-of-00003.gguf"), "{message}");
    std::fs::write(folder.path().join("m.gguf"), part(0, "x").bytes()).expect("written");
    let message = Gguf::open(&folder.path().join("m.gguf")).expect_err("renamed").to_string();
    assert!(message.contains("must end in -00001-of-00003.gguf"), "{message}");
}
