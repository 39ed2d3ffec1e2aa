//! Memory for weights: on cache lines, and on large pages where the system has them.
//!
//! A step reads all weights. With pages of 4 KiB the processor looks up 24,000 of them for 100 MB, which takes a
//! fifth of a step that serves one sequence.

use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are mapped at once. What of them is never touched takes no memory.
const CHUNK_BYTES: usize = 64 << 20;
/// A slab begins on a cache line.
const ALIGN: usize = 64;

/// Numbers of which every pattern of bits is one, zeros included.
pub(crate) trait Plain: Copy + Send + Sync + sealed::Sealed + 'static {}
impl Plain for u8 {}
impl Plain for f32 {}
impl Plain for half::f16 {}

mod sealed {
    pub(crate) trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
}

/// Where slabs are cut from.
#[derive(Default)]
pub(crate) struct Slabs(Mutex<Option<Cut>>);

/// A chunk, and how much of it is given away.
struct Cut {
    chunk: Arc<Chunk>,
    used: usize,
}

/// Mapped memory, read and written through slabs only.
struct Chunk {
    start: NonNull<u8>,
    /// Unmaps it.
    map: MmapMut,
}

// SAFETY: a chunk is only the owner of its memory; what reaches into it are slabs, which do not overlap.
unsafe impl Send for Chunk {}
// SAFETY: as above: nothing is read or written through a shared chunk.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn map(len: usize) -> std::io::Result<Self> {
        let mut map = MmapMut::map_anon(len)?;
        #[cfg(target_os = "linux")]
        // Advice: where it is not taken, pages are small.
        let _ = map.advise(memmap2::Advice::HugePage);
        let start = NonNull::from(&mut map[..]).cast();
        Ok(Self { start, map })
    }
}

impl Slabs {
    /// `len` zeros.
    ///
    /// # Panics
    /// When the system has no memory left, as `Vec` does.
    pub(crate) fn zeros<T: Plain>(&self, len: usize) -> Slab<T> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGN))
            .expect("a slab fits into the address space");
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = match slot.take() {
            Some(cut) if cut.chunk.map.len() - cut.used >= bytes => cut,
            _ => Cut {
                chunk: Arc::new(
                    Chunk::map(CHUNK_BYTES.max(bytes)).expect("there is memory for weights"),
                ),
                used: 0,
            },
        };
        // SAFETY: `used + bytes` is at most the chunk's length, so the place is within it or, of an empty
        // slab, at its end.
        let start = unsafe { cut.chunk.start.add(cut.used) };
        let chunk = Arc::clone(&cut.chunk);
        *slot = Some(Cut {
            used: cut.used + bytes,
            ..cut
        });
        Slab {
            start: start.cast(),
            len,
            _chunk: chunk,
        }
    }
}

/// Numbers in memory of their own.
pub(crate) struct Slab<T> {
    start: NonNull<T>,
    len: usize,
    /// Keeps the memory.
    _chunk: Arc<Chunk>,
}

// SAFETY: a slab is the only way to its memory, as a vector is to its own.
unsafe impl<T: Plain> Send for Slab<T> {}
// SAFETY: as above; a shared slab is only read.
unsafe impl<T: Plain> Sync for Slab<T> {}

impl<T: Plain> Slab<T> {
    /// The numbers as bytes, in the machine's order.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        let numbers: &[T] = self;
        // SAFETY: the same memory, initialised and borrowed as it is; plain numbers have no padding, and a byte
        // may lie anywhere.
        unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
    }

    /// [`Self::as_bytes`], to be written.
    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        let numbers: &mut [T] = self;
        let len = size_of_val(numbers);
        // SAFETY: as in `as_bytes`; whatever is written, every pattern of bits is a number.
        unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), len) }
    }
}

impl<T: Plain> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `len` numbers from `start` on, which is aligned to 64 bytes; it is mapped
        // for as long as the slab lives, zeroed at first, and no other slab reaches it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow of the slab makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn slabs_are_zeroed_aligned_and_apart() {
        let slabs = Slabs::default();
        let mut bytes: Vec<Slab<u8>> = [0, 1, 63, 64, 65, 100_000]
            .map(|len| slabs.zeros(len))
            .into();
        let mut halves: Slab<f16> = slabs.zeros(33);
        let mut floats: Slab<f32> = slabs.zeros(5);
        for (number, slab) in bytes.iter_mut().enumerate() {
            assert!(slab.iter().all(|&byte| byte == 0));
            assert_eq!(slab.as_ptr() as usize % ALIGN, 0);
            slab.fill(number as u8 + 1);
        }
        halves.fill(f16::ONE);
        floats.fill(2.0);
        assert_eq!(halves.as_bytes().len(), 66);
        assert_eq!(floats.as_bytes()[..4], 2f32.to_ne_bytes());
        floats.as_bytes_mut()[16..].copy_from_slice(&3f32.to_ne_bytes());
        // The memory outlives where it was cut from.
        drop(slabs);
        for (number, slab) in bytes.iter().enumerate() {
            assert!(slab.iter().all(|&byte| byte == number as u8 + 1));
        }
        assert_eq!(*halves, [f16::ONE; 33]);
        assert_eq!(*floats, [2.0, 2.0, 2.0, 2.0, 3.0]);
    }

    #[test]
    fn a_slab_may_be_larger_than_a_chunk() {
        let slabs = Slabs::default();
        let small: Slab<u8> = slabs.zeros(10);
        let mut large: Slab<f32> = slabs.zeros(CHUNK_BYTES / 4 + 1);
        *large.last_mut().unwrap() = 1.0;
        let next: Slab<u8> = slabs.zeros(10);
        assert_eq!(large.len(), CHUNK_BYTES / 4 + 1);
        assert_eq!((&*small, &*next), (&[0; 10][..], &[0; 10][..]));
        assert_eq!((large[0], large.last()), (0.0, Some(&1.0)));
    }
}
