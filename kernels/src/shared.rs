//! A slice that several threads write disjoint parts of.

use std::marker::PhantomData;
use std::ops::Range;

/// Borrows a slice mutably and lends out parts of it to threads.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: `Shared` stands for the `&mut [T]` that it was made from, which may move between threads
// when `T` may.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: the only access through a shared reference is `part`, whose caller vouches that parts do
// not overlap, so no element is reached from two threads.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            owner: PhantomData,
        }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// No two parts that exist at the same time may overlap.
    ///
    /// # Panics
    /// When `range` is outside the slice.
    #[allow(clippy::mut_from_ref)] // The caller vouches for disjointness, as the name of the type says.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of {} elements",
            self.len
        );
        // SAFETY: the range is inside the slice that `self` borrows mutably, and the caller vouches
        // that no other part overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// No part that exists at the same time may hold the element, and no other thread may write it.
    ///
    /// # Panics
    /// When `index` is outside the slice.
    #[inline]
    pub(crate) unsafe fn set(&self, index: usize, value: T)
    where
        T: Copy,
    {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: the element is inside the slice that `self` borrows mutably, and the caller vouches
        // that nobody else reaches it.
        unsafe { self.start.add(index).write(value) }
    }
}
