//! Packed matrices, taken apart and put together again.

#[allow(dead_code)] // Another test's half of it.
mod reference;

use formwork_kernels::{
    BlockFormat, Cpu, CpuOptions, PACKED_VERSION, PIECE_BYTES, PackError, PackedForm, Piece,
    QuantMatrix,
};
use proptest::prelude::*;
use reference::blocks;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The version and what packing a known matrix gives in it.
///
/// When this fails, packing has changed. Files with packed weights from before must not be read any more: raise
/// `PACKED_VERSION`, then write the new digests and the new version here.
const PINNED: (u32, [u64; 8]) = (
    1,
    [
        0xa325_7e2e_b123_05aa,
        0xd2a7_c6c5_8059_b3b7,
        0x9d15_6977_14c4_eb49,
        0xc9a0_a83e_930c_5ee4,
        0x6d39_d101_bbe5_3130,
        0xccaa_2249_a7b8_0a83,
        0xdbfe_4a7b_1db1_1ffb,
        0xa7b8_d54f_152b_e22f,
    ],
);

fn cpu(threads: usize) -> Cpu {
    let options = CpuOptions { threads, isa: None };
    Cpu::new(options).expect("threads start")
}

/// FNV-1a, 64 bits.
fn digest(sections: &[&[u8]]) -> u64 {
    let bytes = sections.iter().copied().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn the_packed_form_is_that_of_its_version() {
    let digests = FORMATS.map(|format| {
        let shape = [19, 512];
        let stored = blocks(format, shape, 7);
        let matrix = QuantMatrix::pack(&cpu(1), format, shape, &stored).unwrap();
        digest(&matrix.sections())
    });
    let now = (PACKED_VERSION, digests);
    assert!(now == PINNED, "packed as {now:#018x?}: see PINNED");
}

/// Codes of 4 or 8 bits; scales as the formats themselves have them: half precision per group, or in two levels.
#[test]
fn a_weight_takes_so_many_bits() {
    let bits = FORMATS.map(|format| {
        let shape = [32, 512];
        let stored = blocks(format, shape, 7);
        let matrix = QuantMatrix::pack(&cpu(1), format, shape, &stored).unwrap();
        matrix.bytes() as f64 * 8.0 / (32.0 * 512.0)
    });
    assert_eq!(bits, [4.5, 5.0, 8.5, 9.0, 8.5, 4.625, 8.625, 8.5625]);
}

fn copy(from: &QuantMatrix, threads: usize) -> (QuantMatrix, usize) {
    let calls = AtomicUsize::new(0);
    let form = from.form();
    let form = PackedForm::new(form.format(), form.shape()).expect("a matrix has it");
    let sections = from.sections();
    assert_eq!(sections.map(<[u8]>::len), form.section_bytes());
    let read = QuantMatrix::read(&cpu(threads), form, |piece, bytes| {
        calls.fetch_add(1, Ordering::Relaxed);
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.copy_from_slice(&sections[piece.section][piece.start()..][..bytes.len()]);
        Ok::<_, ()>(())
    });
    (read.expect("nothing fails"), calls.into_inner())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_matrix_put_together_from_its_sections_is_the_same(
        format in prop::sample::select(&FORMATS[..]),
        rows in 1usize..70,
        blocks_per_row in 1usize..4,
        seed: u64,
        threads in 1usize..4,
    ) {
        let shape = [rows, blocks_per_row * format.block_len()];
        let stored = blocks(format, shape, seed);
        let packed = QuantMatrix::pack(&cpu(threads), format, shape, &stored).unwrap();
        let (read, _) = copy(&packed, threads);
        prop_assert_eq!(read.form(), packed.form());
        prop_assert_eq!(read.bytes(), packed.bytes());
        prop_assert_eq!(read.sections(), packed.sections());
        let mut row = vec![0.0; shape[1]];
        let mut same = vec![0.0; shape[1]];
        packed.row(rows - 1, &mut row);
        read.row(rows - 1, &mut same);
        prop_assert_eq!(row, same);
    }
}

#[test]
fn large_matrices_are_read_in_pieces_and_the_first_failure_ends_it() {
    let shape = [1000, 1024];
    let stored = blocks(BlockFormat::Q5_1, shape, 3);
    let packed = QuantMatrix::pack(&cpu(2), BlockFormat::Q5_1, shape, &stored).unwrap();
    let pieces = packed
        .sections()
        .map(|bytes| bytes.len().div_ceil(PIECE_BYTES));
    assert!(pieces[0] > 2);
    let (read, calls) = copy(&packed, 2);
    assert_eq!(calls, pieces.iter().sum());
    assert!(read.sections() == packed.sections());

    let bad = Piece {
        section: 0,
        index: 1,
    };
    let calls = AtomicUsize::new(0);
    let failed = QuantMatrix::read(&cpu(1), packed.form(), |piece, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        if piece == bad { Err(piece) } else { Ok(()) }
    });
    assert_eq!(failed.err(), Some(bad));
    assert_eq!(calls.into_inner(), 2);
}

#[test]
fn forms_that_no_matrix_has_are_refused() {
    let form = |columns, rows| PackedForm::new(BlockFormat::Q4K, [rows, columns]);
    assert!(form(256, 3).is_ok());
    assert!(matches!(form(250, 3), Err(PackError::Columns { .. })));
    assert!(matches!(form(0, 3), Err(PackError::Columns { .. })));
    for rows in [usize::MAX, usize::MAX / 256, usize::MAX / 2048] {
        assert!(matches!(form(256, rows), Err(PackError::Size { .. })));
    }
}
