//! Tokenizers from the metadata of GGUF files and from `tokenizer.json`.

use super::bytes::{byte_token, char_table};
use super::shared::Cutter;
use super::{Parts, Tokenizer, pre};
use crate::ModelError;
use formwork_engine::TokenId;
use std::collections::HashMap;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace};
use tokenizers::{AddedToken, PreTokenizerWrapper};

/// The character that SentencePiece writes for a space.
pub(super) const SPACE: char = '▁';

/// Names of tokens that end an answer, whichever of them a model's settings mention.
const END_NAMES: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<EOT>",
];

/// Kinds of token, with the numbers that GGUF gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenType {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

impl TokenType {
    pub(crate) fn from_number(number: i64) -> Option<Self> {
        [
            Self::Normal,
            Self::Unknown,
            Self::Control,
            Self::UserDefined,
            Self::Unused,
            Self::Byte,
        ]
        .into_iter()
        .find(|&kind| kind as i64 == number)
    }

    fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown | Self::Unused)
    }
}

/// The `tokenizer.ggml.*` metadata.
#[derive(Default)]
pub(crate) struct GgufVocabulary {
    /// `gpt2` or `llama`.
    pub(crate) model: String,
    pub(crate) pre: String,
    pub(crate) tokens: Vec<String>,
    pub(crate) types: Vec<TokenType>,
    /// SentencePiece only.
    pub(crate) scores: Vec<f32>,
    /// Byte-level BPE only.
    pub(crate) merges: Vec<String>,
    pub(crate) bos: Option<TokenId>,
    /// `eos` and `eot` as far as given.
    pub(crate) end: Vec<TokenId>,
    pub(crate) add_bos: Option<bool>,
    pub(crate) add_space_prefix: Option<bool>,
}

fn failed(error: impl ToString) -> ModelError {
    ModelError::Tokenizer(error.to_string())
}

impl GgufVocabulary {
    pub(crate) fn build(self) -> Result<Tokenizer, ModelError> {
        if self.types.len() != self.tokens.len() {
            return Err(failed(format!(
                "{} tokens have {} types",
                self.tokens.len(),
                self.types.len()
            )));
        }
        match self.model.as_str() {
            "gpt2" => self.byte_level(),
            "llama" => self.sentence_piece(),
            other => Err(ModelError::config(
                "tokenizer.ggml.model",
                format!("{other:?} is not known; known are gpt2 and llama"),
            )),
        }
    }

