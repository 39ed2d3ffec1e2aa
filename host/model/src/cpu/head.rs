//! Logits of the rows that sample.
//!
//! When no row of a step is masked, they are computed with the forward pass. Otherwise they wait for the
//! masks: a row whose mask allows few tokens then needs few of them, a row whose mask is late needs none,
//! and the head's weights are read once for all that need the rest.

use super::probe::{Operation, Probe, Work};
use formwork_engine::SimpleVob;
use formwork_kernels::{
    AddNorm, Cpu, Input, Matrix, PANEL_OUTPUTS, Pick, QuantRows, product, product_picked,
};

/// Picking fewer than one in so many panels of the head takes less time than a row's share of the whole
/// product, which serves several rows with each reading of the weights.
const FEW: usize = 4;

/// The rows that sample, and their logits; memory is kept from step to step.
#[derive(Default)]
pub(super) struct Head {
    /// Normalised hidden states after the last token of each row that samples.
    normed: Vec<f32>,
    /// Those to be computed next.
    gathered: Vec<f32>,
    quantized: QuantRows,
    picks: Vec<Pick>,
    /// Which row of `logits` holds those of a row that samples; `None`: they are not computed.
    places: Vec<Option<usize>>,
    logits: Vec<f32>,
}

/// The head's weights and what they are computed on.
#[derive(Clone, Copy)]
pub(super) struct HeadOn<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) matrix: &'a Matrix,
}

impl Head {
    /// Takes the hidden states of the rows that sample, before the last norm; changes `hidden`.
    pub(super) fn take(&mut self, cpu: &Cpu, norm: &AddNorm<'_>, hidden: &mut [f32]) {
        self.normed.resize(hidden.len(), 0.0);
        norm.run(cpu, hidden, &mut self.normed, None);
        self.places.clear();
        self.places.resize(hidden.len() / norm.weight.len(), None);
    }

    /// Computes all logits of all rows taken.
    pub(super) fn all<P: Probe>(&mut self, on: HeadOn<'_>, probe: &mut P) {
        let start = probe.start();
        let rows = self.places.len();
        for (row, place) in self.places.iter_mut().enumerate() {
            *place = Some(row);
        }
        self.logits.resize(rows * on.matrix.rows(), 0.0);
        std::mem::swap(&mut self.normed, &mut self.gathered);
        self.product(on, rows);
        std::mem::swap(&mut self.normed, &mut self.gathered);
        probe.stop(start, Operation::Head, || {
            Work::of_product(&[on.matrix], rows)
        });
    }

    /// Computes logits of those rows taken that are named in `rows`: the ones that the row's mask allows, or
    /// all. What else [`Self::logits`] gives of a row means nothing.
    pub(super) fn masked<'a>(
        &mut self,
        on: HeadOn<'_>,
        rows: impl Iterator<Item = (usize, Option<&'a SimpleVob>)> + Clone,
    ) {
        let outputs = on.matrix.rows();
        let most = outputs.div_ceil(PANEL_OUTPUTS) / FEW;
        let few =
            |mask: Option<&'a SimpleVob>| mask.filter(|mask| panels(mask, outputs).count() <= most);
        let whole = rows
            .clone()
            .filter(|&(_, mask)| few(mask).is_none())
            .map(|(row, _)| row);
        let picked = rows.filter_map(|(row, mask)| few(mask).map(|mask| (row, mask)));
        self.gathered.clear();
        let count = self.gather(on.matrix.columns(), whole, 0);
        self.logits.resize(count * outputs, 0.0);
        self.product(on, count);

        self.gathered.clear();
        self.picks.clear();
        for (row, (_, mask)) in picked.clone().enumerate() {
            let picks = panels(mask, outputs).map(|panel| Pick { row, panel });
            self.picks.extend(picks);
        }
        let picked = self.gather(on.matrix.columns(), picked.map(|(row, _)| row), count);
        self.logits.resize((count + picked) * outputs, 0.0);
        self.quantize(on);
        let input = Input {
            values: &self.gathered,
            quantized: &self.quantized,
        };
        let out = &mut self.logits[count * outputs..];
        product_picked(on.cpu, on.matrix, input, &self.picks, out);
    }

    /// Where the logits of a row that was taken lie among [`Self::logits`]; `None`: they were not computed.
    pub(super) fn place(&self, row: usize) -> Option<usize> {
        self.places.get(row).copied().flatten()
    }

    /// Rows of logits, in an order of their own.
    pub(super) fn logits(&mut self) -> &mut [f32] {
        &mut self.logits
    }

    /// Copies rows together; their logits will lie at `first` and behind it. Returns their number.
    fn gather(&mut self, columns: usize, rows: impl Iterator<Item = usize>, first: usize) -> usize {
        let mut count = 0;
        for row in rows {
            let normed = &self.normed[row * columns..][..columns];
            self.gathered.extend_from_slice(normed);
            self.places[row] = Some(first + count);
            count += 1;
        }
        count
    }

    fn quantize(&mut self, on: HeadOn<'_>) {
        if matches!(on.matrix, Matrix::Quant(_)) {
            let columns = on.matrix.columns();
            self.quantized.set(on.cpu, columns, &self.gathered);
        }
    }

    /// All logits of the rows gathered, which are the first `count` rows of logits.
    fn product(&mut self, on: HeadOn<'_>, count: usize) {
        if count == 0 {
            return;
        }
        self.quantize(on);
        let input = Input {
            values: &self.gathered,
            quantized: &self.quantized,
        };
        let out = &mut self.logits[..count * on.matrix.rows()];
        product(on.cpu, &[on.matrix], input, out);
    }
}

/// The panels of the head in which a mask allows anything, in ascending order.
fn panels(mask: &SimpleVob, outputs: usize) -> impl Iterator<Item = usize> + '_ {
    const { assert!(PANEL_OUTPUTS == 16, "two panels are a word of a mask") };
    let words = mask.as_slice().iter().enumerate();
    let halves =
        words.flat_map(|(index, &word)| [(2 * index, word & 0xffff), (2 * index + 1, word >> 16)]);
    halves
        .filter(|&(_, bits)| bits != 0)
        .map(|(panel, _)| panel)
        .take_while(move |&panel| panel * PANEL_OUTPUTS < outputs)
}
