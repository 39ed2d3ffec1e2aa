//! Which parts of a grammar become lexemes.
//!
//! The lexer is greedy and does not go back: a lexeme takes all that it can, and among the lexemes that are
//! allowed at one place the first character must decide. So two lexemes that are allowed together must not
//! begin alike, and a lexeme must not be able to go on with a character that may follow it. Lexemes for
//! which that does not hold are taken apart one level at a time, until it holds for all. It does at the
//! latest when all are single characters out of disjoint sets.

use super::analysis::{Lexing, lexing};
use super::print::lark;
use super::shape::Shaped;
use super::{Chars, Expr};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A grammar over lexemes.
pub(crate) enum Item {
    Lexeme(usize),
    Seq(Vec<Item>),
    Alt(Vec<Item>),
    Repeat(Box<Item>, u32, Option<u32>),
    Rule(usize),
}

/// A lexeme, never empty.
pub(crate) struct Lexeme {
    pub(crate) expr: Expr,
    /// In Lark; tells lexemes apart.
    pub(crate) key: String,
    /// Whether the expression matches the empty text too, which the lexeme leaves to the grammar.
    pub(crate) nullable: bool,
    /// One character out of a set that no other class cuts.
    atom: bool,
}

/// How a grammar is written over lexemes.
pub(crate) struct Plan {
    pub(crate) lexemes: Vec<Lexeme>,
    /// By the number of the rule; rule 0 is the output.
    pub(crate) rules: BTreeMap<usize, Item>,
}

impl Plan {
    pub(crate) fn of(shaped: &Shaped) -> Self {
        let mut known = HashMap::new();
        let mut apart = HashSet::new();
        let mut classes: BTreeSet<&Chars> = BTreeSet::new();
        for body in &shaped.bodies {
            body.walk(&mut |part| {
                if let Expr::Chars(chars) = part {
                    classes.insert(chars);
                }
            });
        }
        let atoms = Chars::atoms(&classes.into_iter().collect::<Vec<_>>());
        loop {
            let plan = Builder::build(shaped, &atoms, &apart);
            let wrong = plan.wrong(shaped, &mut known);
            if wrong.is_empty() {
                return plan;
            }
            apart.extend(wrong);
        }
    }

    /// Keys of lexemes that a greedy lexer would cut wrongly.
    fn wrong(&self, shaped: &Shaped, known: &mut HashMap<String, Option<Lexing>>) -> Vec<String> {
        for lexeme in &self.lexemes {
            if !known.contains_key(&lexeme.key) {
                let found = lexing(&lexeme.expr, &shaped.bodies);
                known.insert(lexeme.key.clone(), found);
            }
        }
        let lexings: Vec<Option<&Lexing>> = self
            .lexemes
            .iter()
            .map(|lexeme| known[&lexeme.key].as_ref())
            .collect();
        let neighbours = Neighbours::of(self);
        let mut wrong = BTreeSet::new();
        for (lexeme, follow) in neighbours.follow.iter().enumerate() {
            let Some(lexing) = lexings[lexeme] else {
                wrong.insert(lexeme);
                continue;
            };
            let begins = |other: &usize| {
                lexings[*other].is_none_or(|other| other.first.intersects(&lexing.more))
            };
            if follow.iter().any(begins) {
                wrong.insert(lexeme);
            }
        }
        let places = neighbours.follow.iter().chain([&neighbours.start]);
        let places: BTreeSet<&BTreeSet<usize>> = places.collect();
        for place in places {
            for &one in place {
                for &other in place.range(one + 1..) {
                    let both_atoms = self.lexemes[one].atom && self.lexemes[other].atom;
                    let alike = || match (lexings[one], lexings[other]) {
                        (Some(one), Some(other)) => one.first.intersects(&other.first),
                        _ => true,
                    };
                    if !both_atoms && alike() {
                        wrong.extend([one, other]);
                    }
                }
            }
        }
        let wrong = wrong
            .into_iter()
            .filter(|&lexeme| !self.lexemes[lexeme].atom);
        wrong
            .map(|lexeme| self.lexemes[lexeme].key.clone())
            .collect()
    }
}

