//! Stop strings in a text that goes on.

/// Where the stop string begins that is complete first; of several that end there the longest.
pub(super) fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
    let found = stops.iter().filter_map(|stop| {
        let start = text.find(stop.as_str())?;
        Some((start + stop.len(), start))
    });
    found.min().map(|(_, start)| start)
}

/// Where the first stop string begins.
pub(super) fn first_start(text: &str, stops: &[String]) -> Option<usize> {
    stops
        .iter()
        .filter_map(|stop| text.find(stop.as_str()))
        .min()
}

/// Bytes at the end of a text that one of these may begin with, but not all of it.
pub(super) fn longest_start<'a>(text: &str, wanted: impl IntoIterator<Item = &'a str>) -> usize {
    let starts = |wanted: &str| {
        let most = (wanted.len() - 1).min(text.len());
        let from = text.len() - most;
        let mut ends = (from..text.len()).filter(|&at| text.is_char_boundary(at));
        ends.find(|&at| wanted.starts_with(&text[at..]))
            .map_or(0, |at| text.len() - at)
    };
    wanted.into_iter().map(starts).max().unwrap_or(0)
}
