//! Matrix products: rows of activations times packed weights.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::dense::DensePanel;
use crate::quant_rows::QuantRow;
use crate::quantized::{LANES, QuantPanel};
use crate::{Cpu, DenseMatrix, Isa, QuantMatrix, QuantRows, shared::Shared};

/// Rows of activations that share one pass over a panel.
const TILE: usize = 4;
/// Rows of activations that stay in the second-level cache while panels stream past.
const STRIP: usize = 64;

/// A weight matrix.
pub enum Matrix {
    /// Quantised.
    Quant(QuantMatrix),
    /// Floating-point.
    Dense(DenseMatrix),
}

impl Matrix {
    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::Quant(matrix) => matrix.rows(),
            Self::Dense(matrix) => matrix.rows(),
        }
    }

    /// Inputs.
    #[must_use]
    pub fn columns(&self) -> usize {
        match self {
            Self::Quant(matrix) => matrix.columns(),
            Self::Dense(matrix) => matrix.columns(),
        }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Quant(matrix) => matrix.bytes(),
            Self::Dense(matrix) => matrix.bytes(),
        }
    }

    /// Writes row `row` as single precision to `out`.
    ///
    /// # Panics
    /// When there is no such row or `out` is not one row long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Quant(matrix) => matrix.row(row, out),
            Self::Dense(matrix) => matrix.row(row, out),
        }
    }

    fn panel(&self, index: usize) -> Panel<'_> {
        match self {
            Self::Quant(matrix) => Panel::Quant(matrix.panel(index)),
            Self::Dense(matrix) => Panel::Dense(matrix.panel(index)),
        }
    }
}

/// The left side of a product. Quantised weights use `quantized`, dense ones use `values`.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Rows of numbers, one after the other.
    pub values: &'a [f32],
    /// The same rows, quantised. Not looked at when all matrices are dense.
    pub quantized: &'a QuantRows,
}

/// Sixteen outputs for each of up to [`TILE`] rows.
type Tile = [[f32; LANES]; TILE];

#[derive(Clone, Copy)]
enum Panel<'a> {
    Quant(QuantPanel<'a>),
    Dense(DensePanel<'a>),
}

/// The rows of a tile.
#[derive(Clone, Copy)]
struct TileInput<'a> {
    input: Input<'a>,
    columns: usize,
    first: usize,
    count: usize,
}

impl<'a> TileInput<'a> {
    fn values(&self, row: usize) -> &'a [f32] {
        &self.input.values[(self.first + row) * self.columns..][..self.columns]
    }

    #[inline]
    fn quantized<const R: usize>(&self, group: usize) -> [QuantRow<'a>; R] {
        self.input.quantized.rows_at(self.first, group)
    }
}

/// Multiplies each row of `input` with every row of `matrices`: `out` gets, row by row, the outputs of
/// the first matrix, then those of the second, and so on.
///
/// # Panics
/// When shapes do not fit.
pub fn product(cpu: &Cpu, matrices: &[&Matrix], input: Input<'_>, out: &mut [f32]) {
    let Some(columns) = matrices.first().map(|matrix| matrix.columns()) else {
        return;
    };
    assert!(matrices.iter().all(|matrix| matrix.columns() == columns));
    let rows = input.values.len() / columns;
    assert_eq!(rows * columns, input.values.len());
    if matrices
        .iter()
        .any(|matrix| matches!(matrix, Matrix::Quant(_)))
    {
        assert_eq!(
            (input.quantized.rows(), input.quantized.columns()),
            (rows, columns),
            "the quantised rows are others"
        );
    }
    let width: usize = matrices.iter().map(|matrix| matrix.rows()).sum();
    assert_eq!(out.len(), rows * width);
    let panels = matrices
        .iter()
        .map(|matrix| matrix.rows().div_ceil(LANES))
        .sum();
    let shared = Shared::new(out);
    for first in (0..rows).step_by(STRIP) {
        let strip = Strip {
            isa: cpu.isa(),
            matrices,
            input,
            columns,
            width,
            rows: first..(first + STRIP).min(rows),
        };
        cpu.for_ranges(panels, 2, |range| strip.run(range, &shared));
    }
}

/// Outputs that are computed together: see [`product_picked`].
pub const PANEL_OUTPUTS: usize = LANES;

/// The outputs `panel * PANEL_OUTPUTS..` of one row of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    /// Row of the input.
    pub row: usize,
    /// Which [`PANEL_OUTPUTS`] outputs; the last of a matrix may have fewer.
    pub panel: usize,
}

