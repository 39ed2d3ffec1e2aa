//! Each kernel against double precision, on every instruction set, and the two promises of the crate:
//! the same bits on all paths, the same bits whatever the batch.

#[allow(dead_code)] // Shared with the other tests of kernels.
mod reference;

use formwork_kernels::{
    BlockFormat, Cpu, CpuOptions, DenseMatrix, DenseValues, Gated, Input, Isa, Matrix,
    PANEL_OUTPUTS, Pick, QuantMatrix, QuantRows, RopeStyle, RopeTable, gated_product, product,
    product_picked, rms_norm,
};
use half::bf16;
use proptest::prelude::*;
use reference::{Numbers, close};

const FORMATS: [BlockFormat; 8] = [
    BlockFormat::Q4_0,
    BlockFormat::Q4_1,
    BlockFormat::Q5_0,
    BlockFormat::Q5_1,
    BlockFormat::Q8_0,
    BlockFormat::Q4K,
    BlockFormat::Q5K,
    BlockFormat::Q6K,
];

/// One per instruction set of this machine, with one thread and with three.
fn cpus() -> Vec<Cpu> {
    let mut cpus = Vec::new();
    for isa in Isa::available() {
        for threads in [1, 3] {
            cpus.push(cpu(isa, threads));
        }
    }
    cpus
}

fn cpu(isa: Isa, threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        threads,
        isa: Some(isa),
    })
    .expect("the machine has the instructions")
}

fn multiply(cpu: &Cpu, matrices: &[&Matrix], values: &[f32]) -> Vec<f32> {
    let columns = matrices[0].columns();
    let mut quantized = QuantRows::default();
    if columns.is_multiple_of(32) {
        quantized.set(cpu, columns, values);
    }
    let width: usize = matrices.iter().map(|matrix| matrix.rows()).sum();
    let mut out = vec![f32::NAN; values.len() / columns * width];
    let quantized = &quantized;
    product(cpu, matrices, Input { values, quantized }, &mut out);
    out
}

