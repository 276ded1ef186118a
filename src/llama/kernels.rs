//! The switches and counters of the kernels that a plug-in adds to ggml: which are on, how often
//! each ran.
//!
//! A plug-in of ours exports five C functions beside ggml's two (vendor/kernels/src/registry.h).
//! Deliberately absent: what a kernel does; the plug-in decides that per tensor.

#![expect(unsafe_code, reason = "functions of a loaded library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::ffi;

/// The crate whose ggml this executable carries, as a plug-in names it.
pub const CORE: &str = concat!("llama-cpp-sys-2 ", env!("PLATEAU_CORE_VERSION"));

/// The plug-in that is loaded. One at most: a second CUDA backend in a process would be a second
/// owner of the GPUs.
static LOADED: OnceLock<Exports> = OnceLock::new();

/// A kernel of the loaded plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    pub on: bool,
    /// Launches and captures; a captured graph that is replayed counts once.
    pub calls: u64,
    /// Work it is made for that went to upstream's kernels while it was on.
    pub fallbacks: u64,
    /// What it does, in a few words.
    pub purpose: String,
}

/// The functions of a plug-in that has kernels.
#[derive(Clone, Copy)]
pub struct Exports {
    configure: Configure,
    report: Report,
    host_memory: HostMemory,
}

type Configure = unsafe extern "C" fn(*const c_char, *mut c_char, c_int) -> c_int;
type Report = unsafe extern "C" fn(*mut c_char, c_int) -> c_int;

/// The GPU's driver takes memory of the host as its own, to copy to and from it without a detour,
/// and lets go of it.
#[derive(Clone, Copy)]
pub(super) struct HostMemory {
    /// Beginning and bytes; 0, or nothing is changed.
    pub register: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
    pub unregister: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl Exports {
    /// Looks the functions up. `Ok(None)`: a plug-in without kernels of its own. An error names
    /// both versions where the plug-in was built for another ggml than this executable's: its
    /// structs may be laid out otherwise.
    ///
    /// # Safety
    /// `library` is a handle of `dlopen`. The functions may be called as long as the library stays
    /// loaded.
    pub unsafe fn find(library: *mut c_void) -> Result<Option<Exports>, String> {
        // SAFETY: the handle is open; the names are NUL-terminated. The types are those of
        // registry.h, which change only together with this file.
        unsafe {
            let core = ffi::dlsym(library, c"plateau_kernels_core".as_ptr());
            if core.is_null() {
                return Ok(None);
            }
            let core: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(core);
            let made_for = CStr::from_ptr(core()).to_string_lossy();
            if made_for != CORE {
                return Err(format!("it was built for {made_for}, and this executable carries {CORE}: build it again"));
            }
            let configure = ffi::dlsym(library, c"plateau_kernels_configure".as_ptr());
            let report = ffi::dlsym(library, c"plateau_kernels_report".as_ptr());
            let register = ffi::dlsym(library, c"plateau_host_register".as_ptr());
            let unregister = ffi::dlsym(library, c"plateau_host_unregister".as_ptr());
            if [configure, report, register, unregister].iter().any(|found| found.is_null()) {
                return Err("it lacks a function that this executable calls: build it again".to_owned());
            }
            let configure = std::mem::transmute::<*mut c_void, Configure>(configure);
            let report = std::mem::transmute::<*mut c_void, Report>(report);
            let host_memory = HostMemory {
                register: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, usize) -> c_int>(
                    register,
                ),
                unregister: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(unregister),
            };
            Ok(Some(Exports { configure, report, host_memory }))
        }
    }

    /// Switches kernels before the backend starts: `-name,+name`. The error is the plug-in's.
    pub fn configure(&self, switches: &str) -> Result<(), String> {
        let switches = CString::new(switches).map_err(|error| error.to_string())?;
        let mut reason = [0 as c_char; 256];
        // SAFETY: both buffers outlive the call, the size is the buffer's; the plug-in writes a
        // NUL-terminated text or nothing.
        let (code, reason) = unsafe {
            let code = (self.configure)(switches.as_ptr(), reason.as_mut_ptr(), reason.len() as c_int);
            (code, CStr::from_ptr(reason.as_ptr()).to_string_lossy().into_owned())
        };
        if code == 0 { Ok(()) } else { Err(reason) }
    }

    /// The kernels and their counts now.
    pub fn kernels(&self) -> Vec<Kernel> {
        let mut text = vec![0_u8; 4096];
        // SAFETY: the buffer outlives the call and its size is given; the plug-in ends the text
        // with a NUL within it.
        unsafe { (self.report)(text.as_mut_ptr().cast(), text.len() as c_int) };
        let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
        text.lines().filter_map(parse).collect()
    }

    /// Makes these the kernels that `kernels` tells of.
    pub fn keep(self) {
        // A plug-in that comes second is not ours to count: `load_plugins` takes one file of a
        // backend.
        let _ = LOADED.set(self);
    }
}

/// The kernels of the loaded plug-in; none without one.
pub fn kernels() -> Vec<Kernel> {
    LOADED.get().map(Exports::kernels).unwrap_or_default()
}

/// What the loaded plug-in knows of host memory; `None` without one.
pub(super) fn host_memory() -> Option<HostMemory> {
    LOADED.get().map(|exports| exports.host_memory)
}

/// "fattn_quant on, mmvq_limit off".
pub fn summary(kernels: &[Kernel]) -> String {
    let word = |kernel: &Kernel| format!("{} {}", kernel.name, if kernel.on { "on" } else { "off" });
    kernels.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A line of the report: name, on or off, calls, fall-backs, purpose.
fn parse(line: &str) -> Option<Kernel> {
    let mut fields = line.split('\t');
    let kernel = Kernel {
        name: fields.next()?.to_owned(),
        on: fields.next()? == "on",
        calls: fields.next()?.parse().ok()?,
        fallbacks: fields.next()?.parse().ok()?,
        purpose: fields.next()?.to_owned(),
    };
    Some(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_report_is_read_and_a_broken_one_is_left_out() {
        let kernel = parse("fattn_quant\ton\t12\t3\tattention in place").unwrap();
        assert_eq!((kernel.on, kernel.calls, kernel.fallbacks), (true, 12, 3));
        assert_eq!(summary(&[kernel.clone(), Kernel { on: false, ..kernel }]), "fattn_quant on, fattn_quant off");
        assert_eq!(parse("fattn_quant\ton\tmany\t3\tx"), None);
        assert_eq!(parse("fattn_quant"), None);
    }
}
