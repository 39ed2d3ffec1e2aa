//! The threads and the instruction set that kernels run on.

use crate::pool::Pool;
use crate::shared::Shared;
use crate::slab::Slabs;
use std::ops::Range;

/// Calls a kernel's AVX2 build where the machine has AVX2, else the plain one.
macro_rules! on_isa {
    ($isa:expr, $plain:expr, $avx2:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if $isa == $crate::Isa::Portable {
            $plain
        } else {
            // SAFETY: `Cpu` only carries an instruction set that the machine has, and every set but
            // `Portable` includes AVX2, FMA and F16C.
            unsafe { $avx2 }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            $plain
        }
    }};
}
pub(crate) use on_isa;

/// An instruction set that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust; runs everywhere, slowly where the target has no fused multiply-add.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and VNNI, and all of [`Isa::Avx2`].
    Avx512Vnni,
}

impl Isa {
    /// What this machine can run, best last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                sets.push(Self::Avx2);
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                sets.push(Self::Avx512Vnni);
            }
        }
        sets
    }

    /// The best of [`Isa::available`].
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }
}

/// How to make a [`Cpu`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads; 0 takes one per core.
    pub threads: usize,
    /// Instruction set; `None` takes the best there is.
    pub isa: Option<Isa>,
}

/// Why a [`Cpu`] could not be made.
#[derive(Debug)]
pub enum CpuError {
    /// The operating system gave no threads.
    Threads(std::io::Error),
    /// The machine lacks the instruction set asked for.
    Unsupported(Isa),
}

impl std::fmt::Display for CpuError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Threads(error) => write!(f, "cannot start compute threads: {error}"),
            Self::Unsupported(isa) => write!(f, "this machine has no {isa:?} instructions"),
        }
    }
}

impl std::error::Error for CpuError {}

/// A pool of compute threads, the instruction set they use, and memory for weights. Kernels take it by
/// reference.
pub struct Cpu {
    isa: Isa,
    /// All threads but one: whoever calls a kernel works, too.
    pool: Pool,
    slabs: Slabs,
}

impl Cpu {
    /// Starts the threads.
    ///
    /// # Errors
    /// When threads cannot be started or the machine lacks the instruction set.
    pub fn new(options: CpuOptions) -> Result<Self, CpuError> {
        let isa = options.isa.unwrap_or_else(Isa::best);
        if !Isa::available().contains(&isa) {
            return Err(CpuError::Unsupported(isa));
        }
        let threads = if options.threads == 0 {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            options.threads
        };
        let pool = Pool::new(threads - 1).map_err(CpuError::Threads)?;
        Ok(Self {
            isa,
            pool,
            slabs: Slabs::default(),
        })
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that work on a kernel, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.helpers() + 1
    }

    /// Where packed weights go.
    pub(crate) fn slabs(&self) -> &Slabs {
        &self.slabs
    }

    /// Calls `work` for disjoint ranges that together cover `0..items`, in parallel. There are at most as
    /// many as there are `grain` items.
    pub fn for_ranges(&self, items: usize, grain: usize, work: impl Fn(Range<usize>) + Sync) {
        let most = items.div_ceil(grain.max(1));
        if most <= 1 || self.threads() == 1 {
            if items > 0 {
                work(0..items);
            }
            return;
        }
        // A few pieces per thread, so that a thread the system took away does not hold up the rest. Where
        // there is enough to do they become smaller, so that all threads end at nearly the same time.
        let pieces = self.threads() * 4;
        if most <= pieces {
            self.pool.run(most, &|piece| {
                work(piece * items / most..(piece + 1) * items / most);
            });
            return;
        }
        let left = |piece: usize| items * (pieces - piece).pow(2) / pieces.pow(2);
        self.pool.run(pieces, &|piece| {
            let range = items - left(piece)..items - left(piece + 1);
            if !range.is_empty() {
                work(range);
            }
        });
    }

    /// Calls `work` for each of `0..items`, in parallel, each a piece of its own: for items of very
    /// different size.
    pub fn for_each(&self, items: usize, work: impl Fn(usize) + Sync) {
        self.pool.run(items, &work);
    }

    /// Calls `work` for each of `items` with its row of `rows`, in parallel.
    ///
    /// # Panics
    /// When `rows` does not consist of as many rows of `width` as there are items.
    pub fn for_rows<T: Send, R: Send>(
        &self,
        items: &mut [T],
        (rows, width): (&mut [R], usize),
        work: impl Fn(&mut T, &mut [R]) + Sync,
    ) {
        let count = items.len();
        assert_eq!(rows.len(), count * width);
        let (items, rows) = (Shared::new(items), Shared::new(rows));
        self.pool.run(count, &|index| {
            // SAFETY: each index is visited once.
            let (item, row) = unsafe {
                (
                    items.part(index..index + 1),
                    rows.part(index * width..(index + 1) * width),
                )
            };
            work(&mut item[0], row);
        });
    }
}
