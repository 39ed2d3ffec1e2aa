//! The threads and the instruction set that kernels run on.

use rayon::prelude::*;
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
    Threads(rayon::ThreadPoolBuildError),
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

/// A pool of compute threads and the instruction set they use. Kernels take it by reference.
pub struct Cpu {
    pool: rayon::ThreadPool,
    isa: Isa,
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
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|index| format!("compute-{index}"))
            .build()
            .map_err(CpuError::Threads)?;
        Ok(Self { pool, isa })
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads in the pool.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on one of the pool's threads and waits for it. Kernels called from inside start
    /// faster than from outside, so a whole forward pass belongs in one call.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Runs `work` on one of the pool's threads and does not wait for it.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        self.pool.spawn(work);
    }

    /// Calls `work` for disjoint ranges that together cover `0..items`, in parallel. Ranges are
    /// `grain` items long or longer, but for the last one.
    pub fn for_ranges(&self, items: usize, grain: usize, work: impl Fn(Range<usize>) + Sync) {
        // A few pieces per thread, so that a thread the system took away does not hold up the rest.
        let pieces = (self.threads() * 3).min(items.div_ceil(grain.max(1)));
        if pieces <= 1 || self.threads() == 1 {
            if items > 0 {
                work(0..items);
            }
            return;
        }
        self.pool.install(|| {
            (0..pieces)
                .into_par_iter()
                .with_max_len(1)
                .for_each(|piece| {
                    work(piece * items / pieces..(piece + 1) * items / pieces);
                });
        });
    }

    /// Calls `work` for each of `0..items`, in parallel, each a piece of its own: for items of very
    /// different size.
    pub fn for_each(&self, items: usize, work: impl Fn(usize) + Sync + Send) {
        if items <= 1 || self.threads() == 1 {
            (0..items).for_each(work);
            return;
        }
        self.pool
            .install(|| (0..items).into_par_iter().with_max_len(1).for_each(work));
    }

    /// The results of `work` for each of `items`, computed in parallel.
    pub fn map<T: Send, R: Send>(
        &self,
        items: &mut [T],
        work: impl Fn(&mut T) -> R + Sync + Send,
    ) -> Vec<R> {
        if items.len() <= 1 || self.threads() == 1 {
            return items.iter_mut().map(work).collect();
        }
        self.pool
            .install(|| items.par_iter_mut().map(work).collect())
    }
}
