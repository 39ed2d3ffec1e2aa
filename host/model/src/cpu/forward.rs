//! The forward pass of one step.

use super::CpuConfig;
use crate::Model;
use crate::weights::Layer;
use formwork_engine::StepInput;
use formwork_kernels::{
    AttentionShape, Cpu, Input, KvCache, KvShape, Matrix, QuantRows, RopeTable, Segment,
    add_assign, attention, product, rms_norm, silu_mul,
};
use std::sync::Arc;

/// The cache and the memory of intermediate results, which is kept from step to step.
pub(super) struct Forward {
    cpu: Arc<Cpu>,
    model: Arc<Model>,
    rope: RopeTable,
    /// One per layer.
    caches: Vec<KvCache>,
    block_size: usize,
    buffers: Buffers,
    /// One row per step row that wanted logits, in their order.
    pub(super) logits: Vec<f32>,
}

#[derive(Default)]
struct Buffers {
    hidden: Vec<f32>,
    normed: Vec<f32>,
    quantized: QuantRows,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    projected: Vec<f32>,
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    head: Vec<f32>,
}

/// Where one token of the step stands.
#[derive(Clone, Copy)]
struct Place {
    position: usize,
    slot: usize,
}

impl Forward {
    pub(super) fn new(cpu: Arc<Cpu>, model: Arc<Model>, config: &CpuConfig) -> Self {
        let shape = model.config();
        let kv = KvShape {
            blocks: config.kv_blocks,
            block_size: config.block_size,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        };
        let rope = &shape.rope;
        Self {
            rope: RopeTable::new(rope.style, &rope.frequencies(), config.max_context),
            caches: (0..shape.layers).map(|_| KvCache::new(kv)).collect(),
            block_size: config.block_size,
            cpu,
            buffers: Buffers::default(),
            logits: Vec::new(),
            model,
        }
    }

    /// Runs a validated step. Logits are in `self.logits` afterwards.
    pub(super) fn step(&mut self, input: &StepInput) {
        let model = Arc::clone(&self.model);
        let hidden = model.config().hidden;
        let tokens = input.rows.iter().flat_map(|row| &row.tokens);
        self.buffers.hidden.clear();
        for &token in tokens {
            let at = self.buffers.hidden.len();
            self.buffers.hidden.resize(at + hidden, 0.0);
            let embedding = &model.weights().embedding;
            embedding.row(token as usize, &mut self.buffers.hidden[at..]);
        }
        let (segments, places) = self.layout(input);
        for (index, layer) in model.weights().layers.iter().enumerate() {
            self.attend(index, layer, &segments, &places);
            self.feed_forward(layer);
        }
        self.head(input);
    }