struct Builder<'a> {
    shaped: &'a Shaped,
    atoms: &'a [Chars],
    apart: &'a HashSet<String>,
    lexemes: Vec<Lexeme>,
    numbers: HashMap<String, usize>,
    wanted: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn build(shaped: &'a Shaped, atoms: &'a [Chars], apart: &'a HashSet<String>) -> Plan {
        let mut builder = Self {
            shaped,
            atoms,
            apart,
            lexemes: Vec::new(),
            numbers: HashMap::new(),
            wanted: vec![0],
        };
        let mut rules = BTreeMap::new();
        while let Some(rule) = builder.wanted.pop() {
            if let Entry::Vacant(place) = rules.entry(rule) {
                place.insert(builder.item(&shaped.bodies[rule]));
            }
        }
        Plan {
            lexemes: builder.lexemes,
            rules,
        }
    }

    fn item(&mut self, expr: &Expr) -> Item {
        if self.shaped.is_regular(expr) {
            return self.regular(expr);
        }
        if let Expr::Seq(items) = expr {
            return self.runs(items);
        }
        self.taken_apart(expr)
    }

    /// Neighbours that are regular make one lexeme.
    fn runs(&mut self, items: &[Expr]) -> Item {
        let mut parts = Vec::new();
        let mut rest = items;
        while let Some(first) = rest.first() {
            let regular = |item: &&Expr| self.shaped.is_regular(item);
            let run = rest.iter().take_while(regular).count();
            if run > 1 {
                let (now, later) = rest.split_at(run);
                parts.push(self.regular(&Expr::Seq(now.to_vec())));
                rest = later;
            } else {
                parts.push(self.item(first));
                rest = &rest[1..];
            }
        }
        Item::Seq(parts)
    }

    fn regular(&mut self, expr: &Expr) -> Item {
        if *expr == Expr::empty() {
            return Item::Seq(Vec::new());
        }
        let key = lark(expr);
        if self.apart.contains(&key) {
            return self.taken_apart(expr);
        }
        self.lexeme(key, expr)
    }

    fn lexeme(&mut self, key: String, expr: &Expr) -> Item {
        let nullable = self.shaped.is_nullable(expr);
        let number = match self.numbers.get(&key) {
            Some(&number) => number,
            None => {
                let atom = matches!(expr, Expr::Chars(chars) if self.atoms.contains(chars));
                self.lexemes.push(Lexeme {
                    expr: expr.clone(),
                    key: key.clone(),
                    nullable,
                    atom,
                });
                self.numbers.insert(key, self.lexemes.len() - 1);
                self.lexemes.len() - 1
            }
        };
        match nullable {
            true => Item::Repeat(Box::new(Item::Lexeme(number)), 0, Some(1)),
            false => Item::Lexeme(number),
        }
    }

    fn taken_apart(&mut self, expr: &Expr) -> Item {
        match expr {
            Expr::Chars(chars) => {
                let atoms = self.atoms;
                let own = atoms.iter().filter(|atom| atom.is_part_of(chars));
                Item::Alt(
                    own.map(|atom| {
                        let atom = Expr::Chars(atom.clone());
                        self.lexeme(lark(&atom), &atom)
                    })
                    .collect(),
                )
            }
            Expr::Seq(items) => Item::Seq(items.iter().map(|item| self.item(item)).collect()),
            Expr::Alt(items) => Item::Alt(items.iter().map(|item| self.item(item)).collect()),
            Expr::Repeat(item, min, max) => Item::Repeat(Box::new(self.item(item)), *min, *max),
            Expr::Rule(rule) => {
                self.wanted.push(*rule);
                Item::Rule(*rule)
            }
        }
    }
}

/// Which lexemes may come first, and which after which.
struct Neighbours {
    start: BTreeSet<usize>,
    follow: Vec<BTreeSet<usize>>,
}

/// What is known of the rules while it is worked out.
struct Fixpoint {
    nullable: BTreeMap<usize, bool>,
    first: BTreeMap<usize, BTreeSet<usize>>,
    after: BTreeMap<usize, BTreeSet<usize>>,
    follow: Vec<BTreeSet<usize>>,
    changed: bool,
}

impl Neighbours {
    fn of(plan: &Plan) -> Self {
        let each = || plan.rules.keys();
        let mut known = Fixpoint {
            nullable: each().map(|&rule| (rule, false)).collect(),
            first: each().map(|&rule| (rule, BTreeSet::new())).collect(),
            after: each().map(|&rule| (rule, BTreeSet::new())).collect(),
            follow: vec![BTreeSet::new(); plan.lexemes.len()],
            changed: true,
        };
        while std::mem::take(&mut known.changed) {
            for (rule, item) in plan.rules.iter().rev() {
                let (nullable, first) = (known.nullable(item), known.first(item));
                known.changed |= nullable != known.nullable[rule] || first != known.first[rule];
                known.nullable.insert(*rule, nullable);
                known.first.insert(*rule, first);
            }
        }
        known.changed = true;
        while std::mem::take(&mut known.changed) {
            for (rule, item) in &plan.rules {
                let after = known.after[rule].clone();
                known.follow(item, &after);
            }
        }
        Self {
            start: known.first.remove(&0).unwrap_or_default(),
            follow: known.follow,
        }
    }
}

impl Fixpoint {
    fn nullable(&self, item: &Item) -> bool {
        match item {
            Item::Lexeme(_) => false,
            Item::Seq(items) => items.iter().all(|item| self.nullable(item)),
            Item::Alt(items) => items.iter().any(|item| self.nullable(item)),
            Item::Repeat(item, min, _) => *min == 0 || self.nullable(item),
            Item::Rule(rule) => self.nullable[rule],
        }
    }

    fn first(&self, item: &Item) -> BTreeSet<usize> {
        match item {
            Item::Lexeme(lexeme) => [*lexeme].into(),
            Item::Seq(items) => {
                let mut first = BTreeSet::new();
                for item in items {
                    first.extend(self.first(item));
                    if !self.nullable(item) {
                        break;
                    }
                }
                first
            }
            Item::Alt(items) => items.iter().flat_map(|item| self.first(item)).collect(),
            Item::Repeat(item, ..) => self.first(item),
            Item::Rule(rule) => self.first[rule].clone(),
        }
    }

    /// Notes what follows the lexemes in `item`, given what follows it.
    fn follow(&mut self, item: &Item, after: &BTreeSet<usize>) {
        match item {
            Item::Lexeme(lexeme) => {
                let before = self.follow[*lexeme].len();
                self.follow[*lexeme].extend(after);
                self.changed |= before != self.follow[*lexeme].len();
            }
            Item::Seq(items) => {
                let mut after = after.clone();
                for item in items.iter().rev() {
                    self.follow(item, &after);
                    let first = self.first(item);
                    match self.nullable(item) {
                        true => after.extend(first),
                        false => after = first,
                    }
                }
            }
            Item::Alt(items) => items.iter().for_each(|item| self.follow(item, after)),
            Item::Repeat(item, _, max) => {
                let mut after = after.clone();
                if *max != Some(1) {
                    after.extend(self.first(item));
                }
                self.follow(item, &after);
            }
            Item::Rule(rule) => {
                let known = self.after.entry(*rule).or_default();
                let before = known.len();
                known.extend(after);
                self.changed |= before != known.len();
            }
        }
    }
}
