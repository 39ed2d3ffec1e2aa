//! llguidance on a vocabulary of the 256 single bytes and one end token: what `testing` runs on.

use super::schema::{Leniency, Rest, Schema};
use super::{log::Level, vocabulary::Info};
use crate::{Failure, FailureKind, Invalid, Source, TokenId, decide};
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher as Walk, ParserFactory};
use std::cell::RefCell;
use toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};

/// The token that ends a turn; the tokens before it are the bytes.
pub(crate) const END: TokenId = 256;
const SIZE: u32 = END + 1;

thread_local! {
    static FACTORY: ParserFactory = factory();
    static LOG: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

fn factory() -> ParserFactory {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    words.push(b"\xff<|end|>".to_vec());
    let trie = TokTrie::from(&TokRxInfo::new(SIZE, END), &words);
    let env: TokEnv = std::sync::Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&env)
        .unwrap_or_else(|error| panic!("llguidance refuses a vocabulary of bytes: {error}"));
    factory.quiet();
    factory
}

fn with_trie<T>(read: impl FnOnce(&TokTrie) -> T) -> T {
    FACTORY.with(|factory| read(factory.tok_env().tok_trie()))
}

pub(crate) struct Grammar {
    walk: Walk,
    rest: Option<Rest>,
}

impl Grammar {
    pub(crate) fn compile(source: &Source) -> Result<Self, Failure> {
        let grammar = match source {
            Source::JsonSchema(schema) => return Self::of_schema(&Schema::read(schema)?),
            Source::Regex(pattern) => TopLevelGrammar::from_regex(pattern),
            Source::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
            Source::Choice(texts) if texts.is_empty() => {
                return Err(Failure::unsatisfiable("a choice of nothing"));
            }
            Source::Choice(texts) => {
                let texts: Vec<_> = texts.iter().map(|text| decide::escape(text)).collect();
                TopLevelGrammar::from_regex(&format!("({})", texts.join("|")))
            }
        };
        let walk = start(grammar)?;
        Ok(Self { walk, rest: None })
    }

    fn of_schema(schema: &Schema) -> Result<Self, Failure> {
        let compile = |lenient| -> Result<(Walk, Option<Rest>), Failure> {
            let grammar = TopLevelGrammar::from_json_schema(schema.lowered(lenient));
            Ok((start(grammar)?, schema.rest(lenient)?))
        };
        let (walk, rest) = match compile(Leniency::Strict) {
            Err(failure) if failure.kind == FailureKind::InvalidParams => {
                // Refused altogether, or only for a keyword that can be validated instead.
                match compile(Leniency::Lenient) {
                    Ok((walk, Some(rest))) => (walk, Some(rest)),
                    _ => return Err(failure),
                }
            }
            result => result?,
        };
        Ok(Self { walk, rest })
    }

    pub(crate) fn start(&self) -> Matcher {
        Matcher(Box::new(RefCell::new(self.walk.deep_clone())))
    }

    pub(crate) fn unmasked(&self) -> Vec<String> {
        let rest = self.rest.as_ref();
        rest.map_or_else(Vec::new, |rest| rest.pointers.clone())
    }

    pub(crate) fn validate(&self, text: &[u8]) -> Result<(), Invalid> {
        self.rest
            .as_ref()
            .map_or(Ok(()), |rest| rest.validate(text))
    }
}

/// A walk at the start of a grammar that some text matches.
fn start(grammar: TopLevelGrammar) -> Result<Walk, Failure> {
    let mut walk = FACTORY.with(|factory| Walk::new(factory.create_parser(grammar)));
    let refuse = |message: String| {
        // A regex language that is empty is "unsatisfiable" in llguidance's words, a schema too.
        if message.contains("nsatisfiable") {
            Failure::unsatisfiable(message)
        } else {
            Failure::invalid_params(message)
        }
    };
    if let Some(message) = walk.get_error() {
        return Err(refuse(message));
    }
    let mask = walk
        .compute_mask_or_eos()
        .map_err(|error| refuse(error.to_string()))?;
    if mask.is_zero() {
        return Err(Failure::unsatisfiable("no text matches the grammar"));
    }
    Ok(walk)
}

pub(crate) struct Matcher(Box<RefCell<Walk>>);

impl Matcher {
    pub(crate) fn mask(&self) -> Mask {
        let mut walk = self.0.borrow_mut();
        let mask = walk.compute_mask_or_eos();
        Mask(mask.unwrap_or_else(|_| SimpleVob::alloc(SIZE as usize)))
    }

