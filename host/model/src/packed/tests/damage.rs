//! Files that are not as they were written.

use super::{House, matrices, reason};
use crate::packed::PackedError;
use crate::packed::table::{Frame, Table};
use formwork_kernels::PIECE_BYTES;
use proptest::prelude::*;
use std::fs::{self, File};

/// Which bytes of the file are covered by a checksum or compared.
fn covered(house: &House) -> Vec<bool> {
    let bytes = fs::read(house.packed()).unwrap();
    let mut covered = vec![false; bytes.len()];
    covered[..40].fill(true);
    let table_at = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    covered[table_at as usize..].fill(true);
    let file = File::open(house.packed()).unwrap();
    let table = Table::read(&file, bytes.len() as u64).unwrap();
    for section in table.tensors.iter().flat_map(|tensor| &tensor.sections) {
        assert_eq!(section.at % 4096, 0);
        covered[section.at as usize..(section.at + section.bytes) as usize].fill(true);
    }
    covered
}

#[test]
fn no_changed_bit_goes_unnoticed() {
    let house = House::new();
    house.write().unwrap();
    assert!(house.matrices[4].matrix.sections()[0].len() > PIECE_BYTES);
    let whole = fs::read(house.packed()).unwrap();
    let covered = covered(&house);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    // Half of them where the structure is: the frame and the table.
    let table = covered.len() - 2000..covered.len();
    let places = prop_oneof![0..covered.len(), 0usize..48, table];
    runner
        .run(&(places, 1u8..=255), |(at, flip)| {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(house.packed(), &bytes).unwrap();
            prop_assert_eq!(house.read().is_err(), covered[at], "byte {}", at);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_file_of_another_length_is_refused() {
    let house = House::new();
    house.write().unwrap();
    let whole = fs::read(house.packed()).unwrap();
    let lengths = (0..48).chain((0..whole.len()).step_by(whole.len() / 60));
    for len in lengths.chain(whole.len() - 48..whole.len()) {
        fs::write(house.packed(), &whole[..len]).unwrap();
        assert!(house.read().is_err(), "{len} bytes");
    }
    fs::write(house.packed(), [&whole[..], &[0]].concat()).unwrap();
    assert!(reason(house.read()).contains("longer"));
    // Each of these costs no more than a packing.
    house.write().unwrap();
    house.read().unwrap();
}

/// Changes the table's text and makes the checksums right again.
fn forge(house: &House, whole: &[u8], from: &str, to: &str) {
    let table_at = u64::from_le_bytes(whole[16..24].try_into().unwrap());
    let table = String::from_utf8(whole[table_at as usize..].to_vec()).unwrap();
    assert!(table.contains(from), "the table has {from}");
    let table = table.replacen(from, to, 1).into_bytes();
    let mut bytes = whole[..table_at as usize].to_vec();
    bytes[..40].copy_from_slice(&Frame::of(table_at, &table).to_bytes());
    bytes.extend(table);
    fs::write(house.packed(), bytes).unwrap();
}

#[test]
fn tables_that_make_no_sense_are_refused_even_with_right_checksums() {
    let house = House::new();
    house.write().unwrap();
    let whole = fs::read(house.packed()).unwrap();
    forge(&house, &whole, "\"a\"", "\"a\"");
    house.read().unwrap();
    for (from, to, want) in [
        ("\"at\":4096", "\"at\":18446744073709551615", "impossible"),
        ("\"at\":4096", "\"at\":100000000", "impossible"),
        ("\"at\":4096", "\"at\":4097", "checksum"),
        ("\"at\":4096", "\"at\":-1", "table"),
        ("\"checksums\":[", "\"checksums\":[1,", "impossible"),
        (
            "\"checksums\":[",
            "\"no\":1,\"checksums\":[",
            "unknown field",
        ),
        ("\"bytes\":1536", "\"bytes\":1535", "not what"),
        (
            "\"bytes\":1536",
            "\"bytes\":18446744073709551615",
            "impossible",
        ),
        ("\"shape\":[33,64]", "\"shape\":[64,33]", "not what"),
        ("\"shape\":[33,64]", "\"shape\":[0,0]", "not what"),
        ("\"format\":\"Q4_1\"", "\"format\":\"Q4_0\"", "not what"),
        ("\"name\":\"a\"", "\"name\":\"z\"", "a is missing"),
        ("{", "[", "table"),
    ] {
        forge(&house, &whole, from, to);
        let reason = reason(house.read());
        assert!(reason.contains(want), "{from} to {to}: {reason}");
    }
}

#[test]
fn files_of_other_versions_are_told_apart_from_damaged_ones() {
    let house = House::new();
    house.write().unwrap();
    let mut bytes = fs::read(house.packed()).unwrap();
    for at in [8, 12] {
        let mut bytes = bytes.clone();
        bytes[at] += 1;
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..40].copy_from_slice(&checksum.to_le_bytes());
        fs::write(house.packed(), &bytes).unwrap();
        assert!(matches!(house.read(), Err(PackedError::Version { .. })));
    }
    bytes[0] = b'X';
    fs::write(house.packed(), &bytes).unwrap();
    assert!(matches!(house.read(), Err(PackedError::Damaged(_))));
}

#[test]
fn weights_that_were_packed_otherwise_are_refused_though_nothing_else_tells() {
    let house = House::new();
    let [mut first, mut last] = [House::new(), House::new()];
    first.matrices[0] = matrices(&first.cpu, 2).swap_remove(0);
    last.matrices[4] = matrices(&last.cpu, 2).swap_remove(4);
    for (other, name) in [(first, "a"), (last, "e")] {
        // As another version of the program would have written it.
        other.write().unwrap();
        fs::copy(other.packed(), house.packed()).unwrap();
        let time = fs::metadata(other.model()).unwrap().modified().unwrap();
        let model = File::options().write(true).open(house.model()).unwrap();
        model.set_modified(time).unwrap();
        let refused = house.read();
        assert!(matches!(refused, Err(PackedError::Differs(which)) if which == name));
    }
}