    fn layout<'a>(&self, input: &'a StepInput) -> (Vec<Segment<'a>>, Vec<Place>) {
        let (mut segments, mut places) = (Vec::new(), Vec::new());
        for row in &input.rows {
            segments.push(Segment {
                first_row: places.len(),
                rows: row.tokens.len(),
                start: row.start,
                table: &row.table,
            });
            places.extend((row.start..row.start + row.tokens.len()).map(|position| {
                let block = row.table[position / self.block_size] as usize;
                Place {
                    position,
                    slot: block * self.block_size + position % self.block_size,
                }
            }));
        }
        (segments, places)
    }

    /// The attention half of a layer.
    fn attend(&mut self, index: usize, layer: &Layer, segments: &[Segment<'_>], places: &[Place]) {
        let model = Arc::clone(&self.model);
        let config = model.config();
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let stride = query_width + 2 * kv_width;
        let Buffers {
            hidden,
            normed,
            quantized,
            qkv,
            attended,
            projected,
            ..
        } = &mut self.buffers;
        let cpu = &*self.cpu;
        normed.resize(hidden.len(), 0.0);
        rms_norm(
            cpu,
            &layer.attention_norm,
            config.norm_epsilon,
            hidden,
            normed,
        );
        qkv.resize(places.len() * stride, 0.0);
        let matrices = [&layer.query, &layer.key, &layer.value];
        multiply(cpu, &matrices, normed, quantized, qkv);
        if let Some(bias) = &layer.qkv_bias {
            add_assign(qkv, bias);
        }
        let cache = &mut self.caches[index];
        let dim = config.head_dim;
        for (row, place) in qkv.chunks_exact_mut(stride).zip(places) {
            let (rotated, value) = row.split_at_mut(query_width + kv_width);
            if let Some([query_norm, key_norm]) = &layer.head_norms {
                let (query, key) = rotated.split_at_mut(query_width);
                norm_heads(cpu, query_norm, config.norm_epsilon, query);
                norm_heads(cpu, key_norm, config.norm_epsilon, key);
            }
            self.rope.apply(place.position, dim, rotated);
            cache.write(place.slot, &rotated[query_width..], value);
        }
        attended.resize(places.len() * query_width, 0.0);
        let shape = AttentionShape {
            heads: config.heads,
            stride,
            scale: 1.0 / (dim as f32).sqrt(),
        };
        attention(cpu, shape, cache, segments, qkv, attended);
        projected.resize(hidden.len(), 0.0);
        multiply(cpu, &[&layer.output], attended, quantized, projected);
        if let Some(bias) = &layer.output_bias {
            add_assign(projected, bias);
        }
        add_assign(hidden, projected);
    }

    /// The feed-forward half of a layer.
    fn feed_forward(&mut self, layer: &Layer) {
        let config = self.model.config();
        let Buffers {
            hidden,
            normed,
            quantized,
            projected,
            gate_up,
            activated,
            ..
        } = &mut self.buffers;
        let cpu = &*self.cpu;
        let rows = hidden.len() / config.hidden;
        rms_norm(
            cpu,
            &layer.feed_forward_norm,
            config.norm_epsilon,
            hidden,
            normed,
        );
        gate_up.resize(rows * config.feed_forward * 2, 0.0);
        multiply(cpu, &[&layer.gate, &layer.up], normed, quantized, gate_up);
        activated.resize(rows * config.feed_forward, 0.0);
        silu_mul(cpu, config.feed_forward, gate_up, activated);
        multiply(cpu, &[&layer.down], activated, quantized, projected);
        add_assign(hidden, projected);
    }

    /// Logits after the last token of each row that wants them.
    fn head(&mut self, input: &StepInput) {
        let config = self.model.config();
        let Buffers {
            hidden,
            normed,
            quantized,
            head,
            ..
        } = &mut self.buffers;
        head.clear();
        let mut end = 0;
        for row in &input.rows {
            end += row.tokens.len() * config.hidden;
            if row.wants_logits {
                head.extend_from_slice(&hidden[end - config.hidden..end]);
            }
        }
        let rows = head.len() / config.hidden;
        let weights = self.model.weights();
        normed.resize(head.len(), 0.0);
        rms_norm(&self.cpu, &weights.norm, config.norm_epsilon, head, normed);
        let matrix = weights.head();
        self.logits.resize(rows * matrix.rows(), 0.0);
        if rows > 0 {
            multiply(&self.cpu, &[matrix], normed, quantized, &mut self.logits);
        }
    }
}

/// A product that quantises its input when any of the matrices is quantised.
fn multiply(
    cpu: &Cpu,
    matrices: &[&Matrix],
    values: &[f32],
    quantized: &mut QuantRows,
    out: &mut [f32],
) {
    if matrices
        .iter()
        .any(|matrix| matches!(matrix, Matrix::Quant(_)))
    {
        quantized.set(cpu, matrices[0].columns(), values);
    }
    product(cpu, matrices, Input { values, quantized }, out);
}

fn norm_heads(cpu: &Cpu, weight: &[f32], epsilon: f32, heads: &mut [f32]) {
    let before = heads.to_vec();
    rms_norm(cpu, weight, epsilon, &before, heads);
}
