//! The forward pass of one step.

mod layout;

use super::CpuConfig;
use super::head::{Head, HeadOn};
use super::probe::{Operation, Probe, Work};
use crate::Model;
use crate::weights::Layer;
use formwork_engine::{SimpleVob, StepInput, WantedLogits};
use formwork_kernels::{
    AddNorm, AttentionShape, Cpu, Gated, Input, KvCache, KvShape, Matrix, Placement, QuantRows,
    RopeTable, RotateAndStore, Segment, add_assign, attention, gated_product, product,
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
    placement: Placement,
    /// Empty; its memory serves the next step.
    segments: Vec<Segment<'static>>,
    pub(super) head: Head,
    /// Whether logits are left for the masks.
    waiting: bool,
}

#[derive(Default)]
struct Buffers {
    hidden: Vec<f32>,
    normed: Vec<f32>,
    quantized: QuantRows,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    projected: Vec<f32>,
    gated: Vec<f32>,
    gated_codes: QuantRows,
    head: Vec<f32>,
}

impl Forward {
    pub(super) fn new(cpu: Arc<Cpu>, model: Arc<Model>, config: &CpuConfig) -> Self {
        let shape = model.config();
        let kv = KvShape {
            blocks: config.kv_blocks,
            block_size: config.block_size,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            dtype: config.kv_dtype,
        };
        let rope = &shape.rope;
        Self {
            rope: RopeTable::new(rope.style, &rope.frequencies(), config.max_context),
            caches: (0..shape.layers).map(|_| KvCache::new(kv)).collect(),
            block_size: config.block_size,
            cpu,
            buffers: Buffers::default(),
            placement: Placement::default(),
            segments: Vec::new(),
            head: Head::default(),
            waiting: false,
            model,
        }
    }

    /// Copies a block in every layer.
    pub(super) fn copy_block(&mut self, from: usize, to: usize) {
        for cache in &mut self.caches {
            cache.copy_block(from, to);
        }
    }

    /// Runs a validated step. Logits are in `self.head` afterwards, but for what waits for masks.
    pub(super) fn step<P: Probe>(&mut self, input: &StepInput, probe: &mut P) {
        let model = Arc::clone(&self.model);
        let hidden = model.config().hidden;
        let start = probe.start();
        let tokens = input.rows.iter().flat_map(|row| &row.tokens);
        let buffer = &mut self.buffers.hidden;
        buffer.clear();
        buffer.resize(tokens.clone().count() * hidden, 0.0);
        for (&token, out) in tokens.zip(buffer.chunks_exact_mut(hidden)) {
            model.weights().embedding.row(token as usize, out);
        }
        let (mut segments, placement) = self.layout(input);
        probe.stop(start, Operation::Embedding, || Work {
            bytes: placement.len() * hidden * 4,
            operations: 0,
        });
        let layers = &model.weights().layers;
        for (index, layer) in layers.iter().enumerate() {
            // The output of the feed-forward half of the layer before is still to be added.
            self.store((index, layer), &placement, probe);
            if index + 1 == layers.len() {
                self.keep_sampling(input, &mut segments);
            }
            if !segments.is_empty() {
                self.mix((index, layer), &segments, probe);
                self.feed_forward(layer, probe);
            }
        }
        self.placement = placement;
        self.segments = layout::emptied(segments);
        self.finish_step(input, probe);
    }

    /// Queries, keys and values of the layer with this index; the last two are stored.
    fn store<P: Probe>(
        &mut self,
        (index, layer): (usize, &Layer),
        placement: &Placement,
        probe: &mut P,
    ) {
        let config = self.model.config();
        let cpu = &*self.cpu;
        let rows = placement.len();
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let stride = query_width + 2 * kv_width;
        let buffers = &mut self.buffers;
        let matrices = [&layer.query, &layer.key, &layer.value];
        let norm = AddNorm {
            weight: &layer.attention_norm,
            epsilon: config.norm_epsilon,
            delta: (index > 0).then_some(&buffers.projected[..]),
        };
        buffers.normed.resize(rows * config.hidden, 0.0);
        let start = probe.start();
        let quantized = any_quantized(&matrices).then_some(&mut buffers.quantized);
        norm.run(cpu, &mut buffers.hidden, &mut buffers.normed, quantized);
        probe.stop(start, Operation::Norm, || {
            Work::of_rows(rows, config.hidden * 4)
        });
        buffers.qkv.resize(rows * stride, 0.0);
        let input = Input {
            values: &buffers.normed,
            quantized: &buffers.quantized,
        };
        multiply(
            cpu,
            (Operation::QueryKeyValue, &matrices),
            input,
            &mut buffers.qkv,
            probe,
        );
        let start = probe.start();
        if let Some(bias) = &layer.qkv_bias {
            add_assign(&mut buffers.qkv, bias);
        }
        let norms = layer.head_norms.as_ref();
        let cache = &mut self.caches[index];
        RotateAndStore {
            rope: &self.rope,
            heads: config.heads,
            norms: norms.map(|[query, key]| ([&query[..], &key[..]], config.norm_epsilon)),
        }
        .run(cpu, placement, &mut buffers.qkv, cache);
        probe.stop(start, Operation::RotateAndStore, || {
            Work::of_rows(rows, stride * 2)
        });
    }

