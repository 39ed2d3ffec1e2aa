//! The contract of [`StepInput`], checked before anything is computed.

use formwork_engine::{BackendError, BlockId, Capacity, Row, StepInput};

/// Refuses a step that would read or write outside the cache, or whose rows would disturb each other.
/// `written` is memory for the check, kept from step to step.
pub(super) fn step(
    input: &StepInput,
    capacity: Capacity,
    written: &mut Vec<(BlockId, usize)>,
) -> Result<(), BackendError> {
    if input.rows.is_empty() {
        return Err(BackendError::InvalidInput("the step has no row".into()));
    }
    written.clear();
    for (index, row) in input.rows.iter().enumerate() {
        check_row(row, capacity)
            .map_err(|reason| BackendError::InvalidInput(format!("row {index}: {reason}")))?;
        let end = row.start + row.tokens.len();
        let blocks = row.start / capacity.block_size..end.div_ceil(capacity.block_size);
        written.extend(row.table[blocks].iter().map(|&block| (block, index)));
    }
    written.sort_unstable();
    if let Some(pair) = written.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (block, index) = pair[1];
        return Err(BackendError::InvalidInput(format!(
            "row {index}: block {block} is written twice in one step"
        )));
    }
    Ok(())
}

fn check_row(row: &Row, capacity: Capacity) -> Result<(), String> {
    if row.tokens.is_empty() {
        return Err("it has no token".into());
    }
    if let Some(token) = row
        .tokens
        .iter()
        .find(|&&token| token as usize >= capacity.vocab_size)
    {
        return Err(format!(
            "token {token} is outside the vocabulary of {}",
            capacity.vocab_size
        ));
    }
    let end = row
        .start
        .checked_add(row.tokens.len())
        .filter(|&end| end <= capacity.max_context)
        .ok_or_else(|| {
            format!(
                "{} tokens from position {} are past the context of {}",
                row.tokens.len(),
                row.start,
                capacity.max_context
            )
        })?;
    let needed = end.div_ceil(capacity.block_size);
    if row.table.len() < needed {
        return Err(format!(
            "its table has {} blocks, {needed} are needed",
            row.table.len()
        ));
    }
    if let Some(block) = row.table[..needed]
        .iter()
        .find(|&&block| block as usize >= capacity.blocks)
    {
        return Err(format!(
            "block {block} is outside the cache of {}",
            capacity.blocks
        ));
    }
    Ok(())
}
