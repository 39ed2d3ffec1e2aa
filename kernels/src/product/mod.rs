//! Matrix products: rows of activations times packed weights.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod gated;
mod portable;

pub use gated::{Gated, gated_product};

use crate::dense::DensePanel;
use crate::quant_rows::QuantRow;
use crate::quantized::{LANES, QuantPanel};
use crate::{Cpu, DenseMatrix, Isa, QuantMatrix, QuantRows, shared::Shared};
use std::cell::RefCell;
use std::ops::Range;

/// Rows of activations that share one pass over a panel.
const TILE: usize = 4;
/// Rows of activations that stay in the second-level cache while panels stream past.
const STRIP: usize = 128;

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
    /// Rows of numbers, one after the other. Not looked at when all matrices are quantised.
    pub values: &'a [f32],
    /// The same rows, quantised. Not looked at when all matrices are dense.
    pub quantized: &'a QuantRows,
}

impl Input<'_> {
    /// Rows and columns.
    ///
    /// # Panics
    /// When they are not those that all `matrices` multiply.
    fn shape(&self, matrices: &[&Matrix]) -> [usize; 2] {
        let columns = matrices[0].columns();
        assert!(matrices.iter().all(|matrix| matrix.columns() == columns));
        let quant = |matrix: &&&Matrix| matches!(matrix, Matrix::Quant(_));
        let values = || {
            assert!(self.values.len().is_multiple_of(columns));
            [self.values.len() / columns, columns]
        };
        let codes = || {
            assert_eq!(self.quantized.columns(), columns, "the codes are others");
            [self.quantized.rows(), columns]
        };
        match matrices.iter().filter(quant).count() {
            0 => values(),
            all if all == matrices.len() => codes(),
            _ => {
                assert_eq!(values(), codes(), "the codes are others");
                values()
            }
        }
    }
}

/// Sixteen outputs for each of up to [`TILE`] rows.
type Tile = [[f32; LANES]];

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
    if matrices.is_empty() {
        return;
    }
    let [rows, columns] = input.shape(matrices);
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
    let [rows, columns] = input.shape(&[matrix]);
    let width = matrix.rows();
    assert_eq!(out.len(), rows * width);
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
            let outputs = panel * LANES..width.min((panel + 1) * LANES);
            strip.totals(matrix.panel(panel), &mut [[0f32; LANES]], &|row, totals| {
                strip.store((row, totals), outputs.clone(), &shared);
            });
        }
    });
}

/// What is done with the outputs of some rows, the first of which is given within its strip.
type Done<'a> = dyn Fn(usize, &[[f32; LANES]]) + 'a;

/// Sixteen outputs of two panels of two matrices for each row of a strip; most products need one panel.
type Totals = [[[[f32; LANES]; STRIP]; 2]; 2];

thread_local! {
    static TOTALS: RefCell<Box<Totals>> =
        RefCell::new(Box::new([[[[0.0; LANES]; STRIP]; 2]; 2]));
}

/// The work on [`STRIP`] rows.
struct Strip<'a> {
    isa: Isa,
    matrices: &'a [&'a Matrix],
    input: Input<'a>,
    columns: usize,
    /// Outputs of all matrices together.
    width: usize,
    rows: Range<usize>,
}

impl Strip<'_> {
    /// Computes the panels `range`, counted through all matrices.
    fn run(&self, range: Range<usize>, out: &Shared<'_, f32>) {
        TOTALS.with_borrow_mut(|totals| {
            self.panels(range, &mut totals[0][0][..self.rows.len()], out);
        });
    }

    fn panels(&self, range: Range<usize>, totals: &mut [[f32; LANES]], out: &Shared<'_, f32>) {
        let (mut first_panel, mut first_output) = (0, 0);
        for matrix in self.matrices {
            let panels = matrix.rows().div_ceil(LANES);
            let from = range.start.max(first_panel);
            let to = range.end.min(first_panel + panels);
            for panel in from..to {
                let index = panel - first_panel;
                let outputs = LANES.min(matrix.rows() - index * LANES);
                let first = first_output + index * LANES;
                self.totals(matrix.panel(index), totals, &|row, totals| {
                    self.store((row, totals), first..first + outputs, out);
                });
            }
            first_panel += panels;
            first_output += matrix.rows();
        }
    }

    /// Writes the outputs that exist of those of a panel, for the rows from `first` within the strip on.
    fn store(
        &self,
        (first, totals): (usize, &[[f32; LANES]]),
        outputs: Range<usize>,
        out: &Shared<'_, f32>,
    ) {
        for (row, values) in (self.rows.start + first..).zip(totals) {
            let start = row * self.width;
            // SAFETY: a panel's columns belong to it alone, and a panel of a row is in one range only.
            let out = unsafe { out.part(start + outputs.start..start + outputs.end) };
            // One vector or two where all exist, rather than a call.
            match <&mut [f32; LANES]>::try_from(&mut *out) {
                Ok(out) => *out = *values,
                Err(_) => out.copy_from_slice(&values[..outputs.len()]),
            }
        }
    }

    /// Computes a panel's outputs, sixteen for each row, in `totals`. Calls `done` for each tile, with its
    /// first row within the strip and its outputs, soon after these: all together at the end they would
    /// wait for memory.
    #[inline]
    fn totals(
        &self,
        panel: Panel<'_>,
        totals: &mut [[f32; LANES]],
        done: &impl Fn(usize, &[[f32; LANES]]),
    ) {
        let wide = self.wide(panel, totals, done);
        for first in (wide..totals.len()).step_by(TILE) {
            let count = TILE.min(totals.len() - first);
            let tile = &mut totals[first..first + count];
            self.tile(panel, self.input(self.rows.start + first, count), tile);
            done(first, tile);
        }
    }

    fn input(&self, first: usize, count: usize) -> TileInput<'_> {
        TileInput {
            input: self.input,
            columns: self.columns,
            first,
            count,
        }
    }

    /// Computes the first rows, where there is a way for many. The number of them.
    fn wide(&self, panel: Panel<'_>, totals: &mut [[f32; LANES]], done: &Done<'_>) -> usize {
        #[cfg(target_arch = "x86_64")]
        if let (Isa::Avx2, Panel::Quant(panel)) = (self.isa, panel)
            && panel.layout.nibbles()
            && totals.len() >= avx2::wide::FROM
        {
            let count = totals.len() / TILE * TILE;
            let rows = self.input(self.rows.start, count);
            // SAFETY: `Cpu` only carries an instruction set that the machine has.
            unsafe { avx2::wide::nibbles(panel, rows, &mut totals[..count], done) };
            return count;
        }
        0
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
