//! The bytes of saved states: on the heap, or in memory that the runner's device copies to and from
//! without a detour.

use std::fmt;
use std::ops::Deref;

/// Memory that a runner has of its device's driver. Dropping it gives it back.
pub trait DeviceMemory: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Fixed in length.
pub struct StateBytes {
    memory: Memory,
    len: usize,
}

enum Memory {
    Heap(Vec<u8>),
    Device(Box<dyn DeviceMemory>),
}

impl StateBytes {
    /// Zeros on the heap; pages of large ones are taken when they are written.
    pub fn zeros(len: usize) -> StateBytes {
        StateBytes::from(vec![0; len])
    }

    /// The first `len` bytes of `memory`, or of all where it is shorter.
    pub fn lent(memory: Box<dyn DeviceMemory>, len: usize) -> StateBytes {
        let len = len.min(memory.bytes().len());
        StateBytes { memory: Memory::Device(memory), len }
    }

    /// Bytes of memory that it takes.
    pub fn footprint(&self) -> usize {
        match &self.memory {
            Memory::Heap(bytes) => bytes.capacity(),
            Memory::Device(memory) => memory.bytes().len(),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.memory {
            Memory::Heap(bytes) => bytes.as_mut_slice(),
            Memory::Device(memory) => memory.bytes_mut(),
        };
        &mut all[..self.len]
    }
}

impl From<Vec<u8>> for StateBytes {
    fn from(bytes: Vec<u8>) -> StateBytes {
        StateBytes { len: bytes.len(), memory: Memory::Heap(bytes) }
    }
}

impl Deref for StateBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.memory {
            Memory::Heap(bytes) => bytes.as_slice(),
            Memory::Device(memory) => memory.bytes(),
        };
        &all[..self.len]
    }
}

impl Default for StateBytes {
    fn default() -> StateBytes {
        StateBytes::from(Vec::new())
    }
}

/// A copy on the heap.
impl Clone for StateBytes {
    fn clone(&self) -> StateBytes {
        StateBytes::from(self.to_vec())
    }
}

impl PartialEq for StateBytes {
    fn eq(&self, other: &StateBytes) -> bool {
        **self == **other
    }
}

impl Eq for StateBytes {}

impl fmt::Debug for StateBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lent(Vec<u8>);

    impl DeviceMemory for Lent {
        fn bytes(&self) -> &[u8] {
            &self.0
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    #[test]
    fn lent_memory_is_as_long_as_the_state_and_a_copy_is_on_the_heap() {
        let mut lent = StateBytes::lent(Box::new(Lent(vec![7; 10])), 4);
        lent.bytes_mut()[3] = 1;
        assert_eq!(*lent, [7, 7, 7, 1]);
        assert_eq!(lent.clone(), StateBytes::from(vec![7, 7, 7, 1]));
        assert_eq!(StateBytes::lent(Box::new(Lent(vec![7; 10])), 20).len(), 10);
        assert_eq!(*StateBytes::zeros(3), [0; 3]);
    }
}
