//! Host memory that the GPU copies to and from at the speed of the bus, for saved states; ordinary
//! memory goes through a buffer of the driver, and a fresh page of it costs the engine a fault for
//! every 4 KiB.
//!
//! With a plug-in of ours memory of this process is written once and then made known to the driver,
//! which is quick. Without one the driver makes such memory; that takes a tenth of a second, and
//! other calls wait meanwhile. In both cases a thread has blocks ready of each size that was asked
//! for lately, and makes new ones when the copy that one was taken for is over. Who asks never
//! waits: where no block is ready, the state lies in ordinary memory.

#![expect(unsafe_code, reason = "buffers of ggml, and memory that a plug-in makes known to the driver")]

use std::alloc::Layout;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ffi;
use super::kernels::{self, HostMemory};
use crate::engine::{DeviceMemory, StateBytes};

/// Smaller pieces are copied as fast from anywhere.
const LEAST_BYTES: usize = 1 << 20;
/// Blocks of a size that are kept ready.
const N_READY: usize = 3;
/// So long nothing may have been asked for before the driver makes a block, and again before the
/// next one.
const QUIET: Duration = Duration::from_millis(150);
/// The same where blocks are made here and only made known to it.
const SHORT_QUIET: Duration = Duration::from_millis(15);
/// Blocks that are made here lie on large pages: known to the driver in a hundredth of the entries.
const ALIGNMENT: usize = 2 << 20;
/// Sizes that are kept ready: those asked for last.
const N_SIZES: usize = 4;
/// Blocks that came back and wait for the next order of their size.
const N_IDLE: usize = 3;
/// So long after a refusal no block of that size is asked for again.
const RETRY: Duration = Duration::from_secs(10);

/// Sizes of blocks: four to a power of two, so that states of nearly the same length share one.
fn size_for(n_bytes: usize) -> usize {
    let step = (n_bytes.next_power_of_two() / 8).max(LEAST_BYTES / 4);
    n_bytes.next_multiple_of(step)
}

/// Where blocks come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Memory of this process that is made known to the driver.
    Registered(HostMemory),
    /// The driver of the first GPU; without a GPU, for tests, the heap.
    Driver { on_gpu: bool },
}

impl Source {
    /// The best that the loaded backend has.
    pub fn of_gpu() -> Source {
        kernels::host_memory().map_or(Source::Driver { on_gpu: true }, Source::Registered)
    }

    fn quiet(self) -> Duration {
        match self {
            Source::Registered(_) => SHORT_QUIET,
            Source::Driver { .. } => QUIET,
        }
    }

    fn allocate(self, size: usize) -> Option<Raw> {
        match self {
            Source::Registered(host) => registered(host, size),
            Source::Driver { on_gpu } => from_driver(size, on_gpu),
        }
    }
}

/// A block. Its bytes were written once, so that they are initialised.
struct Raw {
    owner: Owner,
    base: NonNull<u8>,
    size: usize,
}

/// How a block is given back.
enum Owner {
    Buffer(ffi::ggml_backend_buffer_t),
    Heap { layout: Layout, host: HostMemory },
}

// SAFETY: the memory belongs to this value alone. ggml's buffers of host memory may be used and
// freed on any thread, and so may the heap and the plug-in's functions.
unsafe impl Send for Raw {}
// SAFETY: through a shared reference its bytes are read alone.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: allocated by `from_driver`, freed here alone; the backends that own the
            // memory are never unloaded.
            Owner::Buffer(buffer) => unsafe { ffi::ggml_backend_buffer_free(buffer) },
            // SAFETY: allocated with this layout and registered by `registered`; no copy to or from
            // it is under way, since whoever begins one waits for it before giving the block back.
            // Memory that the driver does not let go of would be freed under its entries, so it is
            // kept.
            Owner::Heap { layout, host } => unsafe {
                if (host.unregister)(self.base.as_ptr().cast()) == 0 {
                    std::alloc::dealloc(self.base.as_ptr(), layout);
                }
            },
        }
    }
}

