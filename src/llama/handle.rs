//! What a context takes of llama.cpp and ggml, freed when the last value that uses it is gone.
//!
//! A context, its batch and its memory, and the context of an MTP head over it, share these
//! handles: in which order they are dropped does not matter. All of them stay on the thread that
//! made them, which `Rc` and raw pointers have the compiler check.

#![expect(unsafe_code, reason = "owns a llama_context and a thread pool")]

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::ffi;
use super::model::Model;

/// How long a worker spins for the next graph before it sleeps: one unit is 131,072 pauses, a few
/// milliseconds. It bridges the gap between two steps; ggml's own 50 keeps the cores busy for a
/// third of a second after the last one.
const POLL: u32 = 1;

/// Workers that stay alive between graphs; without a pool ggml starts and joins threads for every
/// graph.
pub(super) struct Threads {
    raw: NonNull<ffi::ggml_threadpool>,
}

impl Threads {
    /// `None` where the pool cannot be had: ggml then starts threads for every graph.
    pub fn new(n_threads: i32) -> Option<Rc<Threads>> {
        // SAFETY: the parameters are a plain struct that the pool copies.
        let raw = unsafe {
            let mut params = ffi::ggml_threadpool_params_default(n_threads);
            params.poll = POLL;
            ffi::ggml_threadpool_new(&raw mut params)
        };
        NonNull::new(raw).map(|raw| Rc::new(Threads { raw }))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // SAFETY: made by ggml_threadpool_new and freed once. Every context that it was attached to
        // holds this value, so all of them are gone.
        unsafe { ffi::ggml_threadpool_free(self.raw.as_ptr()) }
    }
}

/// Owns a `llama_context` and holds on to what that uses.
pub(super) struct Handle {
    raw: NonNull<ffi::llama_context>,
    threads: Option<Rc<Threads>>,
    model: Arc<Model>,
    /// The context that this one was made beside.
    _trunk: Option<Rc<Handle>>,
}

impl Handle {
    /// # Safety
    /// `raw` was made over `model`, beside `trunk` if that is given, and nothing else owns it.
    pub unsafe fn new(
        raw: NonNull<ffi::llama_context>,
        model: Arc<Model>,
        threads: Option<Rc<Threads>>,
        trunk: Option<Rc<Handle>>,
    ) -> Rc<Handle> {
        if let Some(threads) = &threads {
            let pool = threads.raw.as_ptr();
            // SAFETY: both are alive; the pool is held by this value, whose `drop` detaches it
            // before it lets go of it.
            unsafe { ffi::llama_attach_threadpool(raw.as_ptr(), pool, pool) };
        }
        Rc::new(Handle { raw, threads, model, _trunk: trunk })
    }

    /// Alive as long as this value.
    pub fn raw(&self) -> *mut ffi::llama_context {
        self.raw.as_ptr()
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// For another context that computes when this one does not.
    pub fn threads(&self) -> Option<Rc<Threads>> {
        self.threads.clone()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the context is owned and freed once. Pool, model and trunk are fields, so they
        // are let go of afterwards.
        unsafe {
            ffi::llama_detach_threadpool(self.raw.as_ptr());
            ffi::llama_free(self.raw.as_ptr());
        }
    }
}
