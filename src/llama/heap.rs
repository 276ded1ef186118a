//! How the C allocator, which Rust and llama.cpp share, keeps the big short-lived blocks of a
//! server: saved states come and go by the thousand, and a heap that takes them in between small
//! blocks never gives their room back.

#![expect(unsafe_code, reason = "the allocator's settings have no other interface")]

/// From this size on a block is mapped on its own and returned whole when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: std::ffi::c_int = 1 << 20;

/// Fixes the size from which blocks are mapped on their own. glibc else raises it to the size of
/// every mapped block that is freed, up to 32 MiB, and with it takes the next one of that size from
/// the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn map_big_blocks() {
    // SAFETY: takes plain numbers, changes only how later blocks are found, and may be called at
    // any time.
    let set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES) };
    if set == 0 {
        tracing::warn!("the allocator refused a limit of {MAPPED_BYTES} bytes; freed states may stay in the heap");
    }
}

/// Other allocators decide for themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn map_big_blocks() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// A block that is mapped on its own begins right after its header at the begin of a page; one
    /// out of a heap begins where the block before it ended.
    fn is_mapped(block: &[u8]) -> bool {
        const PAGE: usize = 4096;
        const HEADER: usize = 2 * size_of::<usize>();
        block.as_ptr() as usize % PAGE == HEADER
    }

    #[test]
    fn freed_states_leave_no_holes_in_the_heap() {
        map_big_blocks();
        // A freed block of this size is what would move glibc's own limit.
        drop(std::hint::black_box(vec![1u8; 8 << 20]));
        // Sizes that are no whole pages, so that neighbours in a heap cannot all begin alike.
        let states: Vec<Vec<u8>> = (0..6).map(|i| std::hint::black_box(vec![1u8; (2 << 20) + 208 + 16 * i])).collect();
        assert!(states.iter().all(|state| is_mapped(state)), "blocks of 2 MiB come out of the heap");
    }
}
