//! What may be left to validation when the grammar engine turns a schema down, and in which order.

use std::collections::BTreeSet;

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
            ("regex is empty", &[Self::HardPatterns, Self::Formats]),
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

/// The kinds that have given way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Weakenings(BTreeSet<Weakening>);

impl Weakenings {
    pub(super) fn contains(&self, weakening: &Weakening) -> bool {
        self.0.contains(weakening)
    }

    pub(super) fn drops(&self, keyword: &str) -> bool {
        self.0.iter().any(|weakening| weakening.drops(keyword))
    }

    /// Adds what a complaint points at, else the next in order; false when all have given way.
    pub(super) fn give_way(&mut self, message: &str) -> bool {
        let hinted = Weakening::hinted(message);
        let next = hinted
            .into_iter()
            .chain(Weakening::ALL)
            .find(|weakening| !self.contains(weakening));
        next.is_some_and(|weakening| self.0.insert(weakening))
    }

    /// The kinds that have given way, in order.
    pub(super) fn kinds(&self) -> Vec<Weakening> {
        self.0.iter().copied().collect()
    }

    pub(super) fn remove(&mut self, weakening: Weakening) {
        self.0.remove(&weakening);
    }
}
