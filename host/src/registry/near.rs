//! "Did you mean": names that differ from another by a slip.

/// Names proposed when one is not found.
const SUGGESTIONS: usize = 3;

/// The names of `known` that differ from `name` by a slip or two, best first.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let allowed = 2 + name.len() / 8;
    let last = |name: &'_ str| name.split_once('/').map(|(_, last)| last.to_owned());
    let wanted = last(name);
    let same_name = |other: &str| last(other) == wanted;
    let mut scored: Vec<(usize, &str)> = known
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|&(distance, other)| distance <= allowed || same_name(other))
        .collect();
    scored.sort_unstable();
    scored.dedup();
    let best = scored.into_iter().take(SUGGESTIONS);
    best.map(|(_, other)| other.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = [
            "acme/ticket",
            "acme/tickets",
            "formwork/regex",
            "formwork/choice",
        ];
        for (name, expected) in [
            ("acme/tiket", vec!["acme/ticket", "acme/tickets"]),
            ("formwrok/regex", vec!["formwork/regex"]),
            ("other/regex", vec!["formwork/regex"]),
            ("acme/invoice", vec![]),
        ] {
            assert_eq!(near(name, known.into_iter()), expected, "{name}");
        }
    }
}