fn registered(host: HostMemory, size: usize) -> Option<Raw> {
    let layout = Layout::from_size_align(size, ALIGNMENT).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not empty.
    let base = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
    // SAFETY: `size` bytes from `base` on were just allocated, and nobody else has them. Advice
    // changes no contents; where the kernel has no large pages, it refuses and small ones do. The
    // plug-in's function takes any memory of this process.
    let known = unsafe {
        #[cfg(target_os = "linux")]
        libc::madvise(base.as_ptr().cast(), size, libc::MADV_HUGEPAGE);
        base.write_bytes(0, size);
        (host.register)(base.as_ptr().cast(), size) == 0
    };
    if !known {
        // SAFETY: allocated above with this layout.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
        return None;
    }
    Some(Raw { owner: Owner::Heap { layout, host }, base, size })
}

fn from_driver(size: usize, on_gpu: bool) -> Option<Raw> {
    let mut buffer = std::ptr::null_mut();
    // SAFETY: the call writes the buffer, or null.
    let code = unsafe { ffi::plateau_host_memory_new(size, on_gpu, &raw mut buffer) };
    if code != 0 || buffer.is_null() {
        return None;
    }
    // SAFETY: the buffer is alive; its base is where its `size` bytes begin.
    let base = NonNull::new(unsafe { ffi::ggml_backend_buffer_get_base(buffer) }.cast::<u8>());
    let Some(base) = base else {
        // SAFETY: as in `Drop`; nothing has it.
        unsafe { ffi::ggml_backend_buffer_free(buffer) };
        return None;
    };
    // SAFETY: `size` bytes from `base` on are the buffer's, and nobody else has it.
    unsafe { base.write_bytes(0, size) };
    Some(Raw { owner: Owner::Buffer(buffer), base, size })
}

enum Order {
    New(usize),
    Back(Raw),
    End,
}

/// The answer to `Order::New`: each order gets exactly one.
enum Made {
    Block(Raw),
    /// There is no memory for a block of this size.
    Refused(usize),
}

/// A block that is out. Dropped, it goes back to the thread, which keeps or frees it: freeing takes
/// as long as getting one.
struct Block {
    /// Taken in `drop` alone.
    raw: Option<Raw>,
    orders: Sender<Order>,
}

impl DeviceMemory for Block {
    fn bytes(&self) -> &[u8] {
        let Some(raw) = &self.raw else { return &[] };
        // SAFETY: `size` initialised bytes, which this value alone has; the borrow of `self` keeps
        // them unchanged.
        unsafe { std::slice::from_raw_parts(raw.base.as_ptr(), raw.size) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(raw) = &self.raw else { return &mut [] };
        // SAFETY: as above, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(raw.base.as_ptr(), raw.size) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            // Without a thread the error holds the block, and dropping it frees the memory here.
            drop(self.orders.send(Order::Back(raw)));
        }
    }
}

/// Gives out memory for states. Neither channel has a fixed capacity, so that nobody waits at one.
/// The thread takes orders at once and keeps `N_SIZES` times `N_READY`; what comes back is what
/// states hold.
pub(super) struct PinnedMemory {
    orders: Sender<Order>,
    made: Receiver<Made>,
    here: Vec<Raw>,
    sizes: VecDeque<Wanted>,
    retry: Duration,
    /// Taken in `drop` alone.
    thread: Option<JoinHandle<()>>,
}

/// A size that was asked for lately.
struct Wanted {
    size: usize,
    /// Orders that are not answered yet.
    n_ordered: usize,
    /// When the last order was refused, unless one was filled since.
    refused: Option<Instant>,
}

impl Wanted {
    fn new(size: usize) -> Wanted {
        Wanted { size, n_ordered: 0, refused: None }
    }
}

