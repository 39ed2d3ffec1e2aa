//! What must be held back of a text that goes on.

/// Bytes at the end of `text` that may belong to `marker`: white space before it, then its beginning.
pub(super) fn held(text: &str, marker: &str) -> usize {
    let starts = marker.char_indices().map(|(at, _)| at).rev();
    let mut starts = starts.filter(|&length| text.ends_with(&marker[..length]));
    let part = starts.next().unwrap_or(0);
    let before = &text[..text.len() - part];
    part + before.len() - before.trim_end().len()
}
