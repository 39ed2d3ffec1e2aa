//! Outputs as literals and fields.

use crate::{Field, Values, decide};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::rc::Rc;

/// An output made of literals and fields, some of them optional or repeated.
///
/// Where the output may go on in several ways (an optional part, a list that may end, alternatives), the
/// model chooses among the *literals* that begin each of them, so that asking costs no text of its own.
/// Each way must therefore begin with a literal (or be the end of the output), and none of these literals
/// may be the beginning of another. [`validate`](Template::validate) says where that does not hold.
#[derive(Clone, Default)]
pub struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone)]
pub(crate) enum Part {
    Literal(Rc<[u8]>),
    Field(Rc<Field>),
    Optional(Rc<Branch>),
    /// With the number of items already begun.
    Repeat(Rc<Repeat>, u32),
    Either(Rc<Either>),
    Then(Rc<dyn Fn(&Values) -> Template>),
}

pub(crate) struct Branch {
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
}

pub(crate) struct Either {
    pub(crate) name: String,
    pub(crate) branches: Vec<Vec<Part>>,
}

pub(crate) struct Repeat {
    pub(crate) name: String,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) separator: Rc<[u8]>,
    pub(crate) item: Vec<Part>,
}

impl Template {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text that is always there; forced, never sampled.
    #[must_use]
    pub fn literal(mut self, text: impl AsRef<[u8]>) -> Self {
        if !text.as_ref().is_empty() {
            self.parts.push(Part::Literal(text.as_ref().into()));
        }
        self
    }

    /// A field that the model fills in.
    #[must_use]
    pub fn field(mut self, field: Field) -> Self {
        self.parts.push(Part::Field(Rc::new(field)));
        self
    }

    /// A part that the model may leave out. It begins with a literal, and so does what follows it.
    #[must_use]
    pub fn optional(mut self, name: impl Into<String>, part: Template) -> Self {
        self.parts.push(Part::Optional(Rc::new(Branch {
            name: name.into(),
            parts: part.parts,
        })));
        self
    }

    /// An item as many times as the model likes within `times`, with a separator between two of them.
    /// What follows begins with a literal. When `times` allows 0, the item begins with one too.
    #[must_use]
    pub fn repeat(
        mut self,
        name: impl Into<String>,
        times: impl RangeBounds<u32>,
        separator: impl AsRef<[u8]>,
        item: Template,
    ) -> Self {
        let min = match times.start_bound() {
            Bound::Included(&min) => min,
            Bound::Excluded(&min) => min.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let max = match times.end_bound() {
            Bound::Included(&max) => max,
            Bound::Excluded(&max) => max.saturating_sub(1),
            Bound::Unbounded => u32::MAX,
        };
        let repeat = Repeat {
            name: name.into(),
            min,
            max,
            separator: separator.as_ref().into(),
            item: item.parts,
        };
        self.parts.push(Part::Repeat(Rc::new(repeat), 0));
        self
    }

    /// One of several parts, each of which begins with a literal.
    #[must_use]
    pub fn either(
        mut self,
        name: impl Into<String>,
        branches: impl IntoIterator<Item = Template>,
    ) -> Self {
        let branches = branches.into_iter().map(|branch| branch.parts);
        let either = Either {
            name: name.into(),
            branches: branches.collect(),
        };
        self.parts.push(Part::Either(Rc::new(either)));
        self
    }

    /// A part that depends on the values so far.
    #[must_use]
    pub fn then(mut self, part: impl Fn(&Values) -> Template + 'static) -> Self {
        self.parts.push(Part::Then(Rc::new(part)));
        self
    }

    /// All parts of another template.
    #[must_use]
    pub fn append(mut self, other: Template) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// Checks that the model can always tell the ways to go on apart. Parts behind a
    /// [`then`](Template::then) are checked when they are reached.
    ///
    /// # Errors
    /// Names the part where it cannot.
    pub fn validate(&self) -> Result<(), TemplateError> {
        decide::validate(&self.parts)
    }
}

/// Where a template leaves the model no way to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The optional, repeated or alternative part.
    pub part: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "part `{}`: {}", self.part, self.problem)
    }
}

impl std::error::Error for TemplateError {}