    pub(crate) fn commit(&mut self, token: TokenId) -> Result<(), Failure> {
        // Asked first: consuming a token that does not fit would spoil the walk for good.
        let allowed = token < END && self.mask().allows(token);
        if !allowed {
            return Err(Failure::internal(format!(
                "token {token} is not allowed here by the grammar"
            )));
        }
        let walk = self.0.get_mut();
        walk.consume_token(token)
            .map_err(|error| Failure::internal(error.to_string()))
    }

    pub(crate) fn rollback(&mut self, tokens: u32) -> Result<(), Failure> {
        let walk = self.0.get_mut();
        walk.rollback(tokens as usize)
            .map_err(|error| Failure::internal(error.to_string()))
    }

    pub(crate) fn forced(&self) -> Vec<u8> {
        let mut walk = self.0.borrow_mut();
        if walk.is_stopped() {
            return Vec::new();
        }
        walk.compute_ff_bytes()
    }

    pub(crate) fn accepting(&self) -> bool {
        let mut walk = self.0.borrow_mut();
        walk.is_stopped() && !walk.is_error() || walk.is_accepting().unwrap_or(false)
    }

    pub(crate) fn fork(&self) -> Self {
        Self(Box::new(RefCell::new(self.0.borrow().deep_clone())))
    }
}

pub(crate) struct Mask(SimpleVob);

impl Mask {
    pub(crate) fn everything() -> Self {
        let mut mask = SimpleVob::alloc(SIZE as usize);
        mask.set_all(true);
        Self(mask)
    }

    pub(crate) fn nothing() -> Self {
        Self(SimpleVob::alloc(SIZE as usize))
    }

    pub(crate) fn only(tokens: &[TokenId]) -> Self {
        let mut mask = Self::nothing();
        for &token in tokens.iter().filter(|&&token| token < SIZE) {
            mask.0.allow_token(token);
        }
        mask
    }

    pub(crate) fn from_bits(words: &[u32]) -> Result<Self, String> {
        let expected = (SIZE as usize).div_ceil(32);
        if words.len() != expected {
            let got = words.len();
            return Err(format!("the mask has {got} words, not {expected}"));
        }
        let is_set = |token: &TokenId| words[*token as usize / 32] >> (token % 32) & 1 == 1;
        Ok(Self::only(&(0..SIZE).filter(is_set).collect::<Vec<_>>()))
    }

    pub(crate) fn along(text: &[u8]) -> Self {
        match text.first() {
            Some(&byte) => Self::only(&[TokenId::from(byte)]),
            None => Self::only(&(0..END).collect::<Vec<_>>()),
        }
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        self.0.and(&other.0);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.or(&other.0);
    }

    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.sub(&other.0);
    }

    pub(crate) fn allows(&self, token: TokenId) -> bool {
        token < SIZE && self.0.is_allowed(token)
    }

    pub(crate) fn count(&self) -> u32 {
        (0..SIZE).filter(|&token| self.allows(token)).count() as u32
    }
}

pub(crate) fn describe() -> Info {
    Info {
        model: "bytes".into(),
        size: SIZE,
        end: vec![END],
        // Not a model's: nothing that was made for this digest fits another vocabulary.
        digest: "bytes".into(),
    }
}

pub(crate) fn bytes(token: TokenId) -> Vec<u8> {
    u8::try_from(token).map_or_else(|_| Vec::new(), |byte| vec![byte])
}

pub(crate) fn encode(text: &[u8]) -> Vec<TokenId> {
    text.iter().map(|&byte| TokenId::from(byte)).collect()
}

/// Nodes in preorder, two little-endian words each: byte and token, then subtree size and parents.
pub(crate) fn trie() -> Vec<u8> {
    with_trie(|trie| {
        let mut flat = Vec::new();
        let mut stack = vec![trie.root()];
        while let Some(node) = stack.pop() {
            let token = node.token_id().unwrap_or(0x00ff_ffff);
            let climb = node.num_parents() as u32 - 1;
            flat.extend((token << 8 | u32::from(node.byte())).to_le_bytes());
            flat.extend(((node.subtree_size() as u32) << 10 | climb).to_le_bytes());
            let children: Vec<_> = trie.node_children(node).collect();
            stack.extend(children.into_iter().rev());
        }
        flat
    })
}

pub(crate) fn log(level: Level, message: &str) {
    LOG.with_borrow_mut(|lines| lines.push((level, message.to_owned())));
}

/// Takes the lines written on this thread so far.
pub(crate) fn log_lines() -> Vec<(Level, String)> {
    LOG.take()
}
