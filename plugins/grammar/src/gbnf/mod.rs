//! GBNF, the grammar notation of llama.cpp, translated to Lark exactly.
//!
//! GBNF describes characters; Lark describes lexemes that a greedy lexer cuts out of the text. Whatever is
//! not recursive becomes one lexeme. Where a lexer could cut differently than the grammar means it, the
//! lexemes at fault are taken apart, in the last resort into single characters (see [`lexemes`]).

mod analysis;
mod chars;
mod lexemes;
mod literal;
mod parse;
mod print;
#[cfg(any(test, feature = "recogniser"))]
pub mod recogniser;
mod shape;

pub(crate) use chars::Chars;

use formwork_plugin_sdk::prelude::*;

/// Part of a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    /// One of these characters.
    Chars(Chars),
    /// One after the other; of none, the empty text.
    Seq(Vec<Expr>),
    /// One of them; of none, no text at all.
    Alt(Vec<Expr>),
    /// As many times as the bounds say.
    Repeat(Box<Expr>, u32, Option<u32>),
    /// Another rule, by number.
    Rule(usize),
}

/// A named part.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) body: Expr,
}

impl Expr {
    fn seq(mut items: Vec<Self>) -> Self {
        match items.len() {
            1 => items.remove(0),
            _ => Self::Seq(items),
        }
    }

    fn alt(mut items: Vec<Self>) -> Self {
        match items.len() {
            1 => items.remove(0),
            _ => Self::Alt(items),
        }
    }

    fn repeat(item: Self, min: u32, max: Option<u32>) -> Self {
        match (min, max) {
            (_, Some(0)) => Self::empty(),
            (1, Some(1)) => item,
            _ => Self::Repeat(Box::new(item), min, max),
        }
    }

    fn empty() -> Self {
        Self::Seq(Vec::new())
    }

    /// Calls `visit` with every part, itself included.
    fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        match self {
            Self::Seq(items) | Self::Alt(items) => items.iter().for_each(|item| item.walk(visit)),
            Self::Repeat(item, ..) => item.walk(visit),
            Self::Chars(_) | Self::Rule(_) => {}
        }
    }

    /// The rules that it names.
    fn rules(&self) -> Vec<usize> {
        let mut rules = Vec::new();
        self.walk(&mut |part| {
            if let Self::Rule(rule) = part {
                rules.push(*rule);
            }
        });
        rules
    }
}

/// Whether a grammar is written in GBNF rather than in Lark.
pub(crate) fn is_gbnf(grammar: &str) -> bool {
    let lines = grammar.lines();
    lines.map(str::trim_start).any(|line| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c));
        rest.len() < line.len() && rest.trim_start().starts_with("::=")
    })
}

/// The same language in Lark.
///
/// # Errors
/// `invalid_params` with line and column for what is no GBNF; `unsatisfiable` when no text matches.
pub fn to_lark(grammar: &str) -> Result<String, Failure> {
    let rules = parse::parse(grammar).map_err(|wrong| {
        let parse::Wrong {
            line,
            column,
            message,
        } = wrong;
        Failure::invalid_params(format!("params.grammar at {line}:{column}: {message}"))
    })?;
    let Some(rules) = shape::shaped(rules) else {
        return Err(Failure::unsatisfiable(
            "params.grammar: no text matches `root`: it never comes to an end",
        ));
    };
    Ok(print::print(&rules, &lexemes::Plan::of(&rules)))
}

#[cfg(test)]
mod tests;
