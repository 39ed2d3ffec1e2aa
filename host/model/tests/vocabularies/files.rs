//! Vocabularies as their own files have them.

use crate::golden;
use candle_core::quantized::gguf_file;
use formwork_engine::TokenId;
use formwork_model::{LoadOptions, Model};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Never in a text; its bytes are its name's.
    Special,
}

/// A vocabulary, and the metadata that a GGUF file of it has.
pub(crate) struct Expected {
    /// Bytes by id.
    pub(crate) tokens: Vec<(Vec<u8>, Kind)>,
    pub(crate) end: Vec<TokenId>,
    /// Texts and their tokens, as the vocabulary's own library cuts them.
    pub(crate) golden: &'static [(&'static str, &'static [TokenId])],
    pub(crate) stored: Stored,
}

/// As in `tokenizer.ggml.*`.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) model: &'static str,
    pub(crate) pre: &'static str,
    pub(crate) tokens: Vec<String>,
    pub(crate) types: Vec<i32>,
    pub(crate) scores: Vec<f32>,
    pub(crate) merges: Vec<String>,
}

impl Expected {
    pub(crate) fn missing_bytes(&self) -> Vec<u8> {
        let single = |byte: u8| (vec![byte], Kind::Text);
        (0..=255)
            .filter(|&byte| !self.tokens.contains(&single(byte)))
            .collect()
    }
}

fn home() -> PathBuf {
    std::env::var_os("FORMWORK_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/formwork"),
        PathBuf::from,
    )
}

fn read(name: &str) -> Option<Vec<u8>> {
    let path = home().join("vocabularies").join(name);
    let found = std::fs::read(&path).ok();
    if found.is_none() {
        println!(
            "skipped: there is no {}; `make vocabularies` fetches it",
            path.display()
        );
    }
    found
}

/// The characters that byte-level vocabularies write for bytes: those of Latin-1 that print stand for
/// themselves, the others follow from U+0100 on.
fn byte_chars() -> Vec<char> {
    let mut next = 0x100;
    let chars = (0..=255u32).map(|byte| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from_u32(byte),
        _ => {
            next += 1;
            char::from_u32(next - 1)
        }
    });
    chars.map(Option::unwrap).collect()
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text
        .bytes()
        .filter_map(|c| DIGITS.iter().position(|&digit| digit == c));
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for digit in digits {
        bits = bits << 6 | digit as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}

/// The two tokens of which a longer one was merged: merging by rank stops there.
fn parents(
    word: &[u8],
    rank: usize,
    ranks: &HashMap<Vec<u8>, usize>,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut parts: Vec<Vec<u8>> = word.iter().map(|&byte| vec![byte]).collect();
    while parts.len() > 2 {
        let joined = parts
            .windows(2)
            .map(|pair| ranks.get(&pair.concat()).copied());
        let best = joined
            .enumerate()
            .filter_map(|(at, found)| Some((found?, at)));
        let (found, at) = best.min()?;
        if found >= rank {
            return None;
        }
        let right = parts.remove(at + 1);
        parts[at].extend(right);
    }
    let right = parts.pop()?;
    Some((parts.pop()?, right))
}

/// Names of the first special tokens; the rest are fillers.
const TEKKEN_NAMES: [&str; 5] = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"];
const TEKKEN_SPECIAL: usize = 1000;

/// Byte-level, 1,000 special tokens before 130,072 others.
pub(crate) fn tekken() -> Option<Expected> {
    let file: Value = serde_json::from_slice(&read("tekken_240911.json")?).unwrap();
    let entries = file["vocab"].as_array().unwrap();
    let words: Vec<Vec<u8>> = entries[..131_072 - TEKKEN_SPECIAL]
        .iter()
        .map(|entry| base64(entry["token_bytes"].as_str().unwrap()))
        .collect();
    let ranks: HashMap<Vec<u8>, usize> = words.iter().cloned().zip(0..).collect();
    let chars = byte_chars();
    let spell = |word: &[u8]| {
        word.iter()
            .map(|&byte| chars[usize::from(byte)])
            .collect::<String>()
    };
    let mut merges = Vec::new();
    for (rank, word) in words.iter().enumerate().filter(|(_, word)| word.len() > 1) {
        let (left, right) = parents(word, rank, &ranks).expect("every token was merged");
        merges.push(format!("{} {}", spell(&left), spell(&right)));
    }
    let names = (0..TEKKEN_SPECIAL).map(|id| {
        let name = TEKKEN_NAMES.get(id).map(|&name| name.to_owned());
        name.unwrap_or_else(|| format!("<SPECIAL_{id}>"))
    });
    let names: Vec<String> = names.collect();
    let special = names
        .iter()
        .map(|name| (name.clone().into_bytes(), Kind::Special));
    let types = |(_, kind): &(Vec<u8>, Kind)| if *kind == Kind::Special { 3 } else { 1 };
    let texts: Vec<String> = names
        .iter()
        .cloned()
        .chain(words.iter().map(|word| spell(word)))
        .collect();
    let tokens: Vec<_> = special
        .chain(words.iter().cloned().map(|word| (word, Kind::Text)))
        .collect();
    Some(Expected {
        end: vec![2],
        golden: golden::TEKKEN,
        stored: Stored {
            model: "gpt2",
            pre: "tekken",
            types: tokens.iter().map(types).collect(),
            tokens: texts,
            merges,
            ..Stored::default()
        },
        tokens,
    })
}

