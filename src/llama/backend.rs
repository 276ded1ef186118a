//! ggml's backends: start-up, plug-ins found in a folder, devices, versions.
//!
//! The CPU backend is part of the executable. Everything else (`libggml-cuda.so`,
//! `libggml-cuda-sm86.so`, ...) is a plug-in built without a copy of ggml-base: it takes those
//! functions from the executable (docs/adr/0002). A plug-in that cannot be loaded, because the
//! machine has no CUDA for instance, is reported and passed over.

#![expect(unsafe_code, reason = "the dynamic loader and ggml's backend registry")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use super::{ffi, heap, kernels, log};
use crate::units::Bytes;

/// Files that start like plug-ins but are parts of the core.
const CORE: [&str; 2] = ["base", "cpu"];

/// ggml's registry has no lock of its own: held while a plug-in is loaded or the devices are
/// listed. Holds the files that are loaded.
static REGISTRY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A device that can hold a model or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// "CUDA0".
    pub name: String,
    /// "NVIDIA GeForce RTX 3090".
    pub description: String,
    /// "CUDA".
    pub backend: String,
    pub kind: DeviceKind,
    pub memory_free: Bytes,
    pub memory_total: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Cpu,
    Accelerator,
    Gpu,
    IntegratedGpu,
    Other,
}

/// A plug-in file and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub path: PathBuf,
    pub outcome: PluginOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginOutcome {
    /// With the backend's name.
    Loaded(String),
    /// Loaded by an earlier call.
    AlreadyLoaded,
    /// The plug-in says that this machine is not for it, or another file of the same backend fits
    /// better.
    NotForThisMachine,
    /// It should have worked: the loader's reason.
    Failed(String),
}

/// Starts ggml and llama.cpp, which stay until the process ends. Later calls change nothing.
pub fn start() {
    static STARTED: Once = Once::new();
    log::install();
    heap::map_big_blocks();
    // SAFETY: called once, before anything else of llama.cpp.
    STARTED.call_once(|| unsafe { ffi::llama_backend_init() });
}

/// Ends the process without the destructors of C++ statics: they would pull the device away under a
/// thread that still uses it.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: takes no pointer and does not return.
    unsafe { ffi::_exit(code.into()) }
}

/// "0.6.0-dev", the version of llama.cpp.
pub fn version() -> String {
    // SAFETY: returns a string literal.
    unsafe { CStr::from_ptr(ffi::llama_version()) }.to_string_lossy().into_owned()
}

/// All devices of all loaded backends, with the memory that is free now.
pub fn devices() -> Vec<Device> {
    let _registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the registry is ours alone while its lock is held, and indices below its count are
    // valid.
    (0..unsafe { ffi::ggml_backend_dev_count() }).map(|i| device(unsafe { ffi::ggml_backend_dev_get(i) })).collect()
}

/// `raw` is a device of the registry.
fn device(raw: ffi::ggml_backend_dev_t) -> Device {
    // SAFETY: devices of the registry live until the process ends, and the properties are plain
    // numbers and pointers, for which zeros are a value.
    let (props, backend) = unsafe {
        let mut props = std::mem::zeroed();
        ffi::ggml_backend_dev_get_props(raw, &raw mut props);
        (props, ffi::ggml_backend_reg_name(ffi::ggml_backend_dev_backend_reg(raw)))
    };
    Device {
        name: text(props.name),
        description: text(props.description),
        backend: text(backend),
        kind: match props.type_ {
            ffi::GGML_BACKEND_DEVICE_TYPE_CPU => DeviceKind::Cpu,
            ffi::GGML_BACKEND_DEVICE_TYPE_ACCEL => DeviceKind::Accelerator,
            ffi::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceKind::Gpu,
            ffi::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceKind::IntegratedGpu,
            _ => DeviceKind::Other,
        },
        memory_free: Bytes(props.memory_free as u64),
        memory_total: Bytes(props.memory_total as u64),
    }
}

/// A text of a backend; empty for null.
fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: backends hand out NUL-terminated texts that they keep.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

/// Where plug-ins are looked for when the profile names no folder: beside the executable.
pub fn default_plugin_folder() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_owned)
}

