//! The translation against a recogniser that takes GBNF at its word.

use super::recogniser;
use super::*;
use crate::Grammar as Format;
use formwork_plugin_sdk::FailureKind;
use formwork_plugin_sdk::testing::{End, Trace};

fn accepts(grammar: &str, text: &str) -> bool {
    let outcome = Trace::of::<Format>(json!({"grammar": grammar}))
        .text(text)
        .run();
    match &outcome.end {
        End::Finished => true,
        End::Rejected(_) => false,
        End::Failed(failure) => panic!("{grammar}\n{}\n{failure}", to_lark(grammar).unwrap()),
    }
}

#[track_caller]
fn agrees(grammar: &str, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        let (found, expected) = (
            accepts(grammar, &text),
            recogniser::matches(grammar, &text) == Some(true),
        );
        let lark = to_lark(grammar).unwrap();
        assert_eq!(found, expected, "{text:?} under\n{grammar}\n{lark}");
    }
}

/// All texts over `letters` of up to `most` characters.
fn texts(letters: &str, most: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut from = 0;
    for _ in 0..most {
        let until = all.len();
        for at in from..until {
            for letter in letters.chars() {
                let longer = format!("{}{letter}", all[at]);
                all.push(longer);
            }
        }
        from = until;
    }
    all
}

