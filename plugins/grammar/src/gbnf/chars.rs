//! Sets of characters.

use std::fmt::Write;

const LAST: u32 = 0x10_FFFF;
/// Surrogates are no characters.
const GAP: (u32, u32) = (0xD800, 0xDFFF);

/// A set of characters, as ranges of code points: sorted, apart, and without surrogates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Chars(Vec<(u32, u32)>);

impl Chars {
    pub(crate) fn one(c: char) -> Self {
        Self(vec![(c.into(), c.into())])
    }

    pub(crate) fn any() -> Self {
        Self(vec![(0, GAP.0 - 1), (GAP.1 + 1, LAST)])
    }

    pub(crate) fn of(ranges: &[(char, char)]) -> Self {
        let ranges = ranges
            .iter()
            .map(|&(low, high)| (u32::from(low), u32::from(high)));
        Self::normal(ranges.collect())
    }

    fn normal(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        // A range over the gap is cut in two.
        let cut = merged.into_iter().flat_map(|(low, high)| {
            let below = (low, high.min(GAP.0 - 1));
            let above = (low.max(GAP.1 + 1), high);
            [below, above]
        });
        Self(cut.filter(|(low, high)| low <= high).collect())
    }

    pub(crate) fn complement(&self) -> Self {
        let mut ranges = Vec::new();
        let mut next = 0;
        for &(low, high) in &self.0 {
            if low > next {
                ranges.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= LAST {
            ranges.push((next, LAST));
        }
        Self::normal(ranges)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let ranges = sets.into_iter().flat_map(|set| set.0.iter().copied());
        Self::normal(ranges.collect())
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(low, high)), Some(&&(other_low, other_high))) = (a.peek(), b.peek()) {
            if low <= other_high && other_low <= high {
                return true;
            }
            if high < other_high {
                a.next();
            } else {
                b.next();
            }
        }
        false
    }

    /// The finest sets of which every one of `sets` is a union; they are disjoint.
    pub(crate) fn atoms(sets: &[&Self]) -> Vec<Self> {
        let mut bounds: Vec<u32> = Vec::new();
        for (low, high) in sets.iter().flat_map(|set| &set.0) {
            bounds.extend([*low, high + 1]);
        }
        bounds.sort_unstable();
        bounds.dedup();
        let mut groups: std::collections::BTreeMap<Vec<usize>, Vec<(u32, u32)>> =
            std::collections::BTreeMap::new();
        for pair in bounds.windows(2) {
            let holders = (0..sets.len()).filter(|&index| sets[index].holds(pair[0]));
            let holders: Vec<usize> = holders.collect();
            if !holders.is_empty() {
                groups
                    .entry(holders)
                    .or_default()
                    .push((pair[0], pair[1] - 1));
            }
        }
        groups.into_values().map(Self::normal).collect()
    }

    pub(crate) fn holds(&self, code: u32) -> bool {
        let after = self.0.partition_point(|&(low, _)| low <= code);
        after > 0 && self.0[after - 1].1 >= code
    }

    /// Whether all of `self` is in `other`, where `self` is an atom of it or apart from it.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        self.0.first().is_some_and(|&(low, _)| other.holds(low))
    }

    /// A regex for one of them.
    pub(crate) fn regex(&self) -> String {
        let spelled = |code: u32| match char::from_u32(code) {
            Some(c) if c.is_ascii_alphanumeric() || c == '_' => c.to_string(),
            _ => format!("\\x{{{code:x}}}"),
        };
        if let [(low, high)] = self.0[..]
            && low == high
        {
            return spelled(low);
        }
        let mut text = String::from("[");
        for &(low, high) in &self.0 {
            let _ = match low == high {
                true => write!(text, "{}", spelled(low)),
                false => write!(text, "{}-{}", spelled(low), spelled(high)),
            };
        }
        text + "]"
    }
}