/// Loads the plug-ins of `folder`: for each backend the file `libggml-NAME-TAG.so` with the highest
/// score above zero, or `libggml-NAME.so` where no tagged file fits. One log line a file.
pub fn load_plugins(folder: &Path) -> Vec<Plugin> {
    load_plugins_with(folder, "")
}

/// As `load_plugins`, with switches for the kernels of a plug-in that has some: "-name,+name"
/// (`model.kernels`).
pub fn load_plugins_with(folder: &Path, switches: &str) -> Vec<Plugin> {
    start();
    let mut loaded = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let mut plugins = Vec::new();
    for (name, files) in group(&plugin_files(folder)) {
        if CORE.contains(&name.as_str()) {
            tracing::debug!(target: "llama", "passed over {}: part of the executable", files.first().display());
            continue;
        }
        load_best(files, switches, &mut loaded, &mut plugins);
    }
    for plugin in &plugins {
        report(plugin);
    }
    plugins
}

/// The files of one backend.
#[derive(Debug, Default, PartialEq, Eq)]
struct Files {
    tagged: Vec<PathBuf>,
    plain: Option<PathBuf>,
}

impl Files {
    fn first(&self) -> &Path {
        self.tagged.first().or(self.plain.as_ref()).map_or(Path::new(""), PathBuf::as_path)
    }
}

fn plugin_files(folder: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(target: "llama", "plug-in folder {}: {error}", folder.display());
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Backend name -> files. "libggml-cuda-sm86.so" is backend "cuda" with a tag.
fn group(files: &[PathBuf]) -> BTreeMap<String, Files> {
    let mut groups: BTreeMap<String, Files> = BTreeMap::new();
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_prefix("libggml-").and_then(|rest| rest.strip_suffix(".so")) else { continue };
        match stem.split_once('-') {
            Some((backend, _tag)) => groups.entry(backend.to_owned()).or_default().tagged.push(path.clone()),
            None => groups.entry(stem.to_owned()).or_default().plain = Some(path.clone()),
        }
    }
    groups
}

fn load_best(files: Files, switches: &str, loaded: &mut Vec<PathBuf>, plugins: &mut Vec<Plugin>) {
    let mut best: Option<(i32, PathBuf)> = None;
    for path in files.tagged {
        let outcome = match probe(&path) {
            Ok(Probe { score, .. }) if score > best.as_ref().map_or(0, |(score, _)| *score) => {
                let beaten = best.replace((score, path));
                if let Some((_, path)) = beaten {
                    plugins.push(Plugin { path, outcome: PluginOutcome::NotForThisMachine });
                }
                continue;
            }
            Ok(_) => PluginOutcome::NotForThisMachine,
            Err(reason) => PluginOutcome::Failed(reason),
        };
        plugins.push(Plugin { path, outcome });
    }
    let Some(path) = best.map(|(_, path)| path).or(files.plain) else { return };
    let outcome = load_one(&path, switches, loaded);
    plugins.push(Plugin { path, outcome });
}

/// What a plug-in says of itself before it is loaded.
struct Probe {
    /// How well it fits this machine, 0 not at all; 1 where it has no opinion.
    score: i32,
    kernels: Option<kernels::Exports>,
    /// Open for as long as the probe is kept: the functions of `kernels` are in it.
    library: Library,
}

/// A handle of the loader, closed when dropped.
struct Library(*mut std::ffi::c_void);

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen and is closed once.
        unsafe { ffi::dlclose(self.0) };
    }
}

/// Opens the library and asks for its score and its kernels. An error is the loader's reason, or
/// that the plug-in was built for another ggml.
fn probe(path: &Path) -> Result<Probe, String> {
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the path is NUL-terminated. Running the library's initialisers is what loading a
    // plug-in means; the folder is the administrator's choice. `ggml_backend_score` has the type
    // `int (void)` in every version of ggml's plug-in interface, and the handle stays open while
    // the functions found through it are called.
    unsafe {
        let handle = ffi::dlopen(c_path.as_ptr(), ffi::RTLD_NOW);
        if handle.is_null() {
            return Err(last_loader_error());
        }
        let library = Library(handle);
        let kernels = kernels::Exports::find(handle)?;
        let score = ffi::dlsym(handle, c"ggml_backend_score".as_ptr());
        let score = if score.is_null() {
            1
        } else {
            let score: unsafe extern "C" fn() -> std::ffi::c_int = std::mem::transmute(score);
            score()
        };
        Ok(Probe { score, kernels, library })
    }
}

