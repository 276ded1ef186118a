//! Saved states: the recurrent state of a sequence and ranges of its attention rows as bytes, and
//! back.
//!
//! llama.cpp's own calls save a sequence as a whole. Here the rows of a range go through a sequence
//! of their own that only the attention cache knows (`guard.cpp`), so that each row is copied once
//! however often a conversation is saved, and a state is put back over rows that are in the cache
//! already.
//!
//! What is deliberately not used: states kept on the device, of which llama.cpp copies only a part
//! where the cache is quantized.

#![expect(unsafe_code, reason = "calls the functions of guard.cpp")]

use super::context::Context;
use super::ffi;
use crate::units::{Pos, SeqId};

/// Why a state could not be saved or put back: the guard's code, or -1 where it does not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateError(pub i32);

/// First and last position of the attention rows, -1 without any; last position of the recurrent
/// state, where there is one.
///
/// After an image the last position lies before the end by more than one, and the MTP head has no
/// rows of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    first: i32,
    last: i32,
    recurrent: Option<i32>,
}

impl Extent {
    /// Can it be all of a sequence up to `end`.
    pub fn is_whole(self, end: Pos) -> bool {
        let ends = (-1..position(end)).contains(&self.last);
        ends && self.recurrent.is_none_or(|recurrent| recurrent == self.last && self.first == self.last.min(0))
    }

    /// For a saved point.
    pub fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (to, number) in bytes.chunks_exact_mut(4).zip([self.first, self.last, self.recurrent.unwrap_or(-1)]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

fn checked(code: i32) -> Result<(), StateError> {
    if code == 0 { Ok(()) } else { Err(StateError(code)) }
}

fn id(seq: SeqId) -> i32 {
    i32::try_from(seq.0).unwrap_or(i32::MAX)
}

fn position(pos: Pos) -> i32 {
    i32::try_from(pos.0).unwrap_or(i32::MAX)
}

impl Context {
    /// Is the memory of a kind whose states can be saved.
    pub(super) fn saves_states(&mut self) -> bool {
        let recurrent = self.is_recurrent();
        // SAFETY: the context is alive.
        unsafe { ffi::plateau_state_known(self.raw(), recurrent) }
    }

    /// Bytes of the recurrent state; none of a model of attention alone.
    pub(super) fn recurrent_bytes(&mut self, seq: SeqId) -> Result<usize, StateError> {
        if !self.is_recurrent() {
            return Ok(0);
        }
        // SAFETY: the context is alive, the sequence is one of its own (the caller's bookkeeping
        // knows it), and `size_of_state` passes null, into which nothing is written.
        size_of_state(|n| unsafe { ffi::plateau_recurrent_save(self.raw(), id(seq), std::ptr::null_mut(), 0, n) })
    }

    /// Writes the recurrent state, `recurrent_bytes` long.
    pub(super) fn save_recurrent(&mut self, seq: SeqId, dst: &mut [u8]) -> Result<(), StateError> {
        if !self.is_recurrent() {
            return if dst.is_empty() { Ok(()) } else { Err(StateError(-1)) };
        }
        let mut n = 0;
        // SAFETY: as above; the call writes into `dst`, within its length.
        let code = unsafe { ffi::plateau_recurrent_save(self.raw(), id(seq), dst.as_mut_ptr(), dst.len(), &raw mut n) };
        whole(code, n, dst)
    }

    pub(super) fn restore_recurrent(&mut self, seq: SeqId, bytes: &[u8]) -> Result<(), StateError> {
        if !self.is_recurrent() {
            return if bytes.is_empty() { Ok(()) } else { Err(StateError(-1)) };
        }
        // SAFETY: as above; the bytes are read during the call, within their length.
        checked(unsafe { ffi::plateau_recurrent_restore(self.raw(), id(seq), bytes.as_ptr(), bytes.len()) })
    }

    /// Bytes of the attention rows of positions `from..to`.
    pub(super) fn rows_bytes(&mut self, seq: SeqId, from: Pos, to: Pos) -> Result<usize, StateError> {
        let (p0, p1) = (position(from), position(to));
        // SAFETY: as for the recurrent state.
        size_of_state(|n| unsafe { ffi::plateau_rows_save(self.raw(), id(seq), p0, p1, std::ptr::null_mut(), 0, n) })
    }

    /// Writes them, `rows_bytes` long.
    pub(super) fn save_rows(&mut self, seq: SeqId, from: Pos, to: Pos, dst: &mut [u8]) -> Result<(), StateError> {
        let (p0, p1) = (position(from), position(to));
        let mut n = 0;
        // SAFETY: as for the recurrent state.
        let code =
            unsafe { ffi::plateau_rows_save(self.raw(), id(seq), p0, p1, dst.as_mut_ptr(), dst.len(), &raw mut n) };
        whole(code, n, dst)
    }

    /// Adds the rows of positions `from..to` among saved ones to a sequence that lacks them.
    pub(super) fn restore_rows(&mut self, seq: SeqId, from: Pos, to: Pos, bytes: &[u8]) -> Result<(), StateError> {
        let (p0, p1) = (position(from), position(to));
        // SAFETY: as for the recurrent state.
        checked(unsafe { ffi::plateau_rows_restore(self.raw(), id(seq), p0, p1, bytes.as_ptr(), bytes.len()) })
    }

    /// `seq` has the rows `0..to` of `donor`, and no others. The recurrent state is left alone.
    pub(super) fn take_rows(&mut self, donor: SeqId, seq: SeqId, to: Pos) -> Result<(), StateError> {
        let first = if donor == seq { to } else { Pos(0) };
        // SAFETY: the context is alive, and both sequences are its own.
        unsafe {
            checked(ffi::plateau_rows_remove(self.raw(), id(seq), position(first)))?;
            if donor == seq {
                return Ok(());
            }
            checked(ffi::plateau_rows_share(self.raw(), id(donor), id(seq), position(to)))
        }
    }

    /// Where what the memory holds of the sequence begins and ends.
    pub(super) fn extent(&mut self, seq: SeqId) -> Result<Extent, StateError> {
        let mut extent = [0i32; 3];
        // SAFETY: the context is alive, and the call writes three numbers.
        checked(unsafe { ffi::plateau_state_extent(self.raw(), id(seq), extent.as_mut_ptr()) })?;
        let [first, last, recurrent] = extent;
        Ok(Extent { first, last, recurrent: if self.is_recurrent() { Some(recurrent) } else { None } })
    }
}

fn size_of_state(call: impl FnOnce(*mut usize) -> i32) -> Result<usize, StateError> {
    let mut n = 0;
    checked(call(&raw mut n))?;
    Ok(n)
}

/// All of `dst` was written.
fn whole(code: i32, n: usize, dst: &[u8]) -> Result<(), StateError> {
    checked(code)?;
    if n == dst.len() { Ok(()) } else { Err(StateError(-1)) }
}

/// Bytes of a length.
const LENGTH_BYTES: usize = 8;

/// Length of what `Joined` writes for parts of these lengths.
pub(super) fn joined_bytes<const N: usize>(parts: [usize; N]) -> usize {
    parts.iter().map(|len| len + LENGTH_BYTES).sum()
}

/// Byte strings one after the other, each with its length in front; for `split`.
pub(super) struct Joined<'a> {
    rest: &'a mut [u8],
}

impl<'a> Joined<'a> {
    pub fn new(out: &'a mut [u8]) -> Joined<'a> {
        Joined { rest: out }
    }

    /// Room for the next string.
    pub fn part(&mut self, len: usize) -> Result<&'a mut [u8], StateError> {
        let rest = std::mem::take(&mut self.rest);
        let (head, rest) = rest.split_at_mut_checked(LENGTH_BYTES).ok_or(StateError(-1))?;
        head.copy_from_slice(&(len as u64).to_le_bytes());
        let (part, rest) = rest.split_at_mut_checked(len).ok_or(StateError(-1))?;
        self.rest = rest;
        Ok(part)
    }