/// Computes those outputs of `matrix` that are picked, with the bits that [`product`] gives, and leaves the
/// rest of `out`, rows as long as the matrix has outputs, as it is.
///
/// # Panics
/// When shapes do not fit, or picks are not in ascending order or twice the same.
pub fn product_picked(
    cpu: &Cpu,
    matrix: &Matrix,
    input: Input<'_>,
    picks: &[Pick],
    out: &mut [f32],
) {
    let (columns, width) = (matrix.columns(), matrix.rows());
    let rows = input.values.len() / columns;
    assert_eq!(rows * columns, input.values.len());
    assert_eq!(out.len(), rows * width);
    if matches!(matrix, Matrix::Quant(_)) {
        let quantized = (input.quantized.rows(), input.quantized.columns());
        assert_eq!(quantized, (rows, columns), "the quantised rows are others");
    }
    assert!(picks.is_sorted_by(|a, b| a < b), "picks are out of order");
    let panels = width.div_ceil(LANES);
    assert!(
        picks
            .iter()
            .all(|pick| pick.row < rows && pick.panel < panels)
    );
    let shared = Shared::new(out);
    cpu.for_ranges(picks.len(), 8, |range| {
        for &Pick { row, panel } in &picks[range] {
            let strip = Strip {
                isa: cpu.isa(),
                matrices: &[],
                input,
                columns,
                width,
                rows: row..row + 1,
            };
            let outputs = LANES.min(width - panel * LANES);
            strip.panel(matrix.panel(panel), panel * LANES, outputs, &shared);
        }
    });
}

/// The work on [`STRIP`] rows.
struct Strip<'a> {
    isa: Isa,
    matrices: &'a [&'a Matrix],
    input: Input<'a>,
    columns: usize,
    /// Outputs of all matrices together.
    width: usize,
    rows: std::ops::Range<usize>,
}

impl Strip<'_> {
    /// Computes the panels `range`, counted through all matrices.
    fn run(&self, range: std::ops::Range<usize>, out: &Shared<'_, f32>) {
        let (mut first_panel, mut first_output) = (0, 0);
        for matrix in self.matrices {
            let panels = matrix.rows().div_ceil(LANES);
            let from = range.start.max(first_panel);
            let to = range.end.min(first_panel + panels);
            for panel in from..to {
                let index = panel - first_panel;
                let outputs = LANES.min(matrix.rows() - index * LANES);
                self.panel(
                    matrix.panel(index),
                    first_output + index * LANES,
                    outputs,
                    out,
                );
            }
            first_panel += panels;
            first_output += matrix.rows();
        }
    }

    fn panel(&self, panel: Panel<'_>, column: usize, outputs: usize, out: &Shared<'_, f32>) {
        let mut tile = [[0f32; LANES]; TILE];
        for first in self.rows.clone().step_by(TILE) {
            let rows = TileInput {
                input: self.input,
                columns: self.columns,
                first,
                count: TILE.min(self.rows.end - first),
            };
            self.tile(panel, rows, &mut tile);
            for (row, values) in tile.iter().take(rows.count).enumerate() {
                let start = (first + row) * self.width + column;
                // SAFETY: a panel's columns belong to it alone, and a panel of a row is in one range only.
                let out = unsafe { out.part(start..start + outputs) };
                out.copy_from_slice(&values[..outputs]);
            }
        }
    }

    fn tile(&self, panel: Panel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
        #[cfg(target_arch = "x86_64")]
        match (self.isa, panel) {
            (Isa::Portable, _) => {}
            // SAFETY: `Cpu` only carries an instruction set that the machine has.
            (Isa::Avx512Vnni, Panel::Quant(panel)) => unsafe {
                return avx512::quant(panel, rows, tile);
            },
            // SAFETY: as above.
            (Isa::Avx2, Panel::Quant(panel)) => unsafe {
                return avx2::quant(panel, rows, tile);
            },
            // SAFETY: as above; AVX-512 implies AVX2.
            (Isa::Avx2 | Isa::Avx512Vnni, Panel::Dense(panel)) => unsafe {
                return avx2::dense(panel, rows, tile);
            },
        }
        match panel {
            Panel::Quant(panel) => portable::quant(panel, rows, tile),
            Panel::Dense(panel) => portable::dense(panel, rows, tile),
        }
    }
}
