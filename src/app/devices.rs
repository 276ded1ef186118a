//! The devices of the model runtime: plug-ins are loaded first, so that a GPU shows up. Without
//! native code there are none.

use crate::config::ModelConfig;
use crate::telemetry::KernelState;
use crate::units::Bytes;

/// A device that can hold a model or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub name: String,
    pub description: String,
    pub backend: String,
    /// A GPU with memory of its own.
    pub is_gpu: bool,
    pub free: Bytes,
    pub total: Bytes,
}

/// Starts the backends and lists their devices.
#[cfg(feature = "native")]
pub fn start(config: &ModelConfig) -> Vec<Device> {
    use crate::llama::{DeviceKind, backend, start_backends};
    start_backends(config);
    let device = |d: crate::llama::Device| Device {
        is_gpu: d.kind == DeviceKind::Gpu,
        name: d.name,
        description: d.description,
        backend: d.backend,
        free: d.memory_free,
        total: d.memory_total,
    };
    backend::devices().into_iter().map(device).collect()
}

/// Without native code there is nothing to start.
#[cfg(not(feature = "native"))]
pub fn start(config: &ModelConfig) -> Vec<Device> {
    if let Some(folder) = &config.plugin_dir {
        tracing::warn!(folder = %folder.display(), "plug-ins are not loaded: this build has no model runtime");
    }
    Vec::new()
}

/// The kernels of the plug-in that is loaded, and their counts now.
#[cfg(feature = "native")]
pub fn kernels() -> Vec<KernelState> {
    let state = |k: crate::llama::kernels::Kernel| KernelState {
        name: k.name,
        on: k.on,
        calls: k.calls,
        fallbacks: k.fallbacks,
        purpose: k.purpose,
    };
    crate::llama::kernels::kernels().into_iter().map(state).collect()
}

/// Without native code there are no plug-ins.
#[cfg(not(feature = "native"))]
pub fn kernels() -> Vec<KernelState> {
    Vec::new()
}
