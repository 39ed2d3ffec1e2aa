//! What a lexer does with one lexeme: where it begins, and where it would go on after a complete match.

use super::{Chars, Expr};
use std::collections::{BTreeSet, HashSet};

/// Positions of a lexeme, and states of its automaton, up to which it is looked at.
const MAX_POSITIONS: usize = 400;
const MAX_STATES: usize = 1000;
/// Rules within rules up to which a lexeme is looked into.
const MAX_DEPTH: usize = 200;

/// What is known of one lexeme.
pub(crate) struct Lexing {
    /// Characters that it may begin with.
    pub(crate) first: Chars,
    /// Characters with which a match that is already complete may go on.
    pub(crate) more: Chars,
}

/// The automaton of the positions in an expression (Glushkov 1961).
#[derive(Default)]
struct Positions {
    chars: Vec<Chars>,
    follow: Vec<BTreeSet<usize>>,
    /// Rules that are being looked into.
    depth: usize,
}

#[derive(Clone, Default)]
struct Ends {
    first: BTreeSet<usize>,
    last: BTreeSet<usize>,
    nullable: bool,
}

/// Looks at a regular expression; `None` when it is too large for that.
pub(crate) fn lexing(expr: &Expr, bodies: &[Expr]) -> Option<Lexing> {
    let mut positions = Positions::default();
    let ends = positions.add(expr, bodies)?;
    let union = |set: &BTreeSet<usize>| Chars::union(set.iter().map(|&at| &positions.chars[at]));
    let first = union(&ends.first);
    let sets: Vec<&Chars> = positions.chars.iter().collect();
    let atoms = Chars::atoms(&sets);
    let mut states: HashSet<BTreeSet<usize>> = HashSet::new();
    let mut more: BTreeSet<usize> = BTreeSet::new();
    // The start is told apart from a state with the same followers: it has no position.
    let mut open = vec![ends.first.clone()];
    let mut next_of_start = true;
    while let Some(set) = open.pop() {
        let (nexts, complete) = match std::mem::take(&mut next_of_start) {
            true => (set, false),
            false => {
                let nexts = set
                    .iter()
                    .flat_map(|&at| positions.follow[at].iter().copied());
                (nexts.collect(), !set.is_disjoint(&ends.last))
            }
        };
        if complete {
            more.extend(&nexts);
        }
        for atom in &atoms {
            let reached = nexts.iter().copied();
            let reached: BTreeSet<usize> = reached
                .filter(|&at| atom.is_part_of(&positions.chars[at]))
                .collect();
            if !reached.is_empty() && states.insert(reached.clone()) {
                open.push(reached);
            }
        }
        if states.len() > MAX_STATES {
            return None;
        }
    }
    Some(Lexing {
        first,
        more: union(&more),
    })
}

impl Positions {
    fn add(&mut self, expr: &Expr, bodies: &[Expr]) -> Option<Ends> {
        if self.chars.len() > MAX_POSITIONS {
            return None;
        }
        match expr {
            Expr::Chars(chars) => {
                let at = self.chars.len();
                self.chars.push(chars.clone());
                self.follow.push(BTreeSet::new());
                Some(Ends {
                    first: [at].into(),
                    last: [at].into(),
                    nullable: false,
                })
            }
            Expr::Seq(items) => {
                let mut whole = Ends {
                    nullable: true,
                    ..Ends::default()
                };
                for item in items {
                    let next = self.add(item, bodies)?;
                    whole = self.joined(whole, next);
                }
                Some(whole)
            }
            Expr::Alt(items) => {
                let mut whole = Ends::default();
                for item in items {
                    let one = self.add(item, bodies)?;
                    whole.first.extend(one.first);
                    whole.last.extend(one.last);
                    whole.nullable |= one.nullable;
                }
                Some(whole)
            }
            Expr::Repeat(item, min, max) => self.repeated(item, (*min, *max), bodies),
            Expr::Rule(_) if self.depth >= MAX_DEPTH => None,
            Expr::Rule(rule) => {
                self.depth += 1;
                let ends = self.add(&bodies[*rule], bodies);
                self.depth -= 1;
                ends
            }
        }
    }

    fn repeated(
        &mut self,
        item: &Expr,
        (min, max): (u32, Option<u32>),
        bodies: &[Expr],
    ) -> Option<Ends> {
        let mut whole = Ends {
            nullable: true,
            ..Ends::default()
        };
        let copies = max.unwrap_or(min.max(1));
        for copy in 0..copies {
            let mut one = self.add(item, bodies)?;
            // An item without a position is the empty text, however often.
            if one.first.is_empty() {
                break;
            }
            if max.is_none() && copy + 1 == copies {
                self.link(&one.last, &one.first);
            }
            one.nullable |= copy >= min;
            whole = self.joined(whole, one);
        }
        Some(whole)
    }

    fn joined(&mut self, mut before: Ends, next: Ends) -> Ends {
        self.link(&before.last, &next.first);
        if before.nullable {
            before.first.extend(next.first);
        }
        match next.nullable {
            true => before.last.extend(next.last),
            false => before.last = next.last,
        }
        before.nullable &= next.nullable;
        before
    }

    fn link(&mut self, from: &BTreeSet<usize>, to: &BTreeSet<usize>) {
        for &at in from {
            self.follow[at].extend(to);
        }
    }
}
