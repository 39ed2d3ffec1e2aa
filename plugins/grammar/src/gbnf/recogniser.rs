//! GBNF taken at its word: a recogniser that tries everything, to compare the translation with.

use super::Expr;
use super::parse::parse;
use std::collections::{BTreeSet, HashMap};

/// Most repetitions that are tried one by one.
const REPEATS: u32 = 64;

/// Whether the text is in the grammar's language; `None` for what is no GBNF, and for repetitions that it would
/// take too long to try.
pub fn matches(grammar: &str, text: &str) -> Option<bool> {
    let rules = parse(grammar).ok()?;
    let mut tame = true;
    for rule in &rules {
        rule.body.walk(&mut |part| {
            if let Expr::Repeat(_, min, max) = part {
                tame &= (*min).max(max.unwrap_or(0)) <= REPEATS;
            }
        });
    }
    tame.then(|| {
        let oracle = Oracle {
            text: text.chars().collect(),
            bodies: rules.into_iter().map(|rule| rule.body).collect(),
            ends: HashMap::new(),
        };
        oracle.matches()
    })
}

/// Ends of the matches of every rule at every place, worked out until nothing is added.
struct Oracle {
    text: Vec<char>,
    bodies: Vec<Expr>,
    ends: HashMap<(usize, usize), BTreeSet<usize>>,
}

impl Oracle {
    fn matches(mut self) -> bool {
        loop {
            let before: usize = self.ends.values().map(BTreeSet::len).sum();
            for rule in 0..self.bodies.len() {
                for at in 0..=self.text.len() {
                    let ends = self.expr(&self.bodies[rule], at);
                    self.ends.insert((rule, at), ends);
                }
            }
            if before == self.ends.values().map(BTreeSet::len).sum::<usize>() {
                return self.ends[&(0, 0)].contains(&self.text.len());
            }
        }
    }

    fn expr(&self, expr: &Expr, at: usize) -> BTreeSet<usize> {
        match expr {
            Expr::Chars(chars) => {
                let fits = self.text.get(at).is_some_and(|&c| chars.holds(c.into()));
                fits.then_some(at + 1).into_iter().collect()
            }
            Expr::Seq(items) => items
                .iter()
                .fold([at].into(), |ends, item| self.each(&ends, item)),
            Expr::Alt(items) => items.iter().flat_map(|item| self.expr(item, at)).collect(),
            Expr::Repeat(item, min, max) => {
                let mut now: BTreeSet<usize> = [at].into();
                let mut all = BTreeSet::new();
                let enough = *min as usize + self.text.len() + 1;
                for times in 0..=max.map_or(enough, |max| (max as usize).min(enough)) {
                    if times >= *min as usize {
                        all.extend(&now);
                    }
                    let next = self.each(&now, item);
                    // Further repetitions lead nowhere else.
                    if next == now {
                        all.extend(&now);
                        break;
                    }
                    now = next;
                }
                all
            }
            Expr::Rule(rule) => self.ends.get(&(*rule, at)).cloned().unwrap_or_default(),
        }
    }

    fn each(&self, starts: &BTreeSet<usize>, item: &Expr) -> BTreeSet<usize> {
        starts.iter().flat_map(|&at| self.expr(item, at)).collect()
    }
}
