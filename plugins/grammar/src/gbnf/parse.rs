//! Reads GBNF, the grammar notation of llama.cpp.

use super::{Chars, Expr, Rule};
use std::collections::HashMap;

/// Deepest nesting of groups.
const MAX_DEPTH: usize = 100;
/// Most rules.
const MAX_RULES: usize = 2000;
/// Largest bound of a repetition.
const MAX_TIMES: u32 = 10_000;
/// Repetitions of one item in a row, as in `"a"{2}{3}`.
const MAX_SUFFIXES: usize = 4;

/// What is wrong with a grammar, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) message: String,
}

/// A name in use: what to say if nothing defines it.
struct Use {
    at: usize,
    rule: usize,
}

pub(super) struct Parser {
    pub(super) text: Vec<char>,
    pub(super) at: usize,
    rules: Vec<Rule>,
    numbers: HashMap<String, usize>,
    defined: Vec<bool>,
    uses: Vec<Use>,
}

/// The rules of a grammar; the first one is `root`.
pub(crate) fn parse(text: &str) -> Result<Vec<Rule>, Wrong> {
    let mut parser = Parser {
        text: text.chars().collect(),
        at: 0,
        rules: Vec::new(),
        numbers: HashMap::new(),
        defined: Vec::new(),
        uses: Vec::new(),
    };
    parser.number("root");
    parser.space(true);
    while parser.peek().is_some() {
        parser.rule()?;
        parser.space(true);
    }
    if !parser.defined[0] {
        return Err(parser.wrong(
            parser.text.len(),
            "the rule `root` is missing: it is the output",
        ));
    }
    if let Some(used) = parser.uses.iter().find(|used| !parser.defined[used.rule]) {
        let name = &parser.rules[used.rule].name;
        return Err(parser.wrong(used.at, &format!("the rule `{name}` is not defined")));
    }
    Ok(parser.rules)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

impl Parser {
    pub(super) fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn starts_with(&self, word: &str) -> bool {
        let rest = &self.text[self.at.min(self.text.len())..];
        word.chars().zip(rest).filter(|(a, b)| a == *b).count() == word.chars().count()
    }

    pub(super) fn wrong(&self, at: usize, message: &str) -> Wrong {
        let before = &self.text[..at.min(self.text.len())];
        let line_start = before
            .iter()
            .rposition(|&c| c == '\n')
            .map_or(0, |at| at + 1);
        Wrong {
            line: before.iter().filter(|&&c| c == '\n').count() + 1,
            column: before.len() - line_start + 1,
            message: message.to_owned(),
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T, Wrong> {
        let found = match self.peek() {
            None => "the end of the grammar".to_owned(),
            Some('\n') => "the end of the line".to_owned(),
            Some(c) => format!("{c:?}"),
        };
        Err(self.wrong(self.at, &format!("expected {what}, found {found}")))
    }

    /// Skips blanks and comments, and with `lines` line ends too.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if lines => self.at += 1,
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, Wrong> {
        let from = self.at;
        while self.peek().is_some_and(is_name) {
            self.at += 1;
        }
        if from == self.at {
            return self.expected("the name of a rule");
        }
        Ok(self.text[from..self.at].iter().collect())
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.rules.len();
        self.numbers.insert(name.to_owned(), number);
        self.rules.push(Rule {
            name: name.to_owned(),
            body: Expr::Alt(Vec::new()),
        });
        self.defined.push(false);
        number
    }

    fn rule(&mut self) -> Result<(), Wrong> {
        let at = self.at;
        let name = self.name()?;
        self.space(false);
        if !self.starts_with("::=") {
            return self.expected("`::=`");
        }
        self.at += 3;
        self.space(true);
        let number = self.number(&name);
        if std::mem::replace(&mut self.defined[number], true) {
            return Err(self.wrong(at, &format!("the rule `{name}` is defined twice")));
        }
        if self.rules.len() > MAX_RULES {
            let message = format!("more rules than the limit (rules) of {MAX_RULES}");
            return Err(self.wrong(at, &message));
        }
        self.rules[number].body = self.alternatives(0)?;
        match self.peek() {
            None | Some('\n' | '\r') => Ok(()),
            _ => self.expected("the end of the line"),
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Expr, Wrong> {
        let mut branches = vec![self.sequence(depth)?];
        loop {
            // A rule may go on in a line that begins with `|`.
            let end = self.at;
            self.space(true);
            if self.peek() != Some('|') {
                if depth == 0 {
                    self.at = end;
                }
                break;
            }
            self.at += 1;
            self.space(true);
            branches.push(self.sequence(depth)?);
        }
        Ok(Expr::alt(branches))
    }

    fn sequence(&mut self, depth: usize) -> Result<Expr, Wrong> {
        let mut items = Vec::new();
        loop {
            let nested = depth > 0;
            self.space(nested);
            // The name of the next rule may stand where a sequence that is empty so far would go on.
            if !nested && self.at_rule() {
                break;
            }
            let Some(item) = self.item(depth)? else {
                break;
            };
            items.push(self.repeated(item)?);
        }
        Ok(Expr::seq(items))
    }

    /// Whether the next rule begins here.
    fn at_rule(&self) -> bool {
        let mut rest = self.text[self.at..].iter().skip_while(|&&c| is_name(c));
        let mut begun = self.peek().is_some_and(is_name);
        let next: String = rest
            .by_ref()
            .skip_while(|&&c| c == ' ' || c == '\t')
            .take(3)
            .collect();
        begun &= next == "::=";
        begun
    }

    /// One item without its repetition; `None` where the sequence ends.
    fn item(&mut self, depth: usize) -> Result<Option<Expr>, Wrong> {
        let at = self.at;
        Ok(Some(match self.peek() {
            Some('"') => self.literal()?,
            Some('[') => Expr::Chars(self.class()?),
            Some('.') => {
                self.at += 1;
                Expr::Chars(Chars::any())
            }
            Some('(') => {
                if depth >= MAX_DEPTH {
                    let message =
                        format!("groups nest deeper than the limit (depth) of {MAX_DEPTH}");
                    return Err(self.wrong(at, &message));
                }
                self.at += 1;
                let inner = self.alternatives(depth + 1)?;
                self.space(true);
                if self.peek() != Some(')') {
                    return self.expected("`)`");
                }
                self.at += 1;
                inner
            }
            Some('<' | '!') => {
                return Err(self.wrong(at, "special tokens cannot be named in a grammar"));
            }
            Some(c) if is_name(c) => {
                let name = self.name()?;
                let rule = self.number(&name);
                self.uses.push(Use { at, rule });
                Expr::Rule(rule)
            }
            Some('*' | '+' | '?' | '{') => {
                return Err(self.wrong(at, "there is nothing before this repetition"));
            }
            _ => return Ok(None),
        }))
    }

    fn repeated(&mut self, mut item: Expr) -> Result<Expr, Wrong> {
        for suffixes in 0.. {
            let end = self.at;
            self.space(false);
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.bounds()?,
                _ => {
                    self.at = end;
                    return Ok(item);
                }
            };
            if suffixes == MAX_SUFFIXES {
                return Err(self.wrong(self.at, "too many repetitions in a row"));
            }
            self.at += 1;
            item = Expr::repeat(item, min, max);
        }
        Ok(item)
    }

    /// `{m}`, `{m,}`, `{,n}` or `{m,n}`; stops at the closing brace.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), Wrong> {
        let at = self.at;
        self.at += 1;
        let min = self.times()?;
        let max = match self.peek() {
            Some(',') => {
                self.at += 1;
                self.times()?
            }
            _ if min.is_none() => return self.expected("a number"),
            _ => min,
        };
        if self.peek() != Some('}') {
            return self.expected("`}`");
        }
        let min = min.unwrap_or(0);
        if max.is_some_and(|max| max < min) {
            return Err(self.wrong(at, "the repetition's least number is above its most"));
        }
        Ok((min, max))
    }

    fn times(&mut self) -> Result<Option<u32>, Wrong> {
        self.space(false);
        let at = self.at;
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            let sofar: u32 = number.unwrap_or(0);
            number = Some(sofar.saturating_mul(10).saturating_add(digit));
            self.at += 1;
        }
        if number.is_some_and(|number| number > MAX_TIMES) {
            let message = format!("the repetition is above the limit of {MAX_TIMES}");
            return Err(self.wrong(at, &message));
        }
        self.space(false);
        Ok(number)
    }
}
