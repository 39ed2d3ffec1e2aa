//! What a machine can do at most, measured: the figures that kernels are held against.

use crate::{Cpu, Isa};
use std::hint::black_box;
use std::time::Instant;

/// Rates of all threads of a [`Cpu`] together.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// Bytes per second that reading memory far larger than the caches gives.
    pub read_bytes_per_second: f64,
    /// Multiplications and additions of 8-bit integers per second, in the instructions that products
    /// of quantised matrices are made of, without loads.
    pub int8_operations_per_second: f64,
    /// Multiplications and additions in single precision per second, without loads.
    pub f32_flops_per_second: f64,
}

/// Bytes read per thread and measurement.
const READ_BYTES: usize = 64 << 20;
/// Rounds of eight vector operations.
const ROUNDS: usize = 400_000;
/// Measurements, of which the best counts.
const TRIES: usize = 5;

impl Cpu {
    /// Measures for about a tenth of a second.
    #[must_use]
    pub fn ceilings(&self) -> Ceilings {
        let memory = vec![1u64; READ_BYTES / 8 * self.threads()];
        let part = memory.len() / self.threads();
        let isa = self.isa();
        let lanes = match isa {
            Isa::Portable => 1.0,
            Isa::Avx2 => 8.0,
            Isa::Avx512Vnni => 16.0,
        };
        // Eight vectors a round; per 32-bit lane four 8-bit or one floating-point product and sum.
        let vectors = (ROUNDS * 8 * self.threads()) as f64 * lanes;
        Ceilings {
            read_bytes_per_second: self.best(memory.len() as f64 * 8.0, |thread| {
                black_box(read(&memory[thread * part..(thread + 1) * part]));
            }),
            int8_operations_per_second: self.best(vectors * 8.0, |_| dots(isa)),
            f32_flops_per_second: self.best(vectors * 2.0, |_| fmas(isa)),
        }
    }

    /// `amount` over the least time that one piece of work per thread took.
    fn best(&self, amount: f64, work: impl Fn(usize) + Sync) -> f64 {
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let start = Instant::now();
            self.for_each(self.threads(), &work);
            least = least.min(start.elapsed().as_secs_f64());
        }
        amount / least
    }
}

fn read(memory: &[u64]) -> u64 {
    let (chunks, _) = memory.as_chunks::<32>();
    let mut sums = [0u64; 32];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum |= value;
        }
    }
    sums.iter().fold(0, |a, b| a | b)
}

fn dots(isa: Isa) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Cpu` only carries an instruction set that the machine has.
        Isa::Avx2 => unsafe { x86::dots_avx2() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512Vnni => unsafe { x86::dots_avx512() },
        _ => {
            let mut sums = [1i32; 32];
            for round in 0..ROUNDS {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(i32::from(black_box(round as i8)) * lane as i32);
                }
            }
            black_box(sums);
        }
    }
}

fn fmas(isa: Isa) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Cpu` only carries an instruction set that the machine has.
        Isa::Avx2 => unsafe { x86::fmas_avx2() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512Vnni => unsafe { x86::fmas_avx512() },
        _ => {
            let mut sums = [1f32; 8];
            for round in 0..ROUNDS {
                let factor = black_box(round as f32);
                for sum in &mut sums {
                    *sum = *sum * factor + factor;
                }
            }
            black_box(sums);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::ROUNDS;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx2")]
    pub(super) fn dots_avx2() {
        let mut sums = [_mm256_setzero_si256(); 8];
        let (mut a, b) = (_mm256_set1_epi8(3), black_box(_mm256_set1_epi8(5)));
        for _ in 0..ROUNDS {
            // SAFETY: the assembly is empty; it only pretends to change a register, so that products
            // are computed in each round.
            unsafe {
                std::arch::asm!("/* {0} */", inout(ymm_reg) a, options(pure, nomem, nostack, preserves_flags));
            }
            for sum in &mut sums {
                let product = _mm256_maddubs_epi16(a, b);
                // SAFETY: as above: each sum gets a product of its own.
                unsafe {
                    std::arch::asm!("/* {0} */", inout(ymm_reg) a, options(pure, nomem, nostack, preserves_flags));
                }
                *sum = _mm256_add_epi16(*sum, product);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dots_avx512() {
        let mut sums = [_mm512_setzero_si512(); 8];
        let (a, b) = (_mm512_set1_epi32(3), black_box(_mm512_set1_epi32(5)));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fmas_avx2() {
        let mut sums = [_mm256_set1_ps(1.0); 8];
        let (a, b) = (
            black_box(_mm256_set1_ps(0.5)),
            black_box(_mm256_set1_ps(0.25)),
        );
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, *sum, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn fmas_avx512() {
        let mut sums = [_mm512_set1_ps(1.0); 8];
        let (a, b) = (
            black_box(_mm512_set1_ps(0.5)),
            black_box(_mm512_set1_ps(0.25)),
        );
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, *sum, b);
            }
        }
        black_box(sums);
    }
}
