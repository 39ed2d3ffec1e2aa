//! What may be left to validation when the grammar engine turns a schema down, and in which order.

use std::collections::BTreeSet;

/// Targets to which references are cut before whole kinds of keywords give way.
const MOST_CUTS: usize = 32;

/// One kind of keyword that gives way. In the order in which they do when nothing else tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weakening {
    /// Patterns that the grammar engine does not take by themselves.
    HardPatterns,
    /// Several `patternProperties` become one: any of their patterns, any of their schemas.
    MergedPatternProperties,
    /// `minProperties`, `maxProperties`.
    PropertyCounts,
    /// What stands beside a `$ref`.
    ReferenceSiblings,
    /// What `if`, `then` and `else` say together.
    Conditionals,
    /// `multipleOf`.
    Multiples,
    /// Bounds of numbers.
    Bounds,
    /// References to other documents.
    ForeignReferences,
    /// Every `pattern`.
    Patterns,
    /// `patternProperties`, and with it `additionalProperties`, which needs to know about them.
    PatternProperties,
    /// Every `format`.
    Formats,
    /// `minLength`, `maxLength`.
    Lengths,
    /// `minItems`, `maxItems`.
    ItemCounts,
    /// `allOf`.
    Intersections,
    /// `anyOf`, `oneOf`.
    Unions,
    /// `const`, `enum`.
    Literals,
    /// Every reference.
    References,
    /// All but the type.
    Everything,
}

impl Weakening {
    pub(super) const ALL: [Self; 18] = [
        Self::HardPatterns,
        Self::MergedPatternProperties,
        Self::PropertyCounts,
        Self::ReferenceSiblings,
        Self::Conditionals,
        Self::Multiples,
        Self::Bounds,
        Self::ForeignReferences,
        Self::Patterns,
        Self::PatternProperties,
        Self::Formats,
        Self::Lengths,
        Self::ItemCounts,
        Self::Intersections,
        Self::Unions,
        Self::Literals,
        Self::References,
        Self::Everything,
    ];

    /// The kinds that the grammar engine's complaint points at.
    pub(super) fn hinted(message: &str) -> Vec<Self> {
        let hints: [(&str, &[Self]); 11] = [
            ("disjoint", &[Self::MergedPatternProperties]),
            ("min/maxProperties", &[Self::PropertyCounts]),
            ("circular references", &[Self::ReferenceSiblings]),
            ("lookarounds", &[Self::HardPatterns]),
            (
                "regex is empty",
                &[Self::HardPatterns, Self::Formats, Self::Lengths],
            ),
            ("multipleOf", &[Self::Multiples]),
            ("Failed to generate regex", &[Self::Bounds]),
            ("supported range", &[Self::Lengths]),
            ("Expected positive integer", &[Self::Lengths]),
            ("esolv", &[Self::ForeignReferences, Self::References]),
            ("retriev", &[Self::ForeignReferences, Self::References]),
        ];
        let fits = hints.iter().filter(|(mark, _)| message.contains(mark));
        fits.flat_map(|(_, kinds)| kinds.iter().copied()).collect()
    }

    /// Whether a keyword goes altogether.
    fn drops(self, keyword: &str) -> bool {
        let gone: &[&str] = match self {
            Self::PropertyCounts => &["minProperties", "maxProperties"],
            Self::Multiples => &["multipleOf"],
            Self::Bounds => &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
            Self::Patterns => &["pattern", "propertyNames"],
            Self::PatternProperties => &["patternProperties", "additionalProperties"],
            Self::Formats => &["format"],
            Self::Lengths => &["minLength", "maxLength"],
            Self::ItemCounts => &["minItems", "maxItems"],
            Self::Intersections => &["allOf"],
            Self::Unions => &["anyOf", "oneOf"],
            Self::Literals => &["const", "enum"],
            Self::References => &["$ref", "$dynamicRef"],
            Self::Everything => return keyword != "type",
            Self::HardPatterns
            | Self::MergedPatternProperties
            | Self::ReferenceSiblings
            | Self::Conditionals
            | Self::ForeignReferences => &[],
        };
        gone.contains(&keyword)
    }
}

/// What has given way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Weakenings {
    kinds: BTreeSet<Weakening>,
    /// The kind that gave way last, if that was a kind.
    latest: Option<Weakening>,
    /// Fragments of references that are left out: the grammar engine cannot narrow what they lead to while
    /// it is reading it.
    cuts: BTreeSet<String>,
}

impl Weakenings {
    pub(super) fn contains(&self, weakening: &Weakening) -> bool {
        self.kinds.contains(weakening)
    }

    pub(super) fn drops(&self, keyword: &str) -> bool {
        self.kinds.iter().any(|weakening| weakening.drops(keyword))
    }

    /// Whether a reference is left out.
    pub(super) fn cuts(&self, reference: &str) -> bool {
        let fragment = reference.split_once('#').map(|(_, fragment)| fragment);
        fragment.is_some_and(|fragment| self.cuts.contains(fragment))
    }

    /// Adds what a complaint points at, else the next in order; false when all have given way.
    pub(super) fn give_way(&mut self, message: &str) -> bool {
        if self.cut(message) {
            self.latest = None;
            return true;
        }
        let hinted = Weakening::hinted(message);
        let next = hinted
            .into_iter()
            .chain(Weakening::ALL)
            .find(|weakening| !self.contains(weakening));
        self.latest = next;
        next.is_some_and(|weakening| self.kinds.insert(weakening))
    }

    /// Cuts the references to a target that the complaint names, if references alone are no better.
    fn cut(&mut self, message: &str) -> bool {
        let target = message.split_whitespace().next_back().unwrap_or("");
        match target.split_once('#') {
            Some((_, fragment))
                if message.contains("circular references")
                    && self.contains(&Weakening::ReferenceSiblings)
                    && self.cuts.len() < MOST_CUTS =>
            {
                self.cuts.insert(fragment.to_owned())
            }
            _ => false,
        }
    }

    /// The kinds that have given way, in order, but for the one that the grammar engine asked for last.
    pub(super) fn doubtful(&self) -> Vec<Weakening> {
        let kinds = self.kinds.iter().copied();
        kinds.filter(|kind| Some(*kind) != self.latest).collect()
    }

    pub(super) fn remove(&mut self, weakening: Weakening) {
        self.kinds.remove(&weakening);
    }
}
