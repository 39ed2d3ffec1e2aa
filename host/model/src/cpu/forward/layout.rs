//! Which rows a step has, and which of them go on to its end.

use super::{Forward, Placement, Segment};
use formwork_engine::StepInput;

impl Forward {
    /// Where the rows of a step lie.
    pub(super) fn layout<'a>(&mut self, input: &'a StepInput) -> (Vec<Segment<'a>>, Placement) {
        let mut segments: Vec<Segment<'a>> = std::mem::take(&mut self.segments);
        let mut first_row = 0;
        for row in &input.rows {
            segments.push(Segment {
                first_row,
                rows: row.tokens.len(),
                start: row.start,
                table: &row.table,
            });
            first_row += row.tokens.len();
        }
        let size = self.block_size;
        let places = input.rows.iter().flat_map(|row| {
            (row.start..row.start + row.tokens.len()).map(move |position| {
                let block = row.table[position / size] as usize;
                (position, block * size + position % size)
            })
        });
        let mut placement = std::mem::take(&mut self.placement);
        placement.set(places);
        (segments, placement)
    }

    /// Leaves of every row that samples its last position, and nothing of the others: once the last layer's keys and
    /// values are stored, nobody asks for more.
    pub(super) fn keep_sampling<'a>(
        &mut self,
        input: &'a StepInput,
        segments: &mut Vec<Segment<'a>>,
    ) {
        if input
            .rows
            .iter()
            .all(|row| row.samples() && row.tokens.len() == 1)
        {
            return;
        }
        let config = self.model.config();
        let buffers = &mut self.buffers;
        let wide = [
            (&mut buffers.hidden, config.hidden),
            (&mut buffers.normed, config.hidden),
            (
                &mut buffers.qkv,
                config.query_width() + 2 * config.kv_width(),
            ),
        ];
        for (buffer, width) in wide {
            let (mut kept, mut end) = (0, 0);
            for row in &input.rows {
                end += row.tokens.len() * width;
                if row.samples() {
                    buffer.copy_within(end - width..end, kept);
                    kept += width;
                }
            }
            buffer.truncate(kept);
        }
        segments.clear();
        for row in input.rows.iter().filter(|row| row.samples()) {
            segments.push(Segment {
                first_row: segments.len(),
                rows: 1,
                start: row.start + row.tokens.len() - 1,
                table: &row.table,
            });
        }
    }
}

/// The memory of segments, for others. An empty vector is collected in place.
pub(super) fn emptied(mut segments: Vec<Segment<'_>>) -> Vec<Segment<'static>> {
    segments.clear();
    let none = segments.into_iter().map(|segment| Segment {
        first_row: segment.first_row,
        rows: segment.rows,
        start: segment.start,
        table: &[],
    });
    none.collect()
}
