//! The arithmetic of a transformer's forward pass on CPUs: matrix products with quantised and dense
//! weights, attention over a paged KV cache, normalisation, rotary embedding and gated activations.
//!
//! Two properties hold for every kernel here, and tests check them:
//!
//! * A result for one row of activations is the same to the bit whatever other rows are in the step,
//!   in whatever order, and however many threads run. Work is only ever split over outputs; sums run
//!   over the inner dimension in a fixed order.
//! * All instruction sets give the same bits: integer sums are exact, and floating-point operations
//!   happen in one order with fused multiply-adds on every path.

mod activation;
mod attention;
mod block_format;
mod ceilings;
mod cpu;
mod dense;
mod exp;
mod heap;
mod kv;
mod mapped;
mod norm;
mod pool;
mod process;
mod product;
mod quant_rows;
mod quantized;
mod rope;
mod rotate;
mod shared;
mod slab;

pub use activation::add_assign;
pub use attention::{AttentionShape, Segment, attention};
pub use block_format::{BlockFormat, PackError};
pub use ceilings::Ceilings;
pub use cpu::{Cpu, CpuError, CpuOptions, Isa};
pub use dense::{DenseMatrix, DenseValues};
pub use exp::exp;
pub use heap::release_freed_memory;
pub use kv::{KvCache, KvDtype, KvShape};
pub use mapped::MappedFile;
pub use norm::{AddNorm, rms_norm};
#[cfg(unix)]
pub use process::effective_user;
pub use process::step_aside;
pub use product::{
    Gated, Input, Matrix, PANEL_OUTPUTS, Pick, gated_product, product, product_picked,
};
pub use quant_rows::QuantRows;
pub use quantized::{PACKED_VERSION, PIECE_BYTES, PackedForm, Piece, QuantMatrix, SECTIONS};
pub use rope::{RopeStyle, RopeTable};
pub use rotate::{Placement, RotateAndStore};
