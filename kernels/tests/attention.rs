//! Attention over the paged cache against double precision, on every instruction set and for every kind of
//! cache, and the promises of the crate for it.

#[allow(dead_code)] // Shared with the other tests of kernels.
mod reference;

use formwork_kernels::{
    AttentionShape, Cpu, CpuOptions, Isa, KvCache, KvDtype, KvShape, Segment, attention,
};
use proptest::prelude::*;
use reference::{Numbers, close};

/// One per instruction set of this machine, with one thread and with three.
fn cpus() -> Vec<Cpu> {
    let sets = Isa::available().into_iter();
    sets.flat_map(|isa| [cpu(isa, 1), cpu(isa, 3)]).collect()
}

fn cpu(isa: Isa, threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        threads,
        isa: Some(isa),
    })
    .expect("the machine has the instructions")
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A cache with random keys and values for sequences of the given lengths, and their block tables.
struct Scene {
    cache: KvCache,
    tables: Vec<Vec<u32>>,
    lengths: Vec<usize>,
    queries: Vec<f32>,
}

const HEADS: usize = 6;
const KV: KvShape = KvShape {
    blocks: 40,
    block_size: 32,
    kv_heads: 2,
    head_dim: 48,
    dtype: KvDtype::F16,
};

impl Scene {
    fn new(lengths: &[usize], dtype: KvDtype) -> Self {
        let mut numbers = Numbers::new(17);
        let mut cache = KvCache::new(KvShape { dtype, ..KV });
        let mut blocks = (0..KV.blocks as u32).rev();
        let mut tables = Vec::new();
        for &length in lengths {
            let table: Vec<u32> = blocks.by_ref().take(length.div_ceil(32)).collect();
            for position in 0..length {
                let slot = table[position / 32] as usize * 32 + position % 32;
                let width = KV.kv_heads * KV.head_dim;
                cache.write(slot, &numbers.take(width), &numbers.take(width));
            }
            tables.push(table);
        }
        let queries = numbers.take(lengths.iter().sum::<usize>() * HEADS * KV.head_dim);
        Self {
            cache,
            tables,
            lengths: lengths.to_vec(),
            queries,
        }
    }

    /// The last `rows[i]` positions of each sequence, in one call.
    fn attend(&self, cpu: &Cpu, which: &[usize], rows: &[usize]) -> Vec<f32> {
        let width = HEADS * KV.head_dim;
        let (mut segments, mut queries) = (Vec::new(), Vec::new());
        for (&index, &rows) in which.iter().zip(rows) {
            let before: usize = self.lengths[..index].iter().sum();
            let start = self.lengths[index] - rows;
            segments.push(Segment {
                first_row: queries.len() / width,
                rows,
                start,
                table: &self.tables[index],
            });
            queries.extend_from_slice(&self.queries[(before + start) * width..][..rows * width]);
        }
        let shape = AttentionShape {
            heads: HEADS,
            stride: width,
            scale: 0.3,
        };
        let mut out = vec![f32::NAN; queries.len()];
        attention(cpu, shape, &self.cache, &segments, &queries, &mut out);
        out
    }
}

#[test]
fn attention_is_right_and_the_same_on_every_path() {
    // The last one spans several of the stretches that the softmax is merged over.
    let lengths = [1, 16, 17, 70, 300];
    for dtype in KvDtype::ALL {
        let scene = Scene::new(&lengths, dtype);
        let mut numbers = Numbers::new(17);
        let widths = [KV.kv_heads * KV.head_dim, KV.head_dim];
        let mut want = Vec::new();
        let contexts: Vec<_> = lengths
            .iter()
            .map(|&length| reference::context(&mut numbers, length, widths, dtype))
            .collect();
        let mut queries = scene.queries.chunks_exact(HEADS * KV.head_dim);
        for context in &contexts {
            for position in 0..context.len() {
                let query = queries.next().unwrap();
                let seen = &context[..=position];
                want.extend(reference::attend(query, seen, KV.head_dim, 0.3));
            }
        }
        let mut first: Option<Vec<u32>> = None;
        for cpu in cpus() {
            let got = scene.attend(&cpu, &[0, 1, 2, 3, 4], &lengths);
            close(&got, &want, 1e-4, dtype.name());
            assert_eq!(first.get_or_insert(bits(&got)), &bits(&got));
        }
    }
}

#[test]
fn the_cache_keeps_what_is_written_within_its_precision() {
    for (dtype, relative) in [(KvDtype::F16, 1.0 / 2048.0), (KvDtype::Int8, 0.502 / 127.0)] {
        let shape = KvShape { dtype, ..KV };
        let mut cache = KvCache::new(shape);
        let mut numbers = Numbers::new(51);
        let width = KV.kv_heads * KV.head_dim;
        let rows: Vec<_> = (0..70)
            .map(|_| [numbers.take(width), numbers.take(width)])
            .collect();
        for (slot, [key, value]) in rows.iter().enumerate() {
            cache.write(slot * 3, key, value);
        }
        for (slot, written) in rows.iter().enumerate() {
            for (read, written) in cache.read(slot * 3).iter().zip(written) {
                let heads = read.chunks(KV.head_dim).zip(written.chunks(KV.head_dim));
                for (read, written) in heads {
                    let largest = written.iter().fold(0f32, |a, b| a.max(b.abs()));
                    let errors = read.iter().zip(written).map(|(a, b)| (a - b).abs());
                    assert!(errors.fold(0f32, f32::max) <= largest * relative, "{dtype}");
                }
            }
        }
    }
    let bytes = KvDtype::ALL.map(|dtype| KvShape { dtype, ..KV }.position_bytes());
    assert_eq!(bytes, [2 * 2 * 96, 2 * (96 + 4)]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_row_of_attention_does_not_depend_on_its_batch(
        order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        take in 1usize..5,
        threads in 1usize..4,
        dtype in proptest::sample::select(&KvDtype::ALL[..]),
    ) {
        let lengths = [5, 300, 33, 129];
        let scene = Scene::new(&lengths, dtype);
        let which = &order[..take.min(4)];
        let rows: Vec<usize> = which.iter().map(|&index| lengths[index]).collect();
        let together = scene.attend(&cpu(Isa::best(), threads), which, &rows);
        let alone_cpu = cpu(Isa::best(), 1);
        let width = HEADS * KV.head_dim;
        let mut rest = &together[..];
        for &index in which {
            let (got, after) = rest.split_at(lengths[index] * width);
            rest = after;
            // The whole sequence at once, its second half, and its last row.
            for rows in [lengths[index], lengths[index] / 2, 1] {
                let alone = scene.attend(&alone_cpu, &[index], &[rows]);
                prop_assert_eq!(bits(&got[got.len() - rows * width..]), bits(&alone));
            }
        }
    }
}