    pub fn append(&mut self, part: &[u8]) -> Result<(), StateError> {
        self.part(part.len())?.copy_from_slice(part);
        Ok(())
    }

    /// Nothing may be left to be written.
    pub fn finish(self) -> Result<(), StateError> {
        if self.rest.is_empty() { Ok(()) } else { Err(StateError(-1)) }
    }
}

/// The byte strings of `Joined`; `None`: not `N` whole ones.
pub(super) fn split<const N: usize>(mut bytes: &[u8]) -> Option<[&[u8]; N]> {
    let mut parts = [&[][..]; N];
    for part in &mut parts {
        let (len, rest) = bytes.split_first_chunk::<8>()?;
        (*part, bytes) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    }
    bytes.is_empty().then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_parts_split_again_and_incomplete_ones_do_not() {
        let parts = [&b"recurrent"[..], b"", b"hidden"];
        let mut joined = vec![0; joined_bytes(parts.map(<[u8]>::len))];
        let mut out = Joined::new(&mut joined);
        for part in parts {
            out.append(part).unwrap();
        }
        out.finish().unwrap();
        assert!(Joined::new(&mut joined).finish().is_err());
        assert!(Joined::new(&mut joined[..7]).append(b"").is_err());
        assert_eq!(split::<3>(&joined), Some([&b"recurrent"[..], b"", b"hidden"]));
        for n in 0..joined.len() {
            assert_eq!(split::<3>(&joined[..n]), None);
        }
        assert_eq!(split::<2>(&joined), None);
    }
}
