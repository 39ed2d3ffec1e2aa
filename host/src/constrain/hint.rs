//! The text put before a field that is tried again.

/// Fills `{reason}` and `{value}` into a hint. What is filled in is not looked at again: a reason may quote
/// anything.
pub(super) fn fill(hint: &str, reason: &str, value: &[u8]) -> Vec<u8> {
    let value = String::from_utf8_lossy(value);
    let mut filled = String::with_capacity(hint.len() + reason.len() + value.len());
    let mut rest = hint;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{reason}") {
            filled.push_str(reason);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{value}") {
            filled.push_str(&value);
            rest = after;
        } else {
            filled.push('{');
            rest = &rest[1..];
        }
    }
    filled.push_str(rest);
    filled.into_bytes()
}
