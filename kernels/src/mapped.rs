//! Files mapped into memory, for reading weights without a copy of the file.

use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;

/// A file's bytes, as the system holds them in its cache.
///
/// Whoever cuts the file short while it is mapped ends this process with a bus error, and whoever writes
/// to it changes the bytes under the reader: map only what nobody else touches, for as long as it is read.
pub struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps a whole file.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(file: &File) -> std::io::Result<Self> {
        // SAFETY: the mapping is private and read only, so nothing in this process can change it. The bytes
        // are only ever copied and compared; a value that changes meanwhile gives wrong numbers, and no
        // reference is made from them. Cutting the file short is ruled out by the type's contract.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self { map })
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Says that `range` will be read soon, so that the system starts to fetch it. Never fails: it is advice.
    pub fn will_need(&self, range: Range<usize>) {
        #[cfg(unix)]
        if range.start < range.end && range.end <= self.map.len() {
            let advice = memmap2::Advice::WillNeed;
            let _ = self.map.advise_range(advice, range.start, range.len());
        }
    }

    /// Says that `range` was read for the last time: its pages no longer count as this process's memory.
    /// Reading it again is slower, not wrong.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if range.start < range.end && range.end <= self.map.len() {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: a private mapping that was never written to has the file's bytes again when it is read
            // the next time, so references into it stay true.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(advice, range.start, range.len())
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MappedFile;
    use std::io::Write;

    #[test]
    fn a_file_reads_the_same_before_and_after_its_pages_are_released() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(MappedFile::new(&file).unwrap().bytes().is_empty());
        let content: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        file.write_all(&content).unwrap();
        let map = MappedFile::new(&file).unwrap();
        for range in [0..1, 5_000..70_001, 99_999..100_000, 0..100_000, 3..3] {
            map.will_need(range.clone());
            assert_eq!(map.bytes(), content);
            map.release(range);
            assert_eq!(map.bytes(), content);
        }
        // Out of range: advice that makes no sense is not given.
        map.release(99_999..100_001);
        map.will_need(200_000..300_000);
    }
}