fn last_loader_error() -> String {
    // SAFETY: dlerror returns null or a NUL-terminated text that lives until this thread's next dl
    // call.
    unsafe {
        let text = ffi::dlerror();
        if text.is_null() {
            "unknown loader error".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn load_one(path: &Path, switches: &str, loaded: &mut Vec<PathBuf>) -> PluginOutcome {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if loaded.contains(&real) {
        return PluginOutcome::AlreadyLoaded;
    }
    let probe = match probe(path) {
        Ok(Probe { score, .. }) if score <= 0 => return PluginOutcome::NotForThisMachine,
        Ok(probe) => probe,
        Err(reason) => return PluginOutcome::Failed(reason),
    };
    if let Some(Err(reason)) = probe.kernels.map(|kernels| kernels.configure(switches)) {
        return PluginOutcome::Failed(format!("model.kernels: {reason}"));
    }
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        return PluginOutcome::Failed("the path holds a NUL byte".to_owned());
    };
    let mut registered = std::ptr::null_mut();
    // SAFETY: the path is NUL-terminated and `registered` outlives the call; the registry is ours
    // alone while `loaded` is borrowed from its lock.
    let (code, reasons) = log::reasons(|| unsafe { ffi::plateau_backend_load(c_path.as_ptr(), &raw mut registered) });
    if code != 0 {
        return PluginOutcome::Failed(format!("{} while it started", ffi::guard_reason(code)));
    }
    if registered.is_null() {
        return PluginOutcome::Failed(reasons);
    }
    loaded.push(real);
    if let Some(exports) = probe.kernels {
        tracing::info!(target: "llama", "kernels: {}", kernels::summary(&exports.kernels()));
        exports.keep();
    }
    // A plug-in is never unloaded, so its functions live for ever; the registry holds a handle of
    // its own.
    std::mem::forget(probe.library);
    // SAFETY: a registered backend lives until the process ends; its name is a NUL-terminated text
    // of the plug-in.
    let name = unsafe { CStr::from_ptr(ffi::ggml_backend_reg_name(registered)) };
    PluginOutcome::Loaded(name.to_string_lossy().into_owned())
}

fn report(plugin: &Plugin) {
    let path = plugin.path.display();
    match &plugin.outcome {
        PluginOutcome::Loaded(name) => tracing::info!(target: "llama", "loaded backend {name} from {path}"),
        PluginOutcome::AlreadyLoaded => tracing::debug!(target: "llama", "{path} is loaded already"),
        PluginOutcome::NotForThisMachine => tracing::info!(target: "llama", "passed over {path}: not for this machine"),
        PluginOutcome::Failed(reason) => tracing::warn!(target: "llama", "could not load {path}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_grouped_by_backend_and_tag() {
        let files =
            ["libggml-cuda.so", "libggml-cuda-sm86.so", "libggml-cuda-sm-90.so", "libggml.so", "x.so", "libggml-a.txt"];
        let groups = group(&files.map(PathBuf::from));
        assert_eq!(groups.keys().collect::<Vec<_>>(), vec!["cuda"]);
        assert_eq!(groups["cuda"].plain, Some(PathBuf::from("libggml-cuda.so")));
        assert_eq!(groups["cuda"].tagged.len(), 2);
    }

    #[test]
    fn a_broken_plugin_is_reported_with_the_loaders_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libggml-broken.so"), b"not a library").unwrap();
        std::fs::write(folder.path().join("libggml-base.so"), b"part of the core").unwrap();
        let plugins = load_plugins(folder.path());
        assert_eq!(plugins.len(), 1);
        let PluginOutcome::Failed(reason) = &plugins[0].outcome else { panic!("{:?}", plugins[0].outcome) };
        assert!(reason.contains("libggml-broken.so"), "{reason}");
    }

    #[test]
    fn the_cpu_is_always_a_device() {
        start();
        let devices = devices();
        assert!(devices.iter().any(|device| device.kind == DeviceKind::Cpu && device.memory_total > Bytes(0)));
        assert!(!version().is_empty());
    }
}