impl PinnedMemory {
    /// `None` where no thread can be had. `expected`: lengths of states that will be asked for.
    pub fn start(source: Source, expected: &[usize]) -> Option<PinnedMemory> {
        let (orders, inbox) = channel();
        let (outbox, made) = channel();
        let thread = std::thread::Builder::new().name("state-memory".to_owned());
        let thread = thread.spawn(move || Stock::new(source, outbox).run(&inbox)).ok()?;
        let (here, sizes) = (Vec::new(), VecDeque::new());
        let mut memory = PinnedMemory { orders, made, here, sizes, retry: RETRY, thread: Some(thread) };
        expected.iter().filter(|n| **n >= LEAST_BYTES).for_each(|n| memory.restock(size_for(*n)));
        Some(memory)
    }

    /// Memory for a state of `n_bytes`: a block of up to twice the size, where one is ready.
    pub fn take(&mut self, n_bytes: usize) -> StateBytes {
        if n_bytes < LEAST_BYTES {
            return StateBytes::zeros(n_bytes);
        }
        while let Ok(made) = self.made.try_recv() {
            self.arrived(made);
        }
        let size = size_for(n_bytes);
        let fits = |raw: &Raw| (size..=2 * size).contains(&raw.size);
        let found = self.here.iter().enumerate().filter(|(_, raw)| fits(raw)).min_by_key(|(_, raw)| raw.size);
        let raw = found.map(|(i, _)| i).map(|i| self.here.swap_remove(i));
        self.restock(size);
        match raw {
            Some(raw) => StateBytes::lent(Box::new(Block { raw: Some(raw), orders: self.orders.clone() }), n_bytes),
            None => StateBytes::zeros(n_bytes),
        }
    }

    fn arrived(&mut self, made: Made) {
        let size = match &made {
            Made::Block(raw) => raw.size,
            Made::Refused(size) => *size,
        };
        if let Some(wanted) = self.sizes.iter_mut().find(|wanted| wanted.size == size) {
            wanted.n_ordered = wanted.n_ordered.saturating_sub(1);
            wanted.refused = matches!(made, Made::Refused(_)).then(Instant::now);
        }
        if let Made::Block(raw) = made {
            self.here.push(raw);
        }
    }

    /// Has blocks of this size made ready, and gives up those of a size that nobody asked for
    /// lately.
    fn restock(&mut self, size: usize) {
        let known = self.sizes.iter().position(|wanted| wanted.size == size);
        let mut wanted = known.and_then(|i| self.sizes.remove(i)).unwrap_or(Wanted::new(size));
        let n_here = self.here.iter().filter(|raw| raw.size == size).count();
        let n_wanted = if wanted.refused.is_some_and(|at| at.elapsed() < self.retry) { 0 } else { N_READY };
        for _ in n_here + wanted.n_ordered..n_wanted {
            wanted.n_ordered += usize::from(self.orders.send(Order::New(size)).is_ok());
        }
        self.sizes.push_front(wanted);
        self.sizes.truncate(N_SIZES);
        let sizes = &self.sizes;
        for raw in self.here.extract_if(.., |raw| sizes.iter().all(|wanted| wanted.size != raw.size)) {
            // Without a thread the error holds the memory, and dropping it frees it.
            drop(self.orders.send(Order::Back(raw)));
        }
    }
}

/// Waits for the thread: memory that it freed while the process ends could meet a driver that is
/// gone.
impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.orders.send(Order::End).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic is in the log already.
            drop(thread.join());
        }
    }
}

/// The thread's side. Blocks that come back later than its end are freed by who drops them.
struct Stock {
    source: Source,
    outbox: Sender<Made>,
    idle: VecDeque<Raw>,
    /// Sizes that are to be made.
    pending: VecDeque<usize>,
    /// The last block could not be made, and that was said.
    refused: bool,
}

impl Stock {
    fn new(source: Source, outbox: Sender<Made>) -> Stock {
        Stock { source, outbox, idle: VecDeque::new(), pending: VecDeque::new(), refused: false }
    }