fn quant(format: BlockFormat, shape: [usize; 2], seed: u64) -> Matrix {
    let bytes = reference::blocks(format, shape, seed);
    let cpu = cpu(Isa::Portable, 1);
    Matrix::Quant(QuantMatrix::pack(&cpu, format, shape, &bytes).expect("the shape fits"))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn packed_rows_are_what_the_format_says() {
    for format in FORMATS {
        let shape = [37, 512];
        let bytes = reference::blocks(format, shape, 5);
        let want = reference::dequantize(format, &bytes);
        for cpu in cpus() {
            let matrix = QuantMatrix::pack(&cpu, format, shape, &bytes).unwrap();
            let mut row = vec![0.0; shape[1]];
            for (index, want) in want.chunks_exact(shape[1]).enumerate() {
                matrix.row(index, &mut row);
                close(&row, want, 1e-6, &format!("{format:?} row {index}"));
            }
        }
    }
}

#[test]
fn quantised_products_are_right_and_the_same_on_every_path() {
    for format in FORMATS {
        for (rows, outputs, columns) in [
            (1, 16, 256),
            (3, 5, 512),
            (4, 33, 256),
            (26, 20, 1280),
            (71, 40, 768),
        ] {
            let bytes = reference::blocks(format, [outputs, columns], 11);
            let weights = reference::dequantize(format, &bytes);
            let x = Numbers::new(13).take(rows * columns);
            let want = reference::product(&weights, &reference::round_to_codes(&x), columns);
            let mut first: Option<Vec<u32>> = None;
            for cpu in cpus() {
                let shape = [outputs, columns];
                let matrix = QuantMatrix::pack(&cpu, format, shape, &bytes).unwrap();
                let got = multiply(&cpu, &[&Matrix::Quant(matrix)], &x);
                let name = format!("{format:?} {rows}x{outputs}x{columns} {:?}", cpu.isa());
                close(&got, &want, 1e-4, &name);
                assert_eq!(first.get_or_insert(bits(&got)), &bits(&got), "{name}");
            }
        }
    }
}

#[test]
fn extreme_codes_do_not_overflow() {
    for format in FORMATS {
        let mut bytes = vec![0xff; format.matrix_bytes(16, 256).unwrap()];
        reference::set_scales(format, &mut bytes, 1.0);
        let weights = reference::dequantize(format, &bytes);
        // Few rows and many rows have ways of their own.
        for (value, rows) in [(1.0, 1), (-1.0, 1), (1.0, 26), (-1.0, 26)] {
            let x = vec![value; rows * 256];
            let want = reference::product(&weights, &reference::round_to_codes(&x), 256);
            for cpu in cpus() {
                let matrix = QuantMatrix::pack(&cpu, format, [16, 256], &bytes).unwrap();
                let got = multiply(&cpu, &[&Matrix::Quant(matrix)], &x);
                close(&got, &want, 1e-5, &format!("{format:?} {:?}", cpu.isa()));
            }
        }
    }
}

#[test]
fn dense_products_are_right_and_the_same_on_every_path() {
    for (rows, outputs, columns) in [(1, 16, 7), (5, 3, 33), (9, 50, 64)] {
        let weights = Numbers::new(3).take(outputs * columns);
        let narrow: Vec<bf16> = weights.iter().map(|&w| bf16::from_f32(w)).collect();
        let widened: Vec<f32> = narrow.iter().map(|w| w.to_f32()).collect();
        let x = Numbers::new(4).take(rows * columns);
        for (values, weights) in [
            (DenseValues::F32(&weights), &weights),
            (DenseValues::Bf16(&narrow), &widened),
        ] {
            let want = reference::product(&reference::wide(weights), &reference::wide(&x), columns);
            let matrix = Matrix::Dense(DenseMatrix::pack([outputs, columns], &values).unwrap());
            let mut first: Option<Vec<u32>> = None;
            for cpu in cpus() {
                let got = multiply(&cpu, &[&matrix], &x);
                close(&got, &want, 1e-5, "dense");
                assert_eq!(first.get_or_insert(bits(&got)), &bits(&got));
            }
        }
    }
}

#[test]
fn several_matrices_are_one_after_the_other() {
    let matrices = [
        quant(BlockFormat::Q4_1, [20, 256], 1),
        quant(BlockFormat::Q6K, [3, 256], 2),
        quant(BlockFormat::Q8_0, [48, 256], 3),
    ];
    let x = Numbers::new(9).take(6 * 256);
    let cpu = cpu(Isa::best(), 2);
    let together = multiply(&cpu, &matrices.each_ref(), &x);
    for row in 0..6 {
        let x = &x[row * 256..][..256];
        let apart: Vec<f32> = matrices
            .iter()
            .flat_map(|matrix| multiply(&cpu, &[matrix], x))
            .collect();
        assert_eq!(bits(&together[row * 71..][..71]), bits(&apart));
    }
}

#[test]
fn picked_outputs_are_those_of_the_whole_product_and_others_are_left_alone() {
    let rows = 5;
    for (matrix, outputs) in [
        (quant(BlockFormat::Q8_0, [83, 64], 3), 83),
        (quant(BlockFormat::Q4_1, [16, 64], 4), 16),
    ] {
        let values = &Numbers::new(13).take(rows * 64)[..];
        for cpu in cpus() {
            let whole = multiply(&cpu, &[&matrix], values);
            let quantized = &QuantRows::of(&cpu, 64, values);
            let input = Input { values, quantized };
            let all = (0..rows).flat_map(|row| (0..6).map(move |panel| Pick { row, panel }));
            let picks: Vec<Pick> = all
                .filter(|pick| (pick.row * 7 + pick.panel) % 3 != 1)
                .filter(|pick| pick.panel * PANEL_OUTPUTS < outputs)
                .collect();
            let mut out = vec![7.0; rows * outputs];
            product_picked(&cpu, &matrix, input, &picks, &mut out);
            for (index, (&got, &want)) in out.iter().zip(&whole).enumerate() {
                let (row, panel) = (index / outputs, index % outputs / PANEL_OUTPUTS);
                let want = match picks.contains(&Pick { row, panel }) {
                    true => want,
                    false => 7.0,
                };
                assert_eq!(got.to_bits(), want.to_bits(), "row {row}, panel {panel}");
            }
        }
    }
}

#[test]
fn norms_are_right_and_the_same_on_every_path() {
    for n in [1, 16, 37, 576] {
        let x = Numbers::new(n as u64).take(3 * n);
        let weight = Numbers::new(2).take(n);
        let norm_want = reference::rms_norm(&x, &weight, 1e-5);
        let mut first: Option<Vec<u32>> = None;
        for cpu in cpus() {
            let mut normed = vec![0.0; 3 * n];
            rms_norm(&cpu, &weight, 1e-5, &x, &mut normed);
            close(&normed, &norm_want, 1e-5, "norm");
            let got = bits(&normed);
            assert_eq!(first.get_or_insert(got.clone()), &got);
        }
    }
}

/// The gated product against the product of each matrix by itself, gated in double precision.
#[test]
fn gated_products_are_right_and_the_same_on_every_path() {
    for (format, rows, n) in [
        (BlockFormat::Q4_1, 1, 32),
        (BlockFormat::Q4_0, 5, 96),
        (BlockFormat::Q4_1, 27, 64),
        (BlockFormat::Q8_0, 70, 32),
    ] {
        let columns = 256;
        let matrices = [
            quant(format, [n, columns], 3),
            quant(format, [n, columns], 4),
        ];
        let x: Vec<f32> = Numbers::new(6).take(rows * columns);
        let mut first: Option<Vec<u32>> = None;
        for cpu in cpus() {
            let both = multiply(&cpu, &[&matrices[0], &matrices[1]], &x);
            let quantized = &QuantRows::of(&cpu, columns, &x);
            let input = Input {
                values: &x,
                quantized,
            };
            let [gate, up] = &matrices;
            let mut got = vec![f32::NAN; rows * n];
            gated_product(&cpu, [gate, up], input, Gated::Values(&mut got));
            close(&got, &reference::silu_mul(&both, n), 1e-5, "gated");
            let mut codes = QuantRows::default();
            gated_product(&cpu, [gate, up], input, Gated::Quantized(&mut codes));
            assert_eq!(codes, QuantRows::of(&cpu, n, &got));
            assert_eq!(first.get_or_insert(bits(&got)), &bits(&got));
        }
    }
}

/// Dense matrices and widths that are no multiple of 32 or 16, in single precision.
#[test]
fn gated_products_of_any_width_are_right() {
    for (rows, n, columns) in [(1, 7, 5), (6, 50, 33), (66, 16, 64)] {
        let dense = |seed| {
            let weights = Numbers::new(seed).take(n * columns);
            let values = DenseValues::F32(&weights);
            Matrix::Dense(DenseMatrix::pack([n, columns], &values).unwrap())
        };
        let (gate, up) = (dense(3), dense(4));
        let x = Numbers::new(6).take(rows * columns);
        for cpu in cpus() {
            let both = multiply(&cpu, &[&gate, &up], &x);
            let input = Input {
                values: &x,
                quantized: &QuantRows::default(),
            };
            let mut got = vec![f32::NAN; rows * n];
            gated_product(&cpu, [&gate, &up], input, Gated::Values(&mut got));
            close(&got, &reference::silu_mul(&both, n), 1e-5, "gated");
        }
    }
}

#[test]
fn rotation_turns_pairs_by_position_times_frequency() {
    let frequencies = [1.0, 0.25, 0.01];
    for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
        let table = RopeTable::new(style, &frequencies, 100);
        let before = Numbers::new(8).take(2 * 8);
        let mut after = before.clone();
        table.apply(77, 8, &mut after);
        for (before, after) in before.chunks_exact(8).zip(after.chunks_exact(8)) {
            for (pair, frequency) in frequencies.iter().enumerate() {
                let (i, j) = match style {
                    RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                    RopeStyle::Halves => (pair, pair + 3),
                };
                let (sin, cos) = (77.0 * frequency).sin_cos();
                let (a, b) = (f64::from(before[i]), f64::from(before[j]));
                let want = [a * cos - b * sin, a * sin + b * cos];
                close(&[after[i], after[j]], &want, 1e-5, "rotation");
            }
            assert_eq!(before[6..], after[6..]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_row_of_a_product_does_not_depend_on_its_batch(
        format in proptest::sample::select(&FORMATS[..]),
        order in proptest::collection::vec(0usize..9, 1..20),
        outputs in 1usize..50,
        threads in 1usize..4,
    ) {
        let matrix = quant(format, [outputs, 256], 21);
        let rows = Numbers::new(22).take(9 * 256);
        let row = |index: usize| &rows[index * 256..][..256];
        let batch: Vec<f32> = order.iter().flat_map(|&index| row(index).to_vec()).collect();
        let together = multiply(&cpu(Isa::best(), threads), &[&matrix], &batch);
        let alone_cpu = cpu(Isa::best(), 1);
        for (&index, got) in order.iter().zip(together.chunks_exact(outputs)) {
            let alone = multiply(&alone_cpu, &[&matrix], row(index));
            prop_assert_eq!(bits(got), bits(&alone));
        }
    }
}
