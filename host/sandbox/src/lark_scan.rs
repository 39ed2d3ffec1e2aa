//! A flat scan of Lark text that bounds what the recursive parser behind it will see.

/// Bounds of a Lark grammar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LarkLimits {
    /// Deepest nesting of brackets, and of groups within a regex.
    pub depth: usize,
    /// Most rules and terminals; chains of them are compiled recursively.
    pub rules: usize,
}

/// Refuses nesting and numbers of rules past the limits, and special tokens.
pub(crate) fn check(text: &str, limits: LarkLimits) -> Result<(), String> {
    let mut scan = Scan {
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
        line_start: 0,
    };
    let (mut depth, mut rules) = (0usize, 0usize);
    while let Some(byte) = scan.peek(0) {
        match byte {
            b'"' => scan.skip_string(),
            b'#' => scan.skip_line(),
            b'/' if scan.peek(1) == Some(b'/') => scan.skip_line(),
            b'/' => scan.skip_regex(limits.depth)?,
            b'(' | b'[' | b'{' => {
                depth += 1;
                if depth > limits.depth {
                    let message = format!(
                        "brackets nest deeper than the limit (depth) of {}",
                        limits.depth
                    );
                    return Err(scan.error(&message));
                }
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 => {
                rules += 1;
                if rules > limits.rules {
                    let message = format!("more rules than the limit (rules) of {}", limits.rules);
                    return Err(scan.error(&message));
                }
            }
            b'<' => return Err(scan.error("special tokens cannot be named in a grammar")),
            _ => {}
        }
        scan.advance();
    }
    Ok(())
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
    line_start: usize,
}

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn advance(&mut self) {
        if self.peek(0) == Some(b'\n') {
            self.line += 1;
            self.line_start = self.at + 1;
        }
        self.at += 1;
    }

    fn error(&self, message: &str) -> String {
        format!(
            "the Lark grammar is invalid at {}:{}: {message}",
            self.line,
            self.at - self.line_start + 1
        )
    }

    /// Stops at the closing quote, or at the line's end where a string is left open.
    fn skip_string(&mut self) {
        self.advance();
        while let Some(byte) = self.peek(0) {
            match byte {
                b'"' => return,
                b'\n' => return,
                b'\\' => self.advance(),
                _ => {}
            }
            self.advance();
        }
    }

    /// Stops before the line's end.
    fn skip_line(&mut self) {
        while self.peek(1).is_some_and(|next| next != b'\n') {
            self.advance();
        }
    }

    /// Stops at the closing slash.
    fn skip_regex(&mut self, limit: usize) -> Result<(), String> {
        self.advance();
        let mut depth = 0usize;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'/' => return Ok(()),
                b'\\' => self.advance(),
                b'(' | b'[' => {
                    depth += 1;
                    if depth > limit {
                        let message =
                            format!("groups nest deeper than the limit (depth) of {limit}");
                        return Err(self.error(&message));
                    }
                }
                b')' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.advance();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LarkLimits = LarkLimits {
        depth: 10,
        rules: 20,
    };

    #[test]
    fn ordinary_grammars_pass() {
        for text in [
            "start: \"a\" | /[<>(]+\\/x/ // <comment> ((((((((((((((((\n",
            "start: A+ # <comment>\nA: \"<\" \"\\\"<\"",
            "start: %json {\"type\": \"object\", \"a\": [\"<x>\"]}",
            "%import common.INT\nstart: INT~1..3",
        ] {
            assert_eq!(check(text, LIMITS), Ok(()), "{text}");
        }
    }

    #[test]
    fn refusals_name_limit_and_place() {
        let refused = |text: &str, message: &str| {
            let error = check(text, LIMITS).unwrap_err();
            assert!(error.contains(message), "{error}");
        };
        refused(
            &format!("start: {}", "(".repeat(11)),
            "at 1:18: brackets nest",
        );
        refused(
            &format!("start: /{}/", "(".repeat(11)),
            "groups nest deeper",
        );
        refused("start: \"a\"\n  <|end|>", "at 2:3: special tokens");
        refused("start: <[12]>", "special tokens");
        let chain: String = (0..5000).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
        refused(&chain, "more rules than the limit (rules) of 20");
    }
}
