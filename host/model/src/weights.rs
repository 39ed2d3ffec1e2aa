//! The tensors of a model, packed for the kernels.

use crate::ModelError;
use crate::config::ModelConfig;
use formwork_kernels::Matrix;

/// One transformer layer. Matrices are `[outputs, inputs]`.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    /// Biases of query, key and value, one after the other.
    pub(crate) qkv_bias: Option<Vec<f32>>,
    /// Weights of the norms of each head's queries and keys.
    pub(crate) head_norms: Option<[Vec<f32>; 2]>,
    pub(crate) output: Matrix,
    pub(crate) output_bias: Option<Vec<f32>>,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

pub(crate) struct Weights {
    /// `[vocabulary, hidden]`.
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vec<f32>,
    /// `None`: the embedding serves as head, too.
    pub(crate) head: Option<Matrix>,
}

impl Weights {
    pub(crate) fn head(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Bytes in memory, without norms and biases.
    pub(crate) fn bytes(&self) -> usize {
        self.matrices().map(|(.., matrix)| matrix.bytes()).sum()
    }

    /// All matrices with their roles and layers, in the order in which [`load`] asks for them.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = (Role, usize, &Matrix)> {
        let embedding = [(Role::Embedding, 0, &self.embedding)].into_iter();
        let head = self.head.iter().map(|head| (Role::Head, 0, head));
        let layers = self.layers.iter().enumerate().flat_map(|(index, layer)| {
            [
                (Role::Query, index, &layer.query),
                (Role::Key, index, &layer.key),
                (Role::Value, index, &layer.value),
                (Role::Output, index, &layer.output),
                (Role::Gate, index, &layer.gate),
                (Role::Up, index, &layer.up),
                (Role::Down, index, &layer.down),
            ]
        });
        embedding.chain(head).chain(layers)
    }
}

/// The tensors that models have; a source knows their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Embedding,
    Norm,
    Head,
    AttentionNorm,
    Query,
    Key,
    Value,
    Output,
    QueryBias,
    KeyBias,
    ValueBias,
    OutputBias,
    QueryNorm,
    KeyNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
}

/// Where tensors come from.
pub(crate) trait TensorSource {
    /// The tensor's name in the model's files.
    fn name(&self, role: Role, layer: usize) -> String;

    fn has(&self, name: &str) -> bool;

    /// Rows of the tensor; an error when there is none or it is no matrix.
    fn rows(&self, name: &str) -> Result<usize, ModelError>;

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Matrix, ModelError>;

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError>;
}

/// Loads all tensors that `config` calls for.
pub(crate) fn load(
    source: &mut dyn TensorSource,
    config: &ModelConfig,
) -> Result<Weights, ModelError> {
    let hidden = config.hidden;
    let embedding_name = source.name(Role::Embedding, 0);
    let vocabulary = source.rows(&embedding_name)?;
    let embedding = source.matrix(&embedding_name, [vocabulary, hidden])?;
    let head_name = source.name(Role::Head, 0);
    let head = if source.has(&head_name) {
        Some(source.matrix(&head_name, [vocabulary, hidden])?)
    } else {
        None
    };
    let norm_name = source.name(Role::Norm, 0);
    let norm = source.vector(&norm_name, hidden)?;
    let layers = (0..config.layers)
        .map(|index| {
            LayerLoader {
                source,
                index,
                config,
            }
            .load()
        })
        .collect::<Result<_, _>>()?;
    Ok(Weights {
        embedding,
        layers,
        norm,
        head,
    })
}

struct LayerLoader<'a> {
    source: &'a mut dyn TensorSource,
    index: usize,
    config: &'a ModelConfig,
}

impl LayerLoader<'_> {
    fn matrix(&mut self, role: Role, shape: [usize; 2]) -> Result<Matrix, ModelError> {
        let name = self.source.name(role, self.index);
        self.source.matrix(&name, shape)
    }

    fn vector(&mut self, role: Role, len: usize) -> Result<Vec<f32>, ModelError> {
        let name = self.source.name(role, self.index);
        self.source.vector(&name, len)
    }

    fn optional(&mut self, role: Role, len: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let name = self.source.name(role, self.index);
        if self.source.has(&name) {
            self.source.vector(&name, len).map(Some)
        } else {
            Ok(None)
        }
    }

    fn load(mut self) -> Result<Layer, ModelError> {
        let hidden = self.config.hidden;
        let feed_forward = self.config.feed_forward;
        let (query, kv) = (self.config.query_width(), self.config.kv_width());
        Ok(Layer {
            attention_norm: self.vector(Role::AttentionNorm, hidden)?,
            query: self.matrix(Role::Query, [query, hidden])?,
            key: self.matrix(Role::Key, [kv, hidden])?,
            value: self.matrix(Role::Value, [kv, hidden])?,
            qkv_bias: self.qkv_bias()?,
            head_norms: self.head_norms()?,
            output: self.matrix(Role::Output, [hidden, query])?,
            output_bias: self.optional(Role::OutputBias, hidden)?,
            feed_forward_norm: self.vector(Role::FeedForwardNorm, hidden)?,
            gate: self.matrix(Role::Gate, [feed_forward, hidden])?,
            up: self.matrix(Role::Up, [feed_forward, hidden])?,
            down: self.matrix(Role::Down, [hidden, feed_forward])?,
        })
    }

    fn qkv_bias(&mut self) -> Result<Option<Vec<f32>>, ModelError> {
        let (query, kv) = (self.config.query_width(), self.config.kv_width());
        let Some(mut bias) = self.optional(Role::QueryBias, query)? else {
            return Ok(None);
        };
        bias.extend(self.vector(Role::KeyBias, kv)?);
        bias.extend(self.vector(Role::ValueBias, kv)?);
        Ok(Some(bias))
    }

    fn head_norms(&mut self) -> Result<Option<[Vec<f32>; 2]>, ModelError> {
        let dim = self.config.head_dim;
        let Some(query) = self.optional(Role::QueryNorm, dim)? else {
            return Ok(None);
        };
        Ok(Some([query, self.vector(Role::KeyNorm, dim)?]))
    }
}
