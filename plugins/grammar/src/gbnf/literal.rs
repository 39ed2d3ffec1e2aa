//! Strings and classes of characters.

use super::parse::{Parser, Wrong};
use super::{Chars, Expr};

impl Parser {
    pub(super) fn literal(&mut self) -> Result<Expr, Wrong> {
        let at = self.at;
        self.at += 1;
        let mut items = Vec::new();
        loop {
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(Expr::seq(items));
                }
                None | Some('\n') => return Err(self.wrong(at, "the string has no closing `\"`")),
                Some(_) => items.push(Expr::Chars(Chars::one(self.character()?))),
            }
        }
    }

    pub(super) fn class(&mut self) -> Result<Chars, Wrong> {
        let at = self.at;
        self.at += 1;
        let negated = self.peek() == Some('^');
        self.at += usize::from(negated);
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                Some(']') => {
                    self.at += 1;
                    break;
                }
                None | Some('\n') => return Err(self.wrong(at, "the class has no closing `]`")),
                Some(_) => {
                    let (from, low) = (self.at, self.character()?);
                    let ranged =
                        self.peek() == Some('-') && self.text.get(self.at + 1) != Some(&']');
                    let high = match ranged {
                        true => {
                            self.at += 1;
                            if self.peek().is_none() {
                                continue;
                            }
                            self.character()?
                        }
                        false => low,
                    };
                    if low > high {
                        let message = format!("the range from {low:?} to {high:?} is upside down");
                        return Err(self.wrong(from, &message));
                    }
                    ranges.push((low, high));
                }
            }
        }
        let chars = Chars::of(&ranges);
        Ok(if negated { chars.complement() } else { chars })
    }

    /// One character, escaped or not.
    fn character(&mut self) -> Result<char, Wrong> {
        let at = self.at;
        let c = self.text[at];
        self.at += 1;
        if c != '\\' {
            return Ok(c);
        }
        let escape = self.peek();
        self.at += 1;
        let digits = match escape {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('t') => return Ok('\t'),
            Some('r') => return Ok('\r'),
            Some('n') => return Ok('\n'),
            Some(same @ ('\\' | '"' | '[' | ']' | '-' | '^')) => return Ok(same),
            _ => return Err(self.wrong(at, "this escape is unknown")),
        };
        let mut code = 0u32;
        for _ in 0..digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                let message = format!("the escape wants {digits} hexadecimal digits");
                return Err(self.wrong(at, &message));
            };
            code = code << 4 | digit;
            self.at += 1;
        }
        char::from_u32(code).ok_or_else(|| self.wrong(at, "the escape is no Unicode character"))
    }
}
