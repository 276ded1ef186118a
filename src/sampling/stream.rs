//! The random stream of one sequence. It does not read the clock or the system: the seed is all
//! there is.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// Numbers in [0, 1) from a seed, the same on every machine.
#[derive(Clone)]
pub(super) struct Stream(Pcg64);

impl Stream {
    pub(super) fn new(seed: u64) -> Stream {
        Stream(Pcg64::seed_from_u64(seed))
    }

    /// The next number in [0, 1), with 53 random bits.
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}