#[test]
fn greedy_lexing_changes_nothing() {
    for grammar in [
        r#"root ::= [a-c]+ "abc""#,
        r#"root ::= "(" root ")" | [a-c]* "ab""#,
        r#"root ::= "a" root "b" | "ab" | "aab""#,
        r#"root ::= s "b"
s ::= "a" s "a" | "a" s "b" | "a""#,
        r#"root ::= ("ab" | "abc") root? "c""#,
        r#"root ::= ws ("a" ws)* | "(" root ")"
ws ::= [b] ws | """#,
        r#"root ::= "a"? root? "b" | "c"{2}"#,
        r#"root ::= root "a" | root root "b" | "c""#,
        r#"root ::= e "b"
e ::= "a" e | ("b" e)? | e "c" "c""#,
    ] {
        agrees(grammar, texts("abc", 4));
        agrees(grammar, texts("ab(c)", 3));
    }
}

const JSON: &str = r##"# llama.cpp's way to write JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws # strings
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"##;

#[test]
fn json_is_read_by_whole_lexemes() {
    for (text, expected) in [
        ("{}", true),
        (r#"{"a": [1, -2.5e+3, "ä\u00e4\"",true , null]}"#, true),
        ("{\n  \"a\":{\"b\":[[]]} }", true),
        (r#"{"a":01}"#, false),
        (r#"{"a":1,}"#, false),
        (r#"{"a":tru}"#, false),
        ("[]", false),
        ("{\"a\":\"\n\"}", false),
    ] {
        assert_eq!(accepts(JSON, text), expected, "{text}");
        assert_eq!(recogniser::matches(JSON, text), Some(expected), "{text}");
    }
    let lark = to_lark(JSON).unwrap();
    assert!(
        lark.lines().count() < 40,
        "one lexeme per character:\n{lark}"
    );
}

#[test]
fn everything_in_the_notation() {
    for (grammar, yes, no) in [
        (r#"root ::= [\x41-\u0043\U0001F600äö]"#, "B", "D"),
        (r#"root ::= [^a\]\n]{2}"#, "b😀", "b]"),
        (r#"root ::= "\"\\\t" . "#, "\"\\\t\n", "\"\\\t"),
        (
            "root ::= a-1 | \n  \"x\"\n# more\na-1 ::= (\n  \"y\"{1,2}\n)+",
            "yyy",
            "xy",
        ),
        ("root ::= \"a\"\n  | \"b\"", "b", "c"),
        (r#"root ::= [a-]{,3} "z"{2,}"#, "a-zzz", "az"),
        ("root ::= \"\"", "", "a"),
        (
            "root ::= [ab]? never | \"c\"\nnever ::= \"n\" never",
            "c",
            "a",
        ),
    ] {
        assert!(accepts(grammar, yes), "{yes:?} under {grammar}");
        assert!(!accepts(grammar, no), "{no:?} under {grammar}");
    }
}

#[test]
fn mistakes_have_a_place() {
    for (grammar, message) in [
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "2:1: the rule `root` is defined twice",
        ),
        ("root ::= a |\n  bc", "1:10: the rule `a` is not defined"),
        ("a ::= \"x\"", "1:10: the rule `root` is missing"),
        ("root ::= \"ab", "1:10: the string has no closing"),
        ("root ::= [ab", "1:10: the class has no closing"),
        (
            "root ::= (\"a\"",
            "1:14: expected `)`, found the end of the grammar",
        ),
        (
            "root ::= \"a\")",
            "1:13: expected the end of the line, found ')'",
        ),
        ("root ::= \"\\q\"", "1:11: this escape is unknown"),
        ("root ::= \"\\uD800\"", "no Unicode character"),
        ("root ::= \"\\x4\"", "wants 2 hexadecimal digits"),
        (
            "root ::= [z-a]",
            "1:11: the range from 'z' to 'a' is upside down",
        ),
        ("root ::= \"a\"{3,2}", "1:13: the repetition's least"),
        ("root ::= \"a\"{99999}", "limit of 10000"),
        ("root ::= * \"a\"", "1:10: there is nothing before"),
        ("root ::= <think>", "1:10: special tokens"),
        ("root = \"a\"", "1:6: expected `::=`, found '='"),
    ] {
        let error = to_lark(grammar).unwrap_err();
        assert_eq!(error.kind, FailureKind::InvalidParams);
        assert!(error.message.contains(message), "{grammar}: {error}");
    }
    let deep = format!("root ::= {}", "(".repeat(60_000));
    assert!(
        to_lark(&deep)
            .unwrap_err()
            .message
            .contains("limit (depth) of 100")
    );
    let chain: String = (0..5000)
        .map(|n| format!("r{n} ::= r{}\n", n + 1))
        .collect();
    let error = to_lark(&format!("root ::= r0\n{chain}")).unwrap_err();
    assert!(error.message.contains("limit (rules) of 2000"), "{error}");
}

#[test]
fn what_never_ends_is_refused() {
    for grammar in [
        "root ::= x root x\nx ::= \"a\"",
        "root ::= []",
        "root ::= a\na ::= root",
    ] {
        let error = to_lark(grammar).unwrap_err();
        assert_eq!(error.kind, FailureKind::Unsatisfiable, "{grammar}");
    }
}

#[test]
fn the_notation_is_recognised() {
    for (grammar, expected) in [
        ("root ::= \"a\"", true),
        ("# c\n\n  my-rule::=x", true),
        ("start: \"::=\"", false),
        ("start: a\na: /x::=y/", false),
    ] {
        assert_eq!(is_gbnf(grammar), expected, "{grammar}");
    }
}

/// A small random number generator: the grammars are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }

    fn item(&mut self, depth: u32) -> String {
        match self.roll(if depth == 0 { 4 } else { 7 }) {
            0 => "\"a\"".to_owned(),
            1 => "\"ab\"".to_owned(),
            2 => "[ab]".to_owned(),
            3 => ["root", "s", "t"][self.roll(3) as usize].to_owned(),
            4 => format!("({})", self.body(depth - 1)),
            5 => format!(
                "({}){}",
                self.body(depth - 1),
                ["*", "+", "?"][self.roll(3) as usize]
            ),
            _ => format!("\"b\"{{{},{}}}", self.roll(2), 1 + self.roll(3)),
        }
    }

    fn body(&mut self, depth: u32) -> String {
        let branches = 1 + self.roll(3);
        let branch = |dice: &mut Self| {
            let items = 1 + dice.roll(3);
            (0..items)
                .map(|_| dice.item(depth))
                .collect::<Vec<_>>()
                .join(" ")
        };
        (0..branches)
            .map(|_| branch(self))
            .collect::<Vec<_>>()
            .join(" | ")
    }
}

#[test]
fn random_grammars_keep_their_language() {
    let mut dice = Dice(7);
    let mut checked = 0;
    for _ in 0..60 {
        let (root, s, t) = (dice.body(2), dice.body(1), dice.body(1));
        let grammar = format!("root ::= {root}\ns ::= {s}\nt ::= {t}");
        match to_lark(&grammar) {
            Ok(_) => agrees(&grammar, texts("ab", 4)),
            Err(error) => {
                assert_eq!(error.kind, FailureKind::Unsatisfiable, "{grammar}: {error}");
                continue;
            }
        }
        checked += 1;
    }
    assert!(checked > 30, "{checked} grammars");
}

#[test]
fn any_text_is_an_answer_or_an_error() {
    let mut dice = Dice(11);
    let pieces = [
        "root", " ::= ", "\n", "\"a\"", "[a-b]", "(", ")", "|", "*", "{2}", "\\", "\"", "[", "]",
        "^", "-", "x", " ", "#", "{", "}", ",", "9", "ä", ".", "?",
    ];
    for _ in 0..3000 {
        let length = dice.roll(14);
        let noise: String = (0..length)
            .map(|_| pieces[dice.roll(26) as usize])
            .collect();
        let grammar = format!("root ::= {noise}");
        if let Err(error) = to_lark(&grammar) {
            let kinds = [FailureKind::InvalidParams, FailureKind::Unsatisfiable];
            assert!(kinds.contains(&error.kind), "{grammar}: {error}");
        }
    }
}