    fn run(mut self, inbox: &Receiver<Order>) {
        loop {
            let order = match self.pending.is_empty() {
                true => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => inbox.recv_timeout(self.source.quiet()),
            };
            match order {
                Ok(Order::New(size)) => match self.idle.iter().position(|raw| raw.size == size) {
                    Some(i) => self.idle.remove(i).into_iter().for_each(|raw| self.answer(Made::Block(raw))),
                    None => self.order(size),
                },
                Ok(Order::Back(raw)) => {
                    self.idle.push_back(raw);
                    if self.idle.len() > N_IDLE {
                        self.idle.pop_front();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.make_one(),
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Beyond as many as all sizes can want, the oldest order is for a size that nobody asks for
    /// any more.
    fn order(&mut self, size: usize) {
        self.pending.push_back(size);
        if self.pending.len() > N_SIZES * N_READY
            && let Some(oldest) = self.pending.pop_front()
        {
            self.answer(Made::Refused(oldest));
        }
    }

    fn make_one(&mut self) {
        let Some(size) = self.pending.pop_front() else { return };
        let began = Instant::now();
        match self.source.allocate(size) {
            Some(raw) => {
                tracing::debug!(size, ms = began.elapsed().as_millis() as u64, "a block for states was made");
                self.refused = false;
                self.answer(Made::Block(raw));
            }
            None => {
                if !std::mem::replace(&mut self.refused, true) {
                    tracing::warn!(size, "no host memory from the driver; states lie in ordinary memory");
                }
                self.answer(Made::Refused(size));
            }
        }
    }

    fn answer(&self, made: Made) {
        // Nobody there any more: the error holds the memory, and dropping it frees it.
        drop(self.outbox.send(made));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    const MIB: usize = 1 << 20;
    const ON_THE_HEAP: Source = Source::Driver { on_gpu: false };

    static N_REGISTERED: AtomicUsize = AtomicUsize::new(0);
    static REGISTERED_BYTES: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn register(base: *mut c_void, size: usize) -> c_int {
        assert!(!base.is_null() && (base as usize).is_multiple_of(ALIGNMENT));
        if size > 64 * MIB {
            return -1;
        }
        N_REGISTERED.fetch_add(1, Ordering::SeqCst);
        REGISTERED_BYTES.fetch_add(size, Ordering::SeqCst);
        0
    }

    unsafe extern "C" fn unregister(base: *mut c_void) -> c_int {
        assert!(!base.is_null());
        N_REGISTERED.fetch_sub(1, Ordering::SeqCst);
        0
    }

    #[test]
    fn memory_is_known_to_the_driver_as_long_as_it_lives_and_a_refusal_is_no_block() {
        const N_BYTES: usize = 5 * MIB - 3;
        let source = Source::Registered(HostMemory { register, unregister });
        assert!(source.allocate(65 * MIB).is_none());
        let mut memory = PinnedMemory::start(source, &[N_BYTES]).unwrap();
        let mut blocks: Vec<StateBytes> = (0..5).map(|_| lent(&mut memory, N_BYTES)).collect();
        for (i, block) in blocks.iter_mut().enumerate() {
            assert!(block.iter().all(|byte| *byte == 0));
            block.bytes_mut().fill(i as u8 + 1);
        }
        assert!(blocks.iter().enumerate().all(|(i, block)| block.iter().all(|byte| *byte == i as u8 + 1)));
        assert!(N_REGISTERED.load(Ordering::SeqCst) >= 5);
        assert!(REGISTERED_BYTES.load(Ordering::SeqCst) >= 25 * MIB);
        drop(memory);
        drop(blocks);
        assert_eq!(N_REGISTERED.load(Ordering::SeqCst), 0);
    }

    /// Long enough for a block on any machine; a test that waits longer has failed.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Asks until a block is there: the thread makes it ready some time. `n_bytes` is not the size
    /// of a block, which tells the block from the heap.
    fn lent(memory: &mut PinnedMemory, n_bytes: usize) -> StateBytes {
        assert_ne!(size_for(n_bytes), n_bytes);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let bytes = memory.take(n_bytes);
            if bytes.footprint() != n_bytes {
                return bytes;
            }
            // Wakes with the next block.
            if let Ok(made) = memory.made.recv_timeout(Duration::from_millis(20)) {
                memory.arrived(made);
            }
        }
        panic!("no block of {n_bytes} bytes within {PATIENCE:?}");
    }

    static IS_DRIVER_FULL: AtomicBool = AtomicBool::new(true);

    unsafe extern "C" fn register_unless_full(_base: *mut c_void, _size: usize) -> c_int {
        if IS_DRIVER_FULL.load(Ordering::SeqCst) { -1 } else { 0 }
    }

    unsafe extern "C" fn unregister_any(_base: *mut c_void) -> c_int {
        0
    }

    #[test]
    fn after_refusals_blocks_are_asked_for_again_and_found() {
        const N_BYTES: usize = 3 * MIB - 5;
        let host = HostMemory { register: register_unless_full, unregister: unregister_any };
        let mut memory = PinnedMemory::start(Source::Registered(host), &[N_BYTES]).unwrap();
        // All orders are answered, and none stays counted as on its way.
        for _ in 0..N_READY {
            let refusal = memory.made.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(refusal, Made::Refused(size) if size == size_for(N_BYTES)));
            memory.arrived(refusal);
        }
        assert_eq!(memory.sizes[0].n_ordered, 0);
        // Not at once.
        assert_eq!(memory.take(N_BYTES).footprint(), N_BYTES);
        assert_eq!(memory.sizes[0].n_ordered, 0);
        memory.retry = Duration::ZERO;
        assert_eq!(memory.take(N_BYTES).footprint(), N_BYTES);
        assert_eq!(memory.sizes[0].n_ordered, N_READY);
        IS_DRIVER_FULL.store(false, Ordering::SeqCst);
        let block = lent(&mut memory, N_BYTES);
        assert!(block.len() == N_BYTES && memory.sizes[0].refused.is_none());
    }

    #[test]
    fn sizes_waste_at_most_a_quarter() {
        for n in (MIB..400 * MIB).step_by(99_991) {
            let size = size_for(n);
            assert!(size >= n && size <= n + n / 4 + MIB / 4, "{size} for {n}");
        }
    }

    #[test]
    fn blocks_are_as_long_as_asked_for_and_nobody_elses() {
        let mut memory = PinnedMemory::start(ON_THE_HEAP, &[5 * MIB + 1]).unwrap();
        let mut blocks: Vec<StateBytes> = (0..6).map(|_| lent(&mut memory, 5 * MIB + 1)).collect();
        for (i, block) in blocks.iter_mut().enumerate() {
            block.bytes_mut().fill(i as u8);
        }
        for (i, block) in blocks.iter().enumerate() {
            assert!(block.len() == 5 * MIB + 1 && block.iter().all(|byte| *byte == i as u8), "block {i}");
        }
    }

    #[test]
    fn blocks_outlive_who_gave_them_out_and_come_back() {
        let mut memory = PinnedMemory::start(ON_THE_HEAP, &[]).unwrap();
        let mut first = lent(&mut memory, 3 * MIB - 7);
        drop(lent(&mut memory, 3 * MIB - 7));
        drop(memory);
        first.bytes_mut()[3 * MIB - 8] = 9;
        assert_eq!(first[3 * MIB - 8], 9);
    }

    #[test]
    fn what_is_asked_for_no_longer_is_given_up() {
        let mut memory = PinnedMemory::start(ON_THE_HEAP, &[]).unwrap();
        for i in 0..3 * N_SIZES {
            drop(lent(&mut memory, size_for((1 << (i % 3)) * 8 * MIB + i * 2 * MIB) - 3));
        }
        assert!(memory.sizes.len() <= N_SIZES);
        assert!(memory.here.len() <= N_READY * (N_SIZES + 1), "{}", memory.here.len());
    }

    #[test]
    fn small_states_and_those_without_a_block_are_on_the_heap() {
        let mut memory = PinnedMemory::start(ON_THE_HEAP, &[]).unwrap();
        assert_eq!(memory.take(100).footprint(), 100);
        let first = memory.take(2 * MIB - 3);
        assert_eq!((first.footprint(), first.iter().all(|byte| *byte == 0)), (2 * MIB - 3, true));
    }
}