/// One field of a protocol buffer: its number, and its bytes or its number.
struct Wire<'a>(&'a [u8]);

enum Content<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

impl<'a> Wire<'a> {
    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        while let Some((&byte, rest)) = self.0.split_first() {
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}

impl<'a> Iterator for Wire<'a> {
    type Item = (u64, Content<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = self.varint();
        let content = match tag & 7 {
            0 => Content::Number(self.varint()),
            1 => Content::Bytes(self.take(8)),
            2 => {
                let length = self.varint();
                Content::Bytes(self.take(length as usize))
            }
            _ => Content::Bytes(self.take(4)),
        };
        Some((tag >> 3, content))
    }
}

pub(crate) fn sentence_piece() -> Option<Expected> {
    let file = read("mistral_instruct_tokenizer_240323.model.v3")?;
    let mut stored = Stored {
        model: "llama",
        ..Stored::default()
    };
    let mut tokens = Vec::new();
    for (number, content) in Wire(&file) {
        let (1, Content::Bytes(piece)) = (number, content) else {
            continue;
        };
        let (mut text, mut score, mut kind) = (String::new(), 0.0, 1);
        for field in Wire(piece) {
            match field {
                (1, Content::Bytes(bytes)) => text = String::from_utf8(bytes.to_vec()).unwrap(),
                (2, Content::Bytes(bytes)) => score = f32::from_le_bytes(bytes.try_into().unwrap()),
                (3, Content::Number(number)) => kind = number as i32,
                _ => {}
            }
        }
        tokens.push(match kind {
            6 => (
                vec![u8::from_str_radix(&text[3..5], 16).unwrap()],
                Kind::Text,
            ),
            1 | 4 => (text.replace('\u{2581}', " ").into_bytes(), Kind::Text),
            _ => (text.clone().into_bytes(), Kind::Special),
        });
        stored.tokens.push(text);
        stored.scores.push(score);
        stored.types.push(kind);
    }
    Some(Expected {
        tokens,
        end: vec![2],
        golden: golden::SENTENCE_PIECE,
        stored,
    })
}

/// The model that the other tests use, and its vocabulary read past the tokenizer.
pub(crate) fn smollm2() -> Option<(Model, Expected)> {
    let path = std::env::var_os("FORMWORK_TEST_MODEL").map_or_else(
        || home().join("models/SmolLM2-135M-Instruct.Q4_1.gguf"),
        PathBuf::from,
    );
    if !path.exists() {
        println!("skipped: there is no model at {}", path.display());
        return None;
    }
    let content = gguf_file::Content::read(&mut File::open(&path).unwrap()).unwrap();
    let list = |key: &str| content.metadata[key].to_vec().unwrap();
    let bytes: HashMap<char, u8> = byte_chars().into_iter().zip(0..=255).collect();
    let tokens = list("tokenizer.ggml.tokens")
        .iter()
        .zip(list("tokenizer.ggml.token_type"));
    let tokens = tokens.map(|(text, kind)| {
        let text = text.to_string().unwrap();
        match kind.to_i32().unwrap() {
            1 => (text.chars().map(|c| bytes[&c]).collect(), Kind::Text),
            _ => (text.clone().into_bytes(), Kind::Special),
        }
    });
    let expected = Expected {
        tokens: tokens.collect(),
        end: vec![2, 0],
        golden: &[],
        stored: Stored::default(),
    };
    let model = Model::load(&path, &LoadOptions::default()).expect("the model loads");
    Some((model, expected))
}
