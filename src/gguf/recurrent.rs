//! Which layers carry a recurrent state instead of a KV cache, and how large it is.

use super::metadata::{Keys, error};
use super::reader::GgufError;
use crate::units::Bytes;

/// Sizes of the recurrent state (Gated DeltaNet layers; Mamba, RWKV and short convolutions likewise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentFacts {
    pub n_layer: u32,
    /// Convolution and delta state of one sequence, one plane, all layers (f32).
    pub conv_bytes: Bytes,
    pub state_bytes: Bytes,
}

/// Architectures of Gated DeltaNet and gated attention in turns, with an MTP head behind the trunk.
pub(super) fn is_delta_net(architecture: &str) -> bool {
    matches!(architecture, "qwen35" | "qwen35moe" | "qwen3next" | "qwen4exp")
}

/// What the recurrent part of an architecture depends on.
pub(super) struct Shape<'a> {
    pub(super) architecture: &'a str,
    /// Trunk layers and all layers (with MTP).
    pub(super) n_layer: usize,
    pub(super) n_layer_all: usize,
    pub(super) n_embd: u64,
    /// KV heads of every layer.
    pub(super) heads_kv: &'a [u64],
    pub(super) n_head: u64,
}

/// For every trunk layer: has it a recurrent state, has it a KV cache?
pub(super) fn layers(keys: &Keys<'_>, shape: &Shape<'_>) -> Result<Vec<(bool, bool)>, GgufError> {
    let architecture = shape.architecture;
    let trunk = &shape.heads_kv[..shape.n_layer];
    if is_delta_net(architecture) {
        return Ok(delta_net_layers(keys, shape)?.into_iter().map(|recurrent| (recurrent, !recurrent)).collect());
    }
    Ok(match architecture {
        "mamba" | "mamba2" | "rwkv6" | "rwkv7" | "rwkv6qwen2" | "arwkv7" => vec![(true, false); shape.n_layer],
        "falcon-h1" => vec![(true, true); shape.n_layer],
        // Both kinds without heads: an attention layer is one that has KV heads.
        "nemotron_h" | "nemotron_h_moe" => {
            let key = format!("{architecture}.feed_forward_length");
            let ff = keys.per_layer(&key, shape.n_layer_all, 0..=u64::from(u32::MAX))?.unwrap_or_default();
            let is_ff = |layer: usize| ff.get(layer).is_some_and(|&n_ff| n_ff > 0);
            trunk.iter().enumerate().map(|(layer, &heads)| (heads == 0 && !is_ff(layer), heads > 0)).collect()
        }
        "jamba" | "plamo2" | "granitehybrid" | "lfm2" | "lfm2moe" | "kimi-linear" => {
            trunk.iter().map(|&heads| (heads == 0, heads > 0)).collect()
        }
        _ => trunk.iter().map(|&heads| (false, heads > 0)).collect(),
    })
}

fn delta_net_layers(keys: &Keys<'_>, shape: &Shape<'_>) -> Result<Vec<bool>, GgufError> {
    let listed = format!("{}.attention.recurrent_layers", shape.architecture);
    if let Some(layers) = keys.per_layer(&listed, shape.n_layer_all, 0..=1)? {
        if layers[shape.n_layer..].contains(&1) {
            return Err(error(&listed, "marks an MTP layer as recurrent"));
        }
        return Ok(layers[..shape.n_layer].iter().map(|&layer| layer == 1).collect());
    }
    // llama.cpp divides by it.
    let interval = format!("{}.full_attention_interval", shape.architecture);
    let interval = keys.optional_integer(&interval, 1..=shape.n_layer_all as u64)?.unwrap_or(4);
    Ok((1..=shape.n_layer as u64).map(|layer| layer % interval != 0).collect())
}

/// The state of `n_layer` recurrent layers.
pub(super) fn facts(keys: &Keys<'_>, shape: &Shape<'_>, n_layer: usize) -> Result<Option<RecurrentFacts>, GgufError> {
    if n_layer == 0 {
        return Ok(None);
    }
    let (conv, state) = elements(keys, shape)?;
    let bytes = |elements: u64| Bytes(elements * 4 * n_layer as u64);
    Ok(Some(RecurrentFacts { n_layer: n_layer as u32, conv_bytes: bytes(conv), state_bytes: bytes(state) }))
}

/// Elements of convolution and state in one layer. The limits keep all products below 2^64.
fn elements(keys: &Keys<'_>, shape: &Shape<'_>) -> Result<(u64, u64), GgufError> {
    let key = |name: &str| format!("{}.{name}", shape.architecture);
    let n_embd = shape.n_embd;
    if let Some(head_size) = keys.optional_integer(&key("wkv.head_size"), 1..=65_536)? {
        let shifts = keys.optional_integer(&key("token_shift_count"), 1..=16)?.unwrap_or(2);
        return Ok((shifts * n_embd, n_embd * head_size));
    }
    if let Some(cached) = keys.optional_integer(&key("shortconv.l_cache"), 1..=1024)? {
        return Ok((n_embd * (cached - 1), 0));
    }
    let kernel = key("ssm.conv_kernel");
    if let Some(head_dim) = keys.optional_integer(&key("kda.head_dim"), 1..=65_536)? {
        let kernel = keys.optional_integer(&kernel, 1..=64)?.unwrap_or(4);
        return Ok((3 * (kernel - 1) * shape.n_head * head_dim, head_dim * head_dim * shape.n_head));
    }
    let kernel = keys.integer(&kernel, 1..=64)?;
    let inner = keys.integer(&key("ssm.inner_size"), 1..=1 << 24)?;
    let state = keys.integer(&key("ssm.state_size"), 1..=65_536)?;
    let groups = match is_delta_net(shape.architecture) {
        true => delta_net_groups(keys, shape, inner, state)?,
        false => keys.optional_integer(&key("ssm.group_count"), 0..=65_536)?.unwrap_or(0),
    };
    Ok(((kernel - 1) * (inner + 2 * groups * state), state * inner))
}

/// Key heads. Value heads (`time_step_rank`) of `state_size` each make up `inner_size`, and share the key heads evenly.
fn delta_net_groups(keys: &Keys<'_>, shape: &Shape<'_>, inner: u64, state: u64) -> Result<u64, GgufError> {
    let key = |name: &str| format!("{}.{name}", shape.architecture);
    let groups = keys.integer(&key("ssm.group_count"), 1..=65_536)?;
    let rank_key = key("ssm.time_step_rank");
    let rank = keys.integer(&rank_key, 1..=65_536)?;
    if rank * state != inner {
        return Err(error(&rank_key, format!("is {rank}: {rank} heads of {state} do not make ssm.inner_size {inner}")));
    }
    if rank % groups != 0 {
        return Err(error(&rank_key, format!("is {rank}, not a multiple of ssm.group_count {groups}")));
    }
    Ok(groups)
}
