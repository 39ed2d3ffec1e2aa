//! Takes out what can never be completed, and turns plain recursion into repetition.

use super::{Expr, Rule};
use std::collections::VecDeque;

/// A grammar in which everything can be completed.
pub(crate) struct Shaped {
    pub(crate) bodies: Vec<Expr>,
    /// Whether a rule is free of recursion, its own and that of the rules it names.
    pub(crate) regular: Vec<bool>,
    /// Whether a rule matches the empty text.
    nullable: Vec<bool>,
}

impl Shaped {
    /// Whether an expression is free of recursion.
    pub(crate) fn is_regular(&self, expr: &Expr) -> bool {
        expr.rules().into_iter().all(|rule| self.regular[rule])
    }

    /// Whether an expression matches the empty text.
    pub(crate) fn is_nullable(&self, expr: &Expr) -> bool {
        is_nullable(expr, &self.nullable)
    }
}

/// Shapes the rules; `None` when `root` can never be completed.
pub(crate) fn shaped(rules: Vec<Rule>) -> Option<Shaped> {
    let mut bodies: Vec<Expr> = rules.into_iter().map(|rule| rule.body).collect();
    let productive = closure(&bodies, is_productive);
    if !productive[0] {
        return None;
    }
    for body in &mut bodies {
        let taken = std::mem::replace(body, Expr::empty());
        *body = pruned(taken, &productive).unwrap_or_else(Expr::empty);
    }
    resolve_aliases(&mut bodies);
    for (rule, body) in bodies.iter_mut().enumerate() {
        if let Some(looped) = looped(body, rule) {
            *body = looped;
        }
    }
    let regular = regular(&bodies);
    let nullable = closure(&bodies, is_nullable);
    Some(Shaped {
        bodies,
        regular,
        nullable,
    })
}

/// The rules for which `holds` can be shown, given the rules for which it was shown already.
fn closure(bodies: &[Expr], holds: fn(&Expr, &[bool]) -> bool) -> Vec<bool> {
    let mut known = vec![false; bodies.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); bodies.len()];
    for (rule, body) in bodies.iter().enumerate() {
        body.rules()
            .into_iter()
            .for_each(|used| users[used].push(rule));
    }
    let mut open: VecDeque<usize> = (0..bodies.len()).collect();
    while let Some(rule) = open.pop_front() {
        if !known[rule] && holds(&bodies[rule], &known) {
            known[rule] = true;
            open.extend(&users[rule]);
        }
    }
    known
}

fn is_productive(expr: &Expr, known: &[bool]) -> bool {
    match expr {
        Expr::Chars(chars) => !chars.is_empty(),
        Expr::Seq(items) => items.iter().all(|item| is_productive(item, known)),
        Expr::Alt(items) => items.iter().any(|item| is_productive(item, known)),
        Expr::Repeat(item, min, _) => *min == 0 || is_productive(item, known),
        Expr::Rule(rule) => known[*rule],
    }
}

fn is_nullable(expr: &Expr, known: &[bool]) -> bool {
    match expr {
        Expr::Chars(_) => false,
        Expr::Seq(items) => items.iter().all(|item| is_nullable(item, known)),
        Expr::Alt(items) => items.iter().any(|item| is_nullable(item, known)),
        Expr::Repeat(item, min, _) => *min == 0 || is_nullable(item, known),
        Expr::Rule(rule) => known[*rule],
    }
}

/// The part without alternatives that match nothing; `None` when nothing is left.
fn pruned(expr: Expr, known: &[bool]) -> Option<Expr> {
    Some(match expr {
        Expr::Chars(chars) if chars.is_empty() => return None,
        Expr::Seq(items) => {
            let items = items.into_iter().map(|item| pruned(item, known));
            Expr::seq(items.collect::<Option<Vec<_>>>()?)
        }
        Expr::Alt(items) => {
            let items = items.into_iter().filter_map(|item| pruned(item, known));
            let items: Vec<Expr> = items.collect();
            if items.is_empty() {
                return None;
            }
            Expr::alt(items)
        }
        Expr::Repeat(item, min, max) => match pruned(*item, known) {
            Some(item) => Expr::repeat(item, min, max),
            None if min == 0 => Expr::empty(),
            None => return None,
        },
        Expr::Rule(rule) if !known[rule] => return None,
        expr => expr,
    })
}

