//! Weights that stay floating-point numbers, interleaved like the quantised ones.

use crate::block_format::PackError;
use crate::quantized::LANES;
use half::bf16;

/// Where a [`DenseMatrix`] comes from. Row by row.
pub enum DenseValues<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// The upper half of single precision.
    Bf16(&'a [bf16]),
}

/// A weight matrix of floating-point numbers, in panels of sixteen rows; within a panel the sixteen
/// weights of one column are neighbours. Shape: `rows` outputs times `columns` inputs.
pub struct DenseMatrix {
    rows: usize,
    columns: usize,
    weights: Weights,
}

enum Weights {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

/// One panel, as kernels see it.
#[derive(Clone, Copy)]
pub(crate) enum DensePanel<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

impl DenseMatrix {
    /// Interleaves a matrix.
    ///
    /// # Errors
    /// When there are not `rows * columns` values.
    pub fn pack([rows, columns]: [usize; 2], values: &DenseValues<'_>) -> Result<Self, PackError> {
        let got = match values {
            DenseValues::F32(values) => values.len(),
            DenseValues::Bf16(values) => values.len(),
        };
        if got != rows * columns || columns == 0 {
            return Err(PackError::Size {
                expected: rows * columns,
                got,
            });
        }
        let weights = match values {
            DenseValues::F32(values) => Weights::F32(interleave(values, columns)),
            DenseValues::Bf16(values) => Weights::Bf16(interleave(values, columns)),
        };
        Ok(Self {
            rows,
            columns,
            weights,
        })
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.weights {
            Weights::F32(values) => values.len() * 4,
            Weights::Bf16(values) => values.len() * 2,
        }
    }

    /// Writes row `row` to `out`.
    ///
    /// # Panics
    /// When there is no such row or `out` is not one row long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.columns);
        let lane = row % LANES;
        match self.panel(row / LANES) {
            DensePanel::F32(panel) => {
                for (out, weights) in out.iter_mut().zip(panel.chunks_exact(LANES)) {
                    *out = weights[lane];
                }
            }
            DensePanel::Bf16(panel) => {
                for (out, weights) in out.iter_mut().zip(panel.chunks_exact(LANES)) {
                    *out = weights[lane].to_f32();
                }
            }
        }
    }

    pub(crate) fn panel(&self, index: usize) -> DensePanel<'_> {
        let len = self.columns * LANES;
        match &self.weights {
            Weights::F32(values) => DensePanel::F32(&values[index * len..][..len]),
            Weights::Bf16(values) => DensePanel::Bf16(&values[index * len..][..len]),
        }
    }
}

fn interleave<T: Copy + Default>(values: &[T], columns: usize) -> Vec<T> {
    let rows = values.len() / columns;
    let mut out = vec![T::default(); rows.div_ceil(LANES) * LANES * columns];
    for (panel, rows) in out
        .chunks_exact_mut(LANES * columns)
        .zip(values.chunks(LANES * columns))
    {
        for (lane, row) in rows.chunks_exact(columns).enumerate() {
            for (column, &value) in row.iter().enumerate() {
                panel[column * LANES + lane] = value;
            }
        }
    }
    out
}
