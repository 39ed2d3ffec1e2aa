//! Operations that do several things in one pass give the bits of these things one by one.

#[allow(dead_code)] // Shared with the other tests of kernels.
mod reference;

use formwork_kernels::{
    AddNorm, AttentionShape, Cpu, CpuOptions, Isa, KvCache, KvDtype, KvShape, Placement, QuantRows,
    RopeStyle, RopeTable, RotateAndStore, Segment, add_assign, attention, rms_norm,
};
use reference::Numbers;

/// One per instruction set of this machine, with one thread and with three.
fn cpus() -> Vec<Cpu> {
    let mut cpus = Vec::new();
    for isa in Isa::available() {
        for threads in [1, 3] {
            let isa = Some(isa);
            cpus.push(Cpu::new(CpuOptions { threads, isa }).expect("the threads start"));
        }
    }
    cpus
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn fused_operations_give_the_bits_of_their_parts() {
    let (n, rows) = (64, 5);
    let mut numbers = Numbers::new(31);
    let (weight, before, delta) = (
        numbers.take(n),
        numbers.take(rows * n),
        numbers.take(rows * n),
    );
    for cpu in cpus() {
        let mut summed = before.clone();
        add_assign(&mut summed, &delta);
        let mut apart = vec![0.0; rows * n];
        rms_norm(&cpu, &weight, 1e-5, &summed, &mut apart);

        let (mut hidden, mut fused) = (before.clone(), vec![0.0; rows * n]);
        let mut quantized = QuantRows::default();
        let norm = AddNorm {
            weight: &weight,
            epsilon: 1e-5,
            delta: Some(&delta),
        };
        norm.run(&cpu, &mut hidden, &mut fused, Some(&mut quantized));
        assert_eq!(bits(&hidden), bits(&summed));
        assert_eq!(bits(&fused), bits(&apart));
        assert_eq!(quantized, QuantRows::of(&cpu, n, &apart));
    }
}

#[test]
fn rotating_and_storing_at_once_is_the_same_as_row_by_row() {
    KvDtype::ALL.into_iter().for_each(rotate_and_store);
}

fn rotate_and_store(dtype: KvDtype) {
    let kv = KvShape {
        blocks: 3,
        block_size: 16,
        kv_heads: 2,
        head_dim: 16,
        dtype,
    };
    let (heads, rows) = (4, 40);
    let (queries, keys) = (heads * kv.head_dim, kv.kv_heads * kv.head_dim);
    let stride = queries + 2 * keys;
    let before = Numbers::new(41).take(rows * stride);
    let rope = RopeTable::new(RopeStyle::Halves, &[1.0, 0.3, 0.01], rows);
    let slot = |row: usize| (row * 7) % 48;
    let attend = |cpu: &Cpu, cache: &KvCache, qkv: &[f32]| {
        // Each block is a context of its own.
        let table = [1u32];
        let segment = Segment {
            first_row: 0,
            rows: 1,
            start: 15,
            table: &table,
        };
        let shape = AttentionShape {
            heads,
            stride,
            scale: 0.2,
        };
        let mut out = vec![0.0; queries];
        attention(cpu, shape, cache, &[segment], qkv, &mut out);
        bits(&out)
    };
    let mut apart = before.clone();
    let mut cache = KvCache::new(kv);
    for (row, qkv) in apart.chunks_exact_mut(stride).enumerate() {
        let (rotated, value) = qkv.split_at_mut(queries + keys);
        rope.apply(row, kv.head_dim, rotated);
        cache.write(slot(row), &rotated[queries..], value);
    }
    for cpu in cpus() {
        let (mut fused, mut fused_cache) = (before.clone(), KvCache::new(kv));
        let placement = Placement::new((0..rows).map(|row| (row, slot(row))));
        let rotate = RotateAndStore {
            rope: &rope,
            heads,
            norms: None,
        };
        rotate.run(&cpu, &placement, &mut fused, &mut fused_cache);
        assert_eq!(bits(&fused), bits(&apart));
        let want = attend(&cpu, &cache, &apart);
        assert_eq!(attend(&cpu, &fused_cache, &fused), want);
    }
}

#[test]
#[should_panic(expected = "the same slot")]
fn two_rows_cannot_write_one_slot() {
    let _ = Placement::new([(0, 5), (1, 6), (2, 5)].into_iter());
}