    /// Attention proper and the product after it, whose output is left in `projected`.
    fn mix<P: Probe>(
        &mut self,
        (index, layer): (usize, &Layer),
        segments: &[Segment<'_>],
        probe: &mut P,
    ) {
        let config = self.model.config();
        let cpu = &*self.cpu;
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let stride = query_width + 2 * kv_width;
        let (cache, buffers) = (&self.caches[index], &mut self.buffers);
        let rows = buffers.hidden.len() / config.hidden;
        buffers.attended.resize(rows * query_width, 0.0);
        let shape = AttentionShape {
            heads: config.heads,
            stride,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
        };
        let start = probe.start();
        attention(
            cpu,
            shape,
            cache,
            segments,
            &buffers.qkv,
            &mut buffers.attended,
        );
        probe.stop(start, Operation::Attention, || {
            Work::of_attention(segments, query_width, cache.shape().position_bytes())
        });
        let start = probe.start();
        if any_quantized(&[&layer.output]) {
            buffers.quantized.set(cpu, query_width, &buffers.attended);
        }
        probe.stop(start, Operation::Norm, || Work::of_rows(rows, query_width));
        buffers.projected.resize(rows * config.hidden, 0.0);
        let input = Input {
            values: &buffers.attended,
            quantized: &buffers.quantized,
        };
        multiply(
            cpu,
            (Operation::Output, &[&layer.output]),
            input,
            &mut buffers.projected,
            probe,
        );
        if let Some(bias) = &layer.output_bias {
            add_assign(&mut buffers.projected, bias);
        }
    }

    /// The feed-forward half of a layer; its output is left in `projected`.
    fn feed_forward<P: Probe>(&mut self, layer: &Layer, probe: &mut P) {
        let config = self.model.config();
        let cpu = &*self.cpu;
        let buffers = &mut self.buffers;
        let rows = buffers.hidden.len() / config.hidden;
        let matrices = [&layer.gate, &layer.up];
        let norm = AddNorm {
            weight: &layer.feed_forward_norm,
            epsilon: config.norm_epsilon,
            delta: Some(&buffers.projected),
        };
        let start = probe.start();
        let quantized = any_quantized(&matrices).then_some(&mut buffers.quantized);
        norm.run(cpu, &mut buffers.hidden, &mut buffers.normed, quantized);
        probe.stop(start, Operation::Norm, || {
            Work::of_rows(rows, config.hidden * 4)
        });
        let start = probe.start();
        let input = Input {
            values: &buffers.normed,
            quantized: &buffers.quantized,
        };
        // Only one of the two is filled, as the next product needs it.
        let gated = if any_quantized(&[&layer.down]) {
            Gated::Quantized(&mut buffers.gated_codes)
        } else {
            buffers.gated.resize(rows * config.feed_forward, 0.0);
            Gated::Values(&mut buffers.gated)
        };
        gated_product(cpu, matrices, input, gated);
        probe.stop(start, Operation::GateUp, || {
            Work::of_product(&matrices, rows)
        });
        let input = Input {
            values: &buffers.gated,
            quantized: &buffers.gated_codes,
        };
        multiply(
            cpu,
            (Operation::Down, &[&layer.down]),
            input,
            &mut buffers.projected,
            probe,
        );
    }

    /// Takes the rows that sample to the head, and computes their logits unless some wait for masks.
    fn finish_step<P: Probe>(&mut self, input: &StepInput, probe: &mut P) {
        let config = self.model.config();
        let buffers = &mut self.buffers;
        buffers.head.clear();
        if !buffers.hidden.is_empty() {
            buffers.head.extend_from_slice(&buffers.hidden);
            add_assign(&mut buffers.head, &buffers.projected);
        }
        let norm = AddNorm {
            weight: &self.model.weights().norm,
            epsilon: config.norm_epsilon,
            delta: None,
        };
        self.head.take(&self.cpu, &norm, &mut buffers.head);
        self.waiting = input
            .rows
            .iter()
            .any(|row| row.logits == WantedLogits::Masked);
        if !self.waiting {
            let on = HeadOn {
                cpu: &self.cpu,
                matrix: self.model.weights().head(),
            };
            self.head.all(on, probe);
        }
    }

    /// Computes what logits were left for the masks. `rows` are those that are sampled, each by its index
    /// among the rows that may be.
    pub(super) fn finish_logits<'a>(
        &mut self,
        rows: impl Iterator<Item = (usize, Option<&'a SimpleVob>)> + Clone,
    ) {
        if std::mem::take(&mut self.waiting) {
            let on = HeadOn {
                cpu: &self.cpu,
                matrix: self.model.weights().head(),
            };
            self.head.masked(on, rows);
        }
    }
}

fn any_quantized(matrices: &[&Matrix]) -> bool {
    matrices
        .iter()
        .any(|matrix| matches!(matrix, Matrix::Quant(_)))
}

fn multiply<P: Probe>(
    cpu: &Cpu,
    (operation, matrices): (Operation, &[&Matrix]),
    input: Input<'_>,
    out: &mut [f32],
    probe: &mut P,
) {
    let start = probe.start();
    product(cpu, matrices, input, out);
    probe.stop(start, operation, || {
        let width: usize = matrices.iter().map(|matrix| matrix.rows()).sum();
        Work::of_product(matrices, out.len() / width)
    });
}
