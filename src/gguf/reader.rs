//! The GGUF container: header, metadata, tensor table.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use indexmap::IndexMap;

use super::ggml_type::GgmlType;

/// Elements of all arrays together: a value takes 32 times the memory of a byte in the file. A vocabulary of a million
/// tokens with scores, types and merges has half as many.
const MAX_ELEMENTS: u64 = 1 << 23;
/// Bytes of all strings together.
const MAX_STRING_BYTES: u64 = 1 << 28;
const MAX_KEY_BYTES: u64 = 65_535;
/// ggml's own limit, its terminating zero not counted.
const MAX_TENSOR_NAME_BYTES: u64 = 63;
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=1 << 20;

/// A metadata value. Arrays keep their element type by their elements. Text that is not UTF-8 (token texts of some
/// vocabularies) has U+FFFD in place of the bad bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    Str(String),
    Array(Vec<Value>),
}

/// One row of the tensor table.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    pub name: String,
    /// Dimensions, innermost first, 1 to 4 of them.
    pub dims: Vec<u64>,
    /// ggml's type number and name, e.g. 8 and "q8_0".
    pub ggml_type: u32,
    pub type_name: &'static str,
    /// Bytes of the data.
    pub bytes: u64,
    /// Offset from the start of the data section (of its own part, where the model is split over files).
    pub offset: u64,
}

/// A checked GGUF header.
#[derive(Clone, Debug)]
pub struct Gguf {
    pub version: u32,
    pub metadata: IndexMap<String, Value>,
    /// Of all parts, where the model is split over files.
    pub tensors: Vec<TensorInfo>,
    pub alignment: u64,
    /// Offset of the data section in the (first) file.
    pub data_offset: u64,
    /// Of all parts together.
    pub file_bytes: u64,
}

/// What is wrong with a file, with the offset at which it was found.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("cannot read {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("not a valid GGUF file: {what} at byte {offset}")]
    Malformed { what: String, offset: u64 },
    #[error("GGUF metadata `{key}`: {what}")]
    Metadata { key: String, what: String },
    #[error("GGUF tensor `{name}`: {what}")]
    Tensor { name: String, what: String },
}

impl Gguf {
    /// Reads and checks the header of one file, without the other parts of a split model.
    pub(super) fn open_part(path: &Path) -> Result<Gguf, GgufError> {
        let failed = |source| GgufError::Io { path: path.display().to_string(), source };
        let checked = |facts: Metadata| match facts.is_file() {
            true => Ok(facts),
            false => Err(failed(std::io::Error::new(ErrorKind::InvalidInput, "not a regular file"))),
        };
        // Opening a named pipe waits for its writer. What was opened counts: the path may have changed in between.
        checked(std::fs::metadata(path).map_err(failed)?)?;
        let file = File::open(path).map_err(failed)?;
        let facts = checked(file.metadata().map_err(failed)?)?;
        Gguf::parse(BufReader::with_capacity(1 << 16, file), facts.len()).map_err(|error| match error {
            GgufError::Io { source, .. } => failed(source),
            other => other,
        })
    }

    /// Reads and checks a header from the start of `reader`, whose data ends after `file_bytes`. Tensor data is not read.
    pub fn parse<R: Read>(reader: R, file_bytes: u64) -> Result<Gguf, GgufError> {
        let mut cursor =
            Cursor { reader, at: 0, end: file_bytes, elements_left: MAX_ELEMENTS, bytes_left: MAX_STRING_BYTES };
        let version = read_version(&mut cursor)?;
        // The smallest tensor row has 24 bytes and a dimension, the smallest pair has 13 bytes.
        let n_tensors = cursor.count("tensor count", 32)?;
        let n_pairs = cursor.count("metadata count", 13)?;
        let metadata = read_metadata(&mut cursor, n_pairs)?;
        let alignment = match metadata.get("general.alignment") {
            Some(Value::U64(alignment)) => *alignment,
            _ => DEFAULT_ALIGNMENT,
        };
        let (tensors, offsets_at) = read_tensors(&mut cursor, n_tensors)?;
        let data_offset = if tensors.is_empty() { cursor.at } else { cursor.at.next_multiple_of(alignment) };
        let gguf = Gguf { version, metadata, tensors, alignment, data_offset, file_bytes };
        gguf.check_data(&offsets_at)?;
        Ok(gguf)
    }

