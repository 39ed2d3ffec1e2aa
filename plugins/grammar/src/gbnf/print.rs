//! Writes Lark.

use super::lexemes::{Item, Plan};
use super::shape::Shaped;
use super::{Chars, Expr};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The whole grammar.
pub(crate) fn print(shaped: &Shaped, plan: &Plan) -> String {
    let mut text = String::from("start: r0\n");
    for (rule, item) in &plan.rules {
        let _ = writeln!(text, "r{rule}: {}", rule_text(item));
    }
    let mut used: Vec<usize> = Vec::new();
    for (number, lexeme) in plan.lexemes.iter().enumerate() {
        used.extend(lexeme.expr.rules());
        let _ = match lexeme.nullable {
            true => writeln!(text, "L{number}: ({}) & /(?s:.+)/", lexeme.key),
            false => writeln!(text, "L{number}: {}", lexeme.key),
        };
    }
    let mut printed = BTreeSet::new();
    while let Some(rule) = used.pop() {
        if printed.insert(rule) {
            used.extend(shaped.bodies[rule].rules());
            let _ = writeln!(text, "T{rule}: {}", lark(&shaped.bodies[rule]));
        }
    }
    text
}

/// An expression without recursion, as the body of a terminal.
pub(crate) fn lark(expr: &Expr) -> String {
    match expr {
        Expr::Chars(chars) => regex([chars]),
        Expr::Seq(items) => {
            let mut parts: Vec<String> = Vec::new();
            let mut rest = items.as_slice();
            while let Some(first) = rest.first() {
                let chars = rest.iter().map_while(|item| match item {
                    Expr::Chars(chars) => Some(chars),
                    _ => None,
                });
                let chars: Vec<&Chars> = chars.collect();
                if chars.is_empty() {
                    parts.push(lark(first));
                    rest = &rest[1..];
                } else {
                    rest = &rest[chars.len()..];
                    parts.push(regex(chars));
                }
            }
            joined(parts, " ")
        }
        Expr::Alt(items) => joined(items.iter().map(lark).collect(), " | "),
        Expr::Repeat(item, min, max) => repeated(&lark(item), *min, *max),
        Expr::Rule(rule) => format!("T{rule}"),
    }
}

fn regex<'a>(chars: impl IntoIterator<Item = &'a Chars>) -> String {
    let regex: String = chars.into_iter().map(Chars::regex).collect();
    format!("/{regex}/")
}

fn rule_text(item: &Item) -> String {
    match item {
        Item::Lexeme(number) => format!("L{number}"),
        Item::Seq(items) => joined(items.iter().map(rule_text).collect(), " "),
        Item::Alt(items) => joined(items.iter().map(rule_text).collect(), " | "),
        Item::Repeat(item, min, max) => repeated(&rule_text(item), *min, *max),
        Item::Rule(rule) => format!("r{rule}"),
    }
}

/// Several parts in brackets, one as it is, none as the empty text.
fn joined(mut parts: Vec<String>, by: &str) -> String {
    match parts.len() {
        0 => "\"\"".to_owned(),
        1 => parts.remove(0),
        _ => format!("({})", parts.join(by)),
    }
}

fn repeated(item: &str, min: u32, max: Option<u32>) -> String {
    // What is repeated already, `a*` or `a{2}`, must not look like one operator with the next.
    let bare = item.ends_with(['*', '+', '?', '}']);
    let item = if bare {
        format!("({item})")
    } else {
        item.to_owned()
    };
    match (min, max) {
        (0, None) => format!("{item}*"),
        (1, None) => format!("{item}+"),
        (0, Some(1)) => format!("{item}?"),
        (min, None) => format!("({item}{{{min}}} {item}*)"),
        (min, Some(max)) if min == max => format!("{item}{{{min}}}"),
        (min, Some(max)) => format!("{item}{{{min},{max}}}"),
    }
}
