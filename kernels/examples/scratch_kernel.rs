//! scratch
use formwork_kernels::*;
use std::time::Instant;
fn main() {
    let cpu = Cpu::new(CpuOptions { threads: 1, isa: None }).unwrap();
    for format in [BlockFormat::Q4_1, BlockFormat::Q8_0, BlockFormat::Q6K] {
        let (o, c) = if format == BlockFormat::Q6K { (1024, 512) } else { (1536, 576) };
        let bytes: Vec<u8> = (0..format.matrix_bytes(o, c).unwrap()).map(|i| (i * 7919 % 251) as u8 & 0x3b).collect();
        let m = Matrix::Quant(QuantMatrix::pack(&cpu, format, [o, c], &bytes).unwrap());
        for rows in [1, 2, 3, 4, 8, 64] {
            let x: Vec<f32> = (0..rows * c).map(|i| ((i * 31 % 97) as f32 - 48.0) / 50.0).collect();
            let mut q = QuantRows::default();
            q.set(&cpu, c, &x);
            let mut out = vec![0.0; rows * o];
            let mut best = f64::MAX;
            for _ in 0..400 / rows.min(10) {
                let t = Instant::now();
                product(&cpu, &[&m], Input { values: &x, quantized: &q }, &mut out);
                best = best.min(t.elapsed().as_secs_f64());
            }
            println!("{format:?} rows {rows}: {:.1} us, {:.1} GMAC/s, {:.1} GB/s", best * 1e6, (rows * o * c) as f64 / best / 1e9, m.bytes() as f64 / best / 1e9);
        }
    }
    // clock estimate: dependent adds
    let t = Instant::now(); let mut a = 1u64; for _ in 0..300_000_000u64 { a = std::hint::black_box(a).wrapping_add(3); } println!("adds {:?} {a}", t.elapsed());
}
