//! Files of packed weights, apart from the models that they belong to.

#![cfg(unix)]

mod damage;
mod places;

use super::read::Reader;
use super::source::{ModelFile, Tensors};
use super::{PackedCache, PackedError, Pending, UNFINISHED, Wanted, packed_file, with_suffix};
use formwork_kernels::{BlockFormat, Cpu, CpuOptions, QuantMatrix};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Name, format, shape. The last one has two pieces in its first section.
const MATRICES: [(&str, BlockFormat, [usize; 2]); 5] = [
    ("a", BlockFormat::Q4_1, [33, 64]),
    ("b", BlockFormat::Q4K, [16, 256]),
    ("c", BlockFormat::Q6K, [7, 512]),
    ("d", BlockFormat::Q8_0, [1, 32]),
    ("e", BlockFormat::Q5_1, [272, 1024]),
];

/// Long enough that tensors are larger than their samples.
const MODEL: [u8; 4000] = {
    let mut bytes = [0; 4000];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at * 7 % 251) as u8;
        at += 1;
    }
    bytes
};

fn cpu(threads: usize) -> Cpu {
    Cpu::new(CpuOptions { threads, isa: None }).unwrap()
}

/// A matrix, and its bytes in the model's file.
struct Kept {
    name: &'static str,
    stored: Vec<u8>,
    matrix: QuantMatrix,
}

fn matrices(cpu: &Cpu, seed: u64) -> Vec<Kept> {
    let mut state = seed;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    MATRICES
        .map(|(name, format, shape)| {
            let len = format.matrix_bytes(shape[0], shape[1]).unwrap();
            let stored: Vec<u8> = (0..len).map(|_| next()).collect();
            let matrix = QuantMatrix::pack(cpu, format, shape, &stored).unwrap();
            Kept {
                name,
                stored,
                matrix,
            }
        })
        .into()
}

/// A folder with a file that stands for a model's, and matrices to keep beside it.
struct House {
    folder: TempDir,
    cpu: Cpu,
    matrices: Vec<Kept>,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cpu = cpu(2);
        let matrices = matrices(&cpu, 1);
        let house = Self {
            folder,
            cpu,
            matrices,
        };
        fs::write(house.model(), MODEL).unwrap();
        house
    }

    fn model(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }

    fn packed(&self) -> PathBuf {
        packed_file(&self.model())
    }

    fn unfinished(&self) -> PathBuf {
        with_suffix(&self.packed(), UNFINISHED)
    }

    fn file(&self) -> ModelFile {
        let bytes = fs::read(self.model()).unwrap();
        let tensors = Tensors {
            header: &bytes[..1000],
            ranges: vec![2500..4000, 1024..2500, 9000..9100],
        };
        ModelFile::of(&File::open(self.model()).unwrap(), tensors).unwrap()
    }

    fn write(&self) -> Result<u64, PackedError> {
        self.write_until(&AtomicBool::new(false))
    }

    fn write_until(&self, stop: &AtomicBool) -> Result<u64, PackedError> {
        let matrices = self.matrices.iter();
        let matrices = matrices.map(|kept| (kept.name.to_owned(), &kept.matrix));
        let pending = Pending {
            path: self.packed(),
            model: self.file(),
            damaged: false,
        };
        pending.write(&matrices.collect::<Vec<_>>(), stop)
    }

    /// Reads everything; an error unless each matrix is what was written.
    fn read(&self) -> Result<(), PackedError> {
        let mut reader = Reader::open(&self.packed(), &self.file())?;
        for ((name, format, shape), kept) in MATRICES.iter().zip(&self.matrices) {
            let wanted = Wanted {
                name,
                format: *format,
                shape: *shape,
                stored: &kept.stored,
            };
            let read = reader.matrix(&self.cpu, wanted)?;
            assert!(
                read.sections() == kept.matrix.sections(),
                "{name} is another one"
            );
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn reason(result: Result<impl Sized, PackedError>) -> String {
    result.err().expect("it is refused").to_string()
}

#[test]
fn what_was_kept_is_read_again() {
    let house = House::new();
    assert!(matches!(house.read(), Err(PackedError::Io(_))));
    let bytes = house.write().unwrap();
    assert_eq!(bytes, fs::metadata(house.packed()).unwrap().len());
    house.read().unwrap();
    assert_eq!(house.names(), ["model.gguf", "model.gguf.packed"]);
    // A second writer finds it done.
    let before = fs::metadata(house.packed()).unwrap().modified().unwrap();
    assert_eq!(house.write().unwrap(), bytes);
    let after = fs::metadata(house.packed()).unwrap().modified().unwrap();
    assert_eq!((before, house.names().len()), (after, 2));
}

#[test]
fn another_state_of_the_model_is_noticed() {
    let house = House::new();
    house.write().unwrap();
    let time = fs::metadata(house.model()).unwrap().modified().unwrap();
    // Another size; the header; the middle of each tensor; the time alone.
    let mut longer = MODEL.to_vec();
    longer.push(0);
    let changed = |at: usize| {
        let mut bytes = MODEL.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    for bytes in [longer, changed(3), changed(1762), changed(3250)] {
        fs::write(house.model(), &bytes).unwrap();
        let file = File::options().write(true).open(house.model()).unwrap();
        file.set_modified(time).unwrap();
        assert!(matches!(house.read(), Err(PackedError::Stale)));
    }
    fs::write(house.model(), MODEL).unwrap();
    let file = File::options().write(true).open(house.model()).unwrap();
    file.set_modified(time).unwrap();
    house.read().unwrap();
    file.set_modified(time + std::time::Duration::from_nanos(1_000))
        .unwrap();
    assert!(matches!(house.read(), Err(PackedError::Stale)));
    house.write().unwrap();
    house.read().unwrap();
}

#[test]
fn what_cannot_be_finished_leaves_nothing() {
    let house = House::new();
    let stopped = house.write_until(&AtomicBool::new(true));
    assert!(matches!(stopped, Err(PackedError::Stopped)));
    assert_eq!(house.names(), ["model.gguf"]);
    // Another process is at it.
    fs::write(house.unfinished(), "theirs").unwrap();
    let theirs = File::open(house.unfinished()).unwrap();
    theirs.lock().unwrap();
    assert!(matches!(house.write(), Err(PackedError::Busy)));
    assert_eq!(fs::read(house.unfinished()).unwrap(), b"theirs");
    // It was killed.
    drop(theirs);
    house.write().unwrap();
    house.read().unwrap();
    assert_eq!(house.names(), ["model.gguf", "model.gguf.packed"]);
}

#[test]
fn modes_are_known_by_name_and_by_size() {
    for mode in PackedCache::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("on".parse::<PackedCache>().unwrap_err().contains("auto"));
    let wants = |mode: PackedCache| [0, 1, 64 << 20].map(|bytes| mode.wants(bytes));
    assert_eq!(wants(PackedCache::Never), [false, false, false]);
    assert_eq!(wants(PackedCache::Auto), [false, false, true]);
    assert_eq!(wants(PackedCache::Always), [false, true, true]);
}