/// Rules that are only another name are seen through.
fn resolve_aliases(bodies: &mut [Expr]) {
    let aliases: Vec<usize> = (0..bodies.len())
        .map(|rule| {
            let mut end = rule;
            // A ring of aliases matches nothing, and was pruned.
            for _ in 0..bodies.len() {
                match bodies[end] {
                    Expr::Rule(next) => end = next,
                    _ => break,
                }
            }
            end
        })
        .collect();
    for body in bodies.iter_mut() {
        rename(body, &aliases);
    }
    if let Expr::Rule(other) = bodies[0] {
        bodies[0] = bodies[other].clone();
    }
}

fn rename(expr: &mut Expr, names: &[usize]) {
    match expr {
        Expr::Rule(rule) => *rule = names[*rule],
        Expr::Seq(items) | Expr::Alt(items) => {
            items.iter_mut().for_each(|item| rename(item, names))
        }
        Expr::Repeat(item, ..) => rename(item, names),
        Expr::Chars(_) => {}
    }
}

/// `r ::= a r | b` is `a* b`, and `r ::= r a | b` is `b a*`.
fn looped(body: &Expr, rule: usize) -> Option<Expr> {
    if !body.rules().contains(&rule) {
        return None;
    }
    let mut branches = Vec::new();
    spread(body, &mut branches);
    let itself = Expr::Rule(rule);
    let (mut leading, mut trailing, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for mut branch in branches {
        let named = branch.iter().map(|item| item.rules());
        let times = named.flatten().filter(|&used| used == rule).count();
        match times {
            0 => ends.push(Expr::seq(branch)),
            1 if branch.last() == Some(&itself) => {
                branch.pop();
                leading.push(Expr::seq(branch));
            }
            1 if branch.first() == Some(&itself) => {
                branch.remove(0);
                trailing.push(Expr::seq(branch));
            }
            _ => return None,
        }
    }
    let many = |items: Vec<Expr>| Expr::repeat(Expr::alt(items), 0, None);
    match (leading.is_empty(), trailing.is_empty(), ends.is_empty()) {
        (_, _, true) | (false, false, _) => None,
        (false, true, _) => Some(Expr::seq(vec![many(leading), Expr::alt(ends)])),
        (true, false, _) => Some(Expr::seq(vec![Expr::alt(ends), many(trailing)])),
        (true, true, _) => None,
    }
}

/// The alternatives of a body as sequences; options at its end, or as all of it, count as alternatives.
fn spread(expr: &Expr, branches: &mut Vec<Vec<Expr>>) {
    match expr {
        Expr::Alt(items) => items.iter().for_each(|item| spread(item, branches)),
        Expr::Repeat(item, 0, Some(1)) => {
            spread(item, branches);
            branches.push(Vec::new());
        }
        Expr::Seq(items) => match items.split_last() {
            Some((Expr::Repeat(item, 0, Some(1)), before)) => {
                let mut inner = Vec::new();
                spread(item, &mut inner);
                inner.push(Vec::new());
                let joined = inner
                    .into_iter()
                    .map(|tail| [before, tail.as_slice()].concat());
                branches.extend(joined);
            }
            _ => branches.push(items.clone()),
        },
        other => branches.push(vec![other.clone()]),
    }
}

fn regular(bodies: &[Expr]) -> Vec<bool> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); bodies.len()];
    let mut missing: Vec<usize> = vec![0; bodies.len()];
    for (rule, body) in bodies.iter().enumerate() {
        let used = body.rules();
        missing[rule] = used.len();
        used.into_iter().for_each(|used| users[used].push(rule));
    }
    let mut regular = vec![false; bodies.len()];
    let mut open: Vec<usize> = (0..bodies.len())
        .filter(|&rule| missing[rule] == 0)
        .collect();
    while let Some(rule) = open.pop() {
        regular[rule] = true;
        for &user in &users[rule] {
            missing[user] -= 1;
            if missing[user] == 0 {
                open.push(user);
            }
        }
    }
    regular
}
