//! What plateau needs to know of a projector ("mmproj") file before mtmd loads it, and the shapes without which its graph
//! would end the process at the first image.
//!
//! One kind is known: `qwen3vl_merger` without deepstack, as the models have it that are served with images.

use super::metadata::{Keys, error};
use super::reader::{Gguf, GgufError, Value};
use crate::units::Bytes;

/// The kind that is known.
const KIND: &str = "qwen3vl_merger";
/// Its graph merges two by two patches into a token, whatever the file says.
const MERGE: u64 = 2;
/// Tokens of the smallest and the largest image, where nothing else is asked for: mtmd's bounds for this kind.
const MIN_TOKENS: u32 = 8;
const MAX_TOKENS: u32 = 4096;
const MAX_WIDTH: u64 = 1 << 20;

/// Facts of an image encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectorFacts {
    pub name: String,
    /// Pixels of a token's side.
    pub token_px: u32,
    pub min_tokens: u32,
    pub max_tokens: u32,
    /// Width of what comes out: that of the model's embeddings.
    pub n_embd: u32,
    pub n_layer: u32,
    pub n_head: u32,
    /// Width inside, and of the feed-forward part.
    pub width: u32,
    pub n_ff: u32,
    pub tensor_bytes: Bytes,
}

impl ProjectorFacts {
    /// Derives the facts; what is missing, unknown or of another shape is named.
    pub fn from_gguf(gguf: &Gguf) -> Result<ProjectorFacts, GgufError> {
        let keys = Keys::new(gguf);
        check_kind(&keys)?;
        let key = |name: &str| format!("clip.vision.{name}");
        let patch_px = keys.integer(&key("patch_size"), 1..=256)?;
        let merge = key("spatial_merge_size");
        if keys.optional_integer(&merge, 1..=64)?.unwrap_or(MERGE) != MERGE {
            return Err(error(&merge, format!("is not {MERGE}")));
        }
        let shape = Shape {
            patch_px,
            width: keys.integer(&key("embedding_length"), 4..=MAX_WIDTH)?,
            n_ff: keys.integer(&key("feed_forward_length"), 1..=MAX_WIDTH)?,
            n_layer: keys.integer(&key("block_count"), 1..=512)?,
            n_embd: keys.integer(&key("projection_dim"), 1..=MAX_WIDTH)?,
        };
        let heads = key("attention.head_count");
        let n_head = keys.integer(&heads, 1..=shape.width)?;
        if !shape.width.is_multiple_of(n_head) || !(shape.width / n_head).is_multiple_of(4) {
            return Err(error(&heads, format!("is {n_head}: heads of {} do not divide into fours", shape.width)));
        }
        keys.integer(&key("image_size"), 1..=1 << 16)?;
        let eps = key("attention.layer_norm_epsilon");
        keys.check_number(&eps, 0.0..=1.0)?;
        if keys.optional(&eps).is_none() {
            return Err(error(&eps, "is missing"));
        }
        for name in ["image_mean", "image_std"] {
            check_colours(&keys, &key(name))?;
        }
        shape.check(gguf)?;
        Ok(ProjectorFacts {
            name: keys.optional_text("general.name")?.unwrap_or_default().to_owned(),
            token_px: (patch_px * MERGE) as u32,
            min_tokens: MIN_TOKENS,
            max_tokens: MAX_TOKENS,
            n_embd: shape.n_embd as u32,
            n_layer: shape.n_layer as u32,
            n_head: n_head as u32,
            width: shape.width as u32,
            n_ff: shape.n_ff as u32,
            tensor_bytes: Bytes(gguf.tensors.iter().map(|tensor| tensor.bytes).fold(0, u64::saturating_add)),
        })
    }

    /// Do its rows have the width of the model's.
    pub fn check_width(&self, n_embd: u32) -> Result<(), GgufError> {
        if self.n_embd == n_embd {
            return Ok(());
        }
        let what = format!("is {}, and the model's embeddings have {n_embd}: it belongs to another model", self.n_embd);
        Err(error("clip.vision.projection_dim", what))
    }
}

fn check_kind(keys: &Keys<'_>) -> Result<(), GgufError> {
    let architecture = keys.text("general.architecture")?;
    if architecture != "clip" {
        return Err(error("general.architecture", format!("is {architecture:?}, not \"clip\": this is no projector")));
    }
    if keys.optional_bool("clip.has_vision_encoder")? != Some(true) {
        return Err(error("clip.has_vision_encoder", "is not true: the file encodes no images"));
    }
    if keys.optional_bool("clip.has_audio_encoder")? == Some(true) {
        return Err(error("clip.has_audio_encoder", "is true: projectors with sound are not served"));
    }
    let own = "clip.vision.projector_type";
    let key = if keys.optional(own).is_some() { own } else { "clip.projector_type" };
    match keys.text(key)? {
        KIND => Ok(()),
        other => Err(error(key, format!("is {other:?}; {KIND:?} is the kind that is served"))),
    }
}

/// One number for each of red, green and blue.
fn check_colours(keys: &Keys<'_>, key: &str) -> Result<(), GgufError> {
    let number = |value: &Value| matches!(value, Value::F64(x) if x.is_finite() && (0.0..=1.0).contains(x));
    match keys.optional_array(key)? {
        Some(values) if values.len() == 3 && values.iter().all(number) => Ok(()),
        _ => Err(error(key, "is not three numbers within 0..=1")),
    }
}

struct Shape {
    patch_px: u64,
    width: u64,
    n_ff: u64,
    n_layer: u64,
    n_embd: u64,
}

