//! What a format wants done next.

use crate::template::Part;
use crate::{Field, Mask, Template};
use std::rc::Rc;

/// What the host carries out, in order. When a plan neither finishes nor samples, the format is asked
/// again once it is used up.
#[derive(Default)]
pub struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) end: End,
    /// Something was added after the end: reported when the plan is carried out.
    pub(crate) past_end: bool,
}

#[derive(Default)]
pub(crate) enum End {
    #[default]
    AskAgain,
    Sample {
        mask: Mask,
        temperature: Option<f32>,
    },
    Finish,
}

impl Plan {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text forced into the output without sampling.
    #[must_use]
    pub fn write(self, text: impl AsRef<[u8]>) -> Self {
        self.template(Template::new().literal(text))
    }

    /// One field, decoded under its grammar.
    #[must_use]
    pub fn field(mut self, field: Field) -> Self {
        self.push(Part::Field(Rc::new(field)));
        self
    }

    /// All parts of a template.
    #[must_use]
    pub fn template(mut self, template: Template) -> Self {
        for part in template.parts {
            self.push(part);
        }
        self
    }

    /// One token under this mask; the last thing in a plan. The format is asked again with it.
    #[must_use]
    pub fn sample(self, mask: Mask) -> Self {
        self.end(End::Sample {
            mask,
            temperature: None,
        })
    }

    /// Like [`sample`](Plan::sample), at this temperature instead of the request's.
    #[must_use]
    pub fn sample_at(self, mask: Mask, temperature: f32) -> Self {
        self.end(End::Sample {
            mask,
            temperature: Some(temperature),
        })
    }

    /// The output is complete; the last thing in a plan.
    #[must_use]
    pub fn finish(self) -> Self {
        self.end(End::Finish)
    }

    fn push(&mut self, part: Part) {
        self.past_end |= !matches!(self.end, End::AskAgain);
        self.parts.push(part);
    }

    fn end(mut self, end: End) -> Self {
        self.past_end |= !matches!(self.end, End::AskAgain);
        self.end = end;
        self
    }
}

/// The template, and then the end of the output.
impl From<Template> for Plan {
    fn from(template: Template) -> Self {
        Self::new().template(template).finish()
    }
}