    /// Tensors lie one after the other, each aligned, all inside the file. `offsets_at` are the fields' own offsets.
    fn check_data(&self, offsets_at: &[u64]) -> Result<(), GgufError> {
        let mut expected = 0u64;
        for (tensor, &offset) in self.tensors.iter().zip(offsets_at) {
            let bad = |what: String| GgufError::Malformed { what: format!("tensor `{}` {what}", tensor.name), offset };
            if tensor.offset % self.alignment != 0 {
                return Err(bad(format!("starts at {}, which is not a multiple of {}", tensor.offset, self.alignment)));
            }
            if tensor.offset != expected {
                return Err(bad(format!("starts at {} instead of {expected}", tensor.offset)));
            }
            let end = tensor.offset.checked_add(tensor.bytes);
            if end.and_then(|end| end.checked_add(self.data_offset)).is_none_or(|end| end > self.file_bytes) {
                return Err(bad(format!("ends behind the end of the file ({} bytes)", self.file_bytes)));
            }
            expected = end.and_then(|end| end.checked_next_multiple_of(self.alignment)).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

/// A reader that knows where it is and what is left.
struct Cursor<R> {
    reader: R,
    at: u64,
    end: u64,
    elements_left: u64,
    bytes_left: u64,
}

impl<R: Read> Cursor<R> {
    fn bad<T>(&self, what: impl Into<String>) -> Result<T, GgufError> {
        Err(GgufError::Malformed { what: what.into(), offset: self.at })
    }

    fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), GgufError> {
        if self.left() < buffer.len() as u64 {
            return self.bad("the file ends inside its header");
        }
        match self.reader.read_exact(buffer) {
            Ok(()) => self.at += buffer.len() as u64,
            Err(source) if source.kind() == ErrorKind::UnexpectedEof => {
                return self.bad("the file ends inside its header");
            }
            Err(source) => return Err(GgufError::Io { path: "GGUF data".to_owned(), source }),
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number of things of at least `least` bytes each.
    fn count(&mut self, what: &str, least: u64) -> Result<u64, GgufError> {
        let start = self.at;
        let count = self.u64()?;
        if count > self.left() / least {
            let what = format!("{what} {count} is more than the file can hold");
            return Err(GgufError::Malformed { what, offset: start });
        }
        Ok(count)
    }

    fn bytes(&mut self, what: &str, most: u64) -> Result<Vec<u8>, GgufError> {
        let start = self.at;
        let length = self.u64()?;
        if length > self.left() || length > most.min(self.bytes_left) {
            let what = format!("{what} of {length} bytes is too long");
            return Err(GgufError::Malformed { what, offset: start });
        }
        self.bytes_left -= length;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn name(&mut self, what: &str, most: u64) -> Result<String, GgufError> {
        let start = self.at;
        let name = String::from_utf8(self.bytes(what, most)?);
        match name {
            Ok(name) if !name.is_empty() => Ok(name),
            Ok(_) => Err(GgufError::Malformed { what: format!("{what} is empty"), offset: start }),
            Err(_) => Err(GgufError::Malformed { what: format!("{what} is not UTF-8"), offset: start }),
        }
    }

    fn scalar(&mut self, kind: u32) -> Result<Value, GgufError> {
        Ok(match kind {
            0 => Value::U64(u64::from(u8::from_le_bytes(self.take()?))),
            1 => Value::I64(i64::from(i8::from_le_bytes(self.take()?))),
            2 => Value::U64(u64::from(u16::from_le_bytes(self.take()?))),
            3 => Value::I64(i64::from(i16::from_le_bytes(self.take()?))),
            4 => Value::U64(u64::from(self.u32()?)),
            5 => Value::I64(i64::from(i32::from_le_bytes(self.take()?))),
            6 => Value::F64(f64::from(f32::from_le_bytes(self.take()?))),
            7 => match self.take()? {
                [0u8] => Value::Bool(false),
                [1u8] => Value::Bool(true),
                [other] => return self.bad(format!("{other} is not a bool")),
            },
            8 => {
                let bytes = self.bytes("string", MAX_STRING_BYTES)?;
                Value::Str(
                    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
                )
            }
            10 => Value::U64(self.u64()?),
            11 => Value::I64(i64::from_le_bytes(self.take()?)),
            12 => Value::F64(f64::from_le_bytes(self.take()?)),
            other => return self.bad(format!("value type {other} is unknown")),
        })
    }

    /// llama.cpp reads no arrays of arrays, so there is no recursion to bound: an element of type array is refused.
    fn array(&mut self) -> Result<Value, GgufError> {
        let kind = self.u32()?;
        let Some(least) = scalar_bytes(kind) else {
            return self.bad(format!("array of value type {kind}, which no array may have"));
        };
        let start = self.at;
        let count = self.count("array length", least)?;
        if count > self.elements_left {
            let what = format!("array of {count} elements: more than {MAX_ELEMENTS} in all arrays");
            return Err(GgufError::Malformed { what, offset: start });
        }
        self.elements_left -= count;
        let values: Result<Vec<Value>, GgufError> = (0..count).map(|_| self.scalar(kind)).collect();
        Ok(Value::Array(values?))
    }
}

/// Fewest bytes of a value; `None` for arrays and unknown types.
fn scalar_bytes(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        8 | 10..=12 => Some(8),
        _ => None,
    }
}

fn read_version<R: Read>(cursor: &mut Cursor<R>) -> Result<u32, GgufError> {
    let malformed = |what: String, offset| Err(GgufError::Malformed { what, offset });
    if cursor.take::<4>()? != *b"GGUF" {
        return malformed("the magic GGUF is missing".to_owned(), 0);
    }
    match cursor.u32()? {
        version @ 2..=3 => Ok(version),
        version if version & 0xFFFF == 0 => malformed("the file is big-endian".to_owned(), 4),
        version => malformed(format!("version {version} is not 2 or 3"), 4),
    }
}

fn read_metadata<R: Read>(cursor: &mut Cursor<R>, n_pairs: u64) -> Result<IndexMap<String, Value>, GgufError> {
    let mut metadata = IndexMap::new();
    for _ in 0..n_pairs {
        let start = cursor.at;
        let key = cursor.name("metadata key", MAX_KEY_BYTES)?;
        let kind = cursor.u32()?;
        let value = if kind == 9 { cursor.array()? } else { cursor.scalar(kind)? };
        if key == "general.alignment" && !is_alignment(kind, &value) {
            let what = format!(
                "general.alignment is not a u32 power of two from {} to {}",
                ALIGNMENTS.start(),
                ALIGNMENTS.end()
            );
            return Err(GgufError::Malformed { what, offset: start });
        }
        if metadata.contains_key(&key) {
            return Err(GgufError::Malformed { what: format!("metadata key `{key}` is there twice"), offset: start });
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn is_alignment(kind: u32, value: &Value) -> bool {
    matches!(value, Value::U64(alignment) if kind == 4 && ALIGNMENTS.contains(alignment) && alignment.is_power_of_two())
}

/// The table, and where the offset field of each row stands.
fn read_tensors<R: Read>(cursor: &mut Cursor<R>, n_tensors: u64) -> Result<(Vec<TensorInfo>, Vec<u64>), GgufError> {
    let (mut tensors, mut offsets_at, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    for _ in 0..n_tensors {
        let start = cursor.at;
        let name = cursor.name("tensor name", MAX_TENSOR_NAME_BYTES)?;
        if !names.insert(name.clone()) {
            return Err(GgufError::Malformed { what: format!("tensor `{name}` is there twice"), offset: start });
        }
        let dims = read_dims(cursor, &name)?;
        let type_at = cursor.at;
        let bad_type = |what: String| GgufError::Malformed { what: format!("tensor `{name}` {what}"), offset: type_at };
        let id = cursor.u32()?;
        let ggml_type = GgmlType::from_id(id).ok_or_else(|| bad_type(format!("has the unknown type {id}")))?;
        let bytes = tensor_bytes(&dims, ggml_type).map_err(bad_type)?;
        offsets_at.push(cursor.at);
        let offset = cursor.u64()?;
        tensors.push(TensorInfo { name, dims, ggml_type: id, type_name: ggml_type.name, bytes, offset });
    }
    Ok((tensors, offsets_at))
}

fn read_dims<R: Read>(cursor: &mut Cursor<R>, name: &str) -> Result<Vec<u64>, GgufError> {
    let start = cursor.at;
    let bad = |what: String| GgufError::Malformed { what: format!("tensor `{name}` {what}"), offset: start };
    let n_dims = cursor.u32()?;
    if !(1..=4).contains(&n_dims) {
        return Err(bad(format!("has {n_dims} dimensions, not 1 to 4")));
    }
    let dims = (0..n_dims).map(|_| cursor.u64()).collect::<Result<Vec<u64>, GgufError>>()?;
    let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
    match elements {
        Some(0) => Err(bad("has a dimension of 0".to_owned())),
        // ggml counts in i64.
        Some(elements) if i64::try_from(elements).is_ok() => Ok(dims),
        _ => Err(bad(format!("has more elements than a 64-bit number can count: {dims:?}"))),
    }
}

fn tensor_bytes(dims: &[u64], ggml_type: GgmlType) -> Result<u64, String> {
    let GgmlType { name, block, bytes, .. } = ggml_type;
    let row = dims.first().copied().unwrap_or(0);
    if row % block != 0 {
        return Err(format!("has rows of {row} elements, which {name} cannot hold in blocks of {block}"));
    }
    let blocks = dims.iter().product::<u64>() / block;
    blocks.checked_mul(bytes).ok_or_else(|| format!("has more bytes than a 64-bit number can count: {dims:?}"))
}