impl Shape {
    /// Every tensor that the graph takes, with the shape that it has there.
    fn check(&self, gguf: &Gguf) -> Result<(), GgufError> {
        let Shape { patch_px, width, n_ff, n_layer, n_embd } = *self;
        let wrong = |name: &str, what: String| Err(GgufError::Tensor { name: name.to_owned(), what });
        let check = |name: &str, dims: &[u64]| match gguf.tensor(name) {
            None => wrong(name, "is missing".to_owned()),
            // Dimensions of 1 at the end are left out of files.
            Some(tensor) if trimmed(&tensor.dims) != trimmed(dims) => {
                wrong(name, format!("has the shape {:?}, not {dims:?}", tensor.dims))
            }
            Some(_) => Ok(()),
        };
        let linear = |name: &str, from: u64, to: u64| {
            check(&format!("{name}.weight"), &[from, to])?;
            check(&format!("{name}.bias"), &[to])
        };
        let norm = |name: &str| {
            check(&format!("{name}.weight"), &[width])?;
            check(&format!("{name}.bias"), &[width])
        };
        for name in ["v.patch_embd.weight", "v.patch_embd.weight.1"] {
            check(name, &[patch_px, patch_px, 3, width])?;
        }
        check("v.patch_embd.bias", &[width])?;
        for layer in 0..n_layer {
            let of = |part: &str| format!("v.blk.{layer}.{part}");
            norm(&of("ln1"))?;
            norm(&of("ln2"))?;
            linear(&of("attn_qkv"), width, 3 * width)?;
            linear(&of("attn_out"), width, width)?;
            linear(&of("ffn_up"), width, n_ff)?;
            linear(&of("ffn_down"), n_ff, width)?;
        }
        norm("v.post_ln")?;
        let merged = MERGE * MERGE * width;
        let inner = gguf.tensor("mm.0.weight").and_then(|tensor| tensor.dims.get(1).copied()).unwrap_or(merged);
        linear("mm.0", merged, inner)?;
        linear("mm.2", inner, n_embd)?;
        self.check_positions(gguf)?;
        match gguf.tensors.iter().find(|tensor| tensor.name.contains("deepstack") || tensor.name.contains("class_embd"))
        {
            Some(tensor) => wrong(&tensor.name, "is of a kind of encoder that is not served".to_owned()),
            None => Ok(()),
        }
    }

    /// A learned position for each place of a square; they are interpolated as f32.
    fn check_positions(&self, gguf: &Gguf) -> Result<(), GgufError> {
        let name = "v.position_embd.weight";
        let wrong = |what: String| Err(GgufError::Tensor { name: name.to_owned(), what });
        let Some(tensor) = gguf.tensor(name) else { return wrong("is missing".to_owned()) };
        let n_places = tensor.dims.get(1).copied().unwrap_or(1);
        match (tensor.dims.first(), tensor.type_name) {
            (Some(width), "f32") if *width == self.width && n_places.isqrt().pow(2) == n_places => Ok(()),
            _ => wrong(format!("has the shape {:?} of {}, not a square of f32", tensor.dims, tensor.type_name)),
        }
    }
}

fn trimmed(dims: &[u64]) -> &[u64] {
    let n = dims.iter().rposition(|dim| *dim != 1).map_or(1, |last| last + 1);
    &dims[..n.min(dims.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::embedded;

    fn demo() -> Gguf {
        let file = embedded::write_projector().unwrap();
        Gguf::open(file.path()).unwrap()
    }

    #[test]
    fn facts_of_the_demo_projector() {
        let facts = ProjectorFacts::from_gguf(&demo()).unwrap();
        assert_eq!((facts.token_px, facts.min_tokens, facts.max_tokens, facts.n_embd), (32, 8, 4096, 256));
        assert_eq!((facts.n_layer, facts.n_head, facts.width, facts.n_ff), (4, 3, 192, 768), "{facts:?}");
        assert!(facts.tensor_bytes > Bytes(5 << 20));
        assert!(facts.check_width(256).is_ok());
        assert!(facts.check_width(5120).unwrap_err().to_string().contains("another model"));
    }

    #[test]
    fn a_projector_of_another_kind_is_refused_by_name() {
        let refused = |key: &str, value: Value| {
            let mut gguf = demo();
            gguf.metadata.insert(key.to_owned(), value);
            let error = ProjectorFacts::from_gguf(&gguf).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        };
        refused("general.architecture", Value::Str("qwen35".into()));
        refused("clip.projector_type", Value::Str("mlp".into()));
        refused("clip.vision.projector_type", Value::Str("mlp".into()));
        refused("clip.has_vision_encoder", Value::Bool(false));
        refused("clip.has_audio_encoder", Value::Bool(true));
        refused("clip.vision.patch_size", Value::U64(0));
        refused("clip.vision.spatial_merge_size", Value::U64(3));
        refused("clip.vision.attention.head_count", Value::U64(5));
        refused("clip.vision.attention.layer_norm_epsilon", Value::F64(f64::NAN));
        refused("clip.vision.image_mean", Value::Array(vec![Value::F64(0.5); 2]));
        refused("clip.vision.image_std", Value::Array(vec![Value::F64(f64::NAN); 3]));
    }

    #[test]
    fn every_tensor_of_the_graph_must_be_there_and_fit() {
        let n = demo().tensors.len();
        for i in 0..n {
            let mut gguf = demo();
            let gone = gguf.tensors.remove(i);
            let error = ProjectorFacts::from_gguf(&gguf).unwrap_err().to_string();
            assert!(error.contains(&gone.name), "{}: {error}", gone.name);
            let mut gguf = demo();
            gguf.tensors[i].dims[0] += 1;
            assert!(ProjectorFacts::from_gguf(&gguf).is_err(), "{}", gone.name);
        }
        let mut deep = demo();
        deep.tensors[0].name = "v.deepstack.5.norm.weight".to_owned();
        assert!(ProjectorFacts::from_gguf(&deep).is_err());
    }
}