    fn byte_level(mut self) -> Result<Tokenizer, ModelError> {
        let merges = std::mem::take(&mut self.merges);
        let merges = merges
            .iter()
            .map(|merge| {
                let (left, right) = merge
                    .split_once(' ')
                    .ok_or_else(|| failed(format!("the merge {merge:?} has no two parts")))?;
                Ok((left.to_owned(), right.to_owned()))
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        let pre = pre::by_name(&self.pre)?;
        let model = BPE::builder()
            .vocab_and_merges(self.ids(), merges)
            .ignore_merges(pre.ignore_merges)
            .build()
            .map_err(failed)?;
        let mut tokenizer = Cutter::new(model.into());
        tokenizer.with_pre_tokenizer(Some(pre.steps));
        tokenizer.with_decoder(Some(ByteLevel::new(false, true, false)));
        let chars = char_table();
        let bytes = |text: &str| match text.chars().map(|c| chars.get(&c).copied()).collect() {
            Some(bytes) => bytes,
            // Tokens added after training are written as they are.
            None => text.as_bytes().to_vec(),
        };
        self.finish(tokenizer, None, bytes, false)
    }

    fn sentence_piece(self) -> Result<Tokenizer, ModelError> {
        if self.scores.len() != self.tokens.len() {
            return Err(failed("the vocabulary has no score for each token"));
        }
        let unknown = self
            .types
            .iter()
            .position(|&kind| kind == TokenType::Unknown);
        let mut builder = BPE::builder()
            .vocab_and_merges(self.ids(), self.merges_by_score())
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some(unknown) = unknown {
            builder = builder.unk_token(self.tokens[unknown].clone());
        }
        let mut raw = Cutter::new(builder.build().map_err(failed)?.into());
        let spaces = Replace::new(" ", SPACE.to_string()).map_err(failed)?;
        raw.with_normalizer(Some(spaces.clone())).map_err(failed)?;
        let mut tokenizer = raw.clone();
        let prefixed = self.add_space_prefix.unwrap_or(true);
        if prefixed {
            let steps: Vec<NormalizerWrapper> =
                vec![Prepend::new(SPACE.to_string()).into(), spaces.into()];
            tokenizer
                .with_normalizer(Some(tokenizers::normalizers::Sequence::new(steps)))
                .map_err(failed)?;
        }
        let raw = prefixed.then_some(raw);
        self.finish(tokenizer, raw, sentence_piece_bytes, true)
    }

    fn ids(&self) -> Vocab {
        let mut ids = Vocab::with_capacity(self.tokens.len());
        for (id, text) in self.tokens.iter().enumerate() {
            // Of tokens with the same text, the first counts.
            if !ids.contains_key(text) {
                ids.insert(text.clone(), id as TokenId);
            }
        }
        ids
    }

    /// Merges that make BPE do what SentencePiece does: join the pair whose result scores best.
    fn merges_by_score(&self) -> Vec<(String, String)> {
        let ids: HashMap<&str, usize> = self
            .tokens
            .iter()
            .enumerate()
            .rev()
            .map(|(id, text)| (text.as_str(), id))
            .collect();
        let mut merges = Vec::new();
        for (id, text) in self.tokens.iter().enumerate() {
            if !matches!(self.types[id], TokenType::Normal | TokenType::UserDefined) {
                continue;
            }
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                    merges.push((self.scores[id], l, r));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        merges
            .into_iter()
            .map(|(_, l, r)| (self.tokens[l].clone(), self.tokens[r].clone()))
            .collect()
    }

    fn finish(
        self,
        mut parsing: Cutter,
        mut raw: Option<Cutter>,
        bytes: impl Fn(&str) -> Vec<u8>,
        bos_by_default: bool,
    ) -> Result<Tokenizer, ModelError> {
        let added = |kind| {
            self.tokens
                .iter()
                .zip(&self.types)
                .filter(move |&(_, &token)| token == kind)
                .map(move |(text, _)| {
                    AddedToken::from(text.clone(), kind == TokenType::Control).normalized(false)
                })
        };
        for tokenizer in std::iter::once(&mut parsing).chain(&mut raw) {
            tokenizer
                .add_special_tokens(added(TokenType::Control))
                .map_err(failed)?;
            tokenizer
                .add_tokens(added(TokenType::UserDefined))
                .map_err(failed)?;
        }
        let token_bytes = self
            .tokens
            .iter()
            .zip(&self.types)
            .map(|(text, kind)| match kind {
                TokenType::Normal | TokenType::Byte => bytes(text),
                _ => text.as_bytes().to_vec(),
            })
            .collect();
        let mut end = self.end;
        for (id, text) in self.tokens.iter().enumerate() {
            if self.types[id] == TokenType::Control && END_NAMES.contains(&text.as_str()) {
                end.push(id as TokenId);
            }
        }
        Parts {
            parsing,
            raw,
            bytes: token_bytes,
            special: self.types.iter().map(|kind| kind.is_special()).collect(),
            bos: self.bos,
            add_bos: self.add_bos.unwrap_or(bos_by_default) && self.bos.is_some(),
            end: unique(end),
        }
        .finish()
    }
}

/// Each token once, in the order of first mention.
fn unique(tokens: Vec<TokenId>) -> Vec<TokenId> {
    let mut seen = std::collections::HashSet::new();
    tokens
        .into_iter()
        .filter(|token| seen.insert(*token))
        .collect()
}

fn sentence_piece_bytes(text: &str) -> Vec<u8> {
    byte_token(text).map_or_else(|| text.replace(SPACE, " ").into_bytes(), |byte| vec![byte])
}

/// Settings that stand beside a `tokenizer.json`.
pub(crate) struct JsonSettings {
    pub(crate) bos: Option<String>,
    pub(crate) add_bos: bool,
    /// Ids from `generation_config.json` and `config.json`.
    pub(crate) end: Vec<TokenId>,
    /// From `tokenizer_config.json`.
    pub(crate) eos: Option<String>,
}

impl Tokenizer {
    /// A tokenizer from the contents of `tokenizer.json`. Normalisation that would change the text is
    /// left out, so that tokens always spell the bytes they were made from.
    pub(crate) fn from_json(json: &[u8], settings: JsonSettings) -> Result<Self, ModelError> {
        let mut parsing = Cutter::from_bytes(json).map_err(failed)?;
        let byte_level = parsing.get_pre_tokenizer().is_some_and(maps_bytes);
        let normalizer = parsing.get_normalizer().cloned();
        let mut raw = None;
        if byte_level {
            parsing
                .with_normalizer(None::<NormalizerWrapper>)
                .map_err(failed)?;
        } else {
            let mut plain = parsing.clone();
            let spaces = Replace::new(" ", SPACE.to_string()).map_err(failed)?;
            plain.with_normalizer(Some(spaces)).map_err(failed)?;
            plain.with_pre_tokenizer(None::<PreTokenizerWrapper>);
            if normalizer.is_none() && parsing.get_pre_tokenizer().is_none() {
                return Err(failed("neither byte-level nor SentencePiece"));
            }
            raw = Some(plain);
        }
        let (bytes, special) = json_vocabulary(&parsing, byte_level);
        let id = |text: Option<&String>| text.and_then(|text| parsing.token_to_id(text));
        let mut end = settings.end;
        end.extend(id(settings.eos.as_ref()));
        end.extend(END_NAMES.iter().filter_map(|name| {
            let id = parsing.token_to_id(name)?;
            special[id as usize].then_some(id)
        }));
        let bos = id(settings.bos.as_ref());
        Parts {
            raw,
            bytes,
            special,
            bos,
            add_bos: settings.add_bos && bos.is_some(),
            end: unique(end),
            parsing,
        }
        .finish()
    }
}

/// The bytes of each token, and whether it is special.
fn json_vocabulary(tokenizer: &Cutter, byte_level: bool) -> (Vec<Vec<u8>>, Vec<bool>) {
    let largest = tokenizer.get_vocab(true).into_values().max();
    let size = largest.map_or(0, |id| id as usize + 1);
    let added = tokenizer.get_added_tokens_decoder();
    let chars = char_table();
    // Ids that stand for nothing are special, so that no mask allows them.
    let (mut bytes, mut special) = (vec![Vec::new(); size], vec![true; size]);
    for id in 0..size {
        let Some(text) = tokenizer.id_to_token(id as u32) else {
            continue;
        };
        let token = added.get(&(id as u32));
        special[id] = token.is_some_and(|token| token.special);
        bytes[id] = if token.is_some() {
            text.into_bytes()
        } else if byte_level {
            text.chars()
                .map(|c| chars.get(&c).copied())
                .collect::<Option<_>>()
                .unwrap_or_else(|| text.as_bytes().to_vec())
        } else {
            sentence_piece_bytes(&text)
        };
    }
    (bytes, special)
}

/// Whether a pre-tokenizer writes bytes as characters.
fn maps_bytes(pre: &PreTokenizerWrapper) -> bool {
    match pre {
        PreTokenizerWrapper::ByteLevel(_) => true,
        PreTokenizerWrapper::Sequence(steps) => steps.as_ref().iter().any(maps_bytes),
        _ => false,
    }
}
