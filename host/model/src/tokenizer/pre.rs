//! Pre-tokenizers of byte-level BPE vocabularies, by the name that GGUF files give them.

use crate::ModelError;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

/// How text is cut before merges apply.
pub(super) struct PreTokenizer {
    pub(super) steps: PreTokenizerWrapper,
    /// Whether a piece that is itself a token is taken whole, whatever its merges.
    pub(super) ignore_merges: bool,
}

/// Words with the sign before them, up to `digits` digits, runs of signs, line ends, white space.
fn contraction_pattern(digits: &str) -> String {
    let contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
    let word = r"[^\r\n\p{L}\p{N}]?\p{L}+";
    let signs = r" ?[^\s\p{L}\p{N}]+[\r\n]*";
    let space = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    format!("{contraction}|{word}|{digits}|{signs}|{space}")
}

/// Words cut where a capital follows a small letter, single digits, runs of signs, line ends, white space.
fn tekken_pattern() -> String {
    let lead = r"[^\r\n\p{L}\p{N}]?";
    let (capitals, smalls) = (
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
    );
    let words = format!("{lead}{capitals}*{smalls}+|{lead}{capitals}+{smalls}*");
    let signs = r" ?[^\s\p{L}\p{N}]+[\r\n/]*";
    let space = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    format!(r"{words}|\p{{N}}|{signs}|{space}")
}

/// The pre-tokenizer of name `tokenizer.ggml.pre`.
pub(super) fn by_name(name: &str) -> Result<PreTokenizer, ModelError> {
    let gpt2 = || PreTokenizerWrapper::from(ByteLevel::new(false, true, true));
    let (steps, ignore_merges) = match name {
        "gpt-2" | "gpt2" => (vec![gpt2()], false),
        "smollm" | "starcoder" | "refact" | "command-r" => {
            (vec![Digits::new(true).into(), gpt2()], false)
        }
        "llama-bpe" | "llama3" | "llama-v3" => {
            (split_and_map(&[&contraction_pattern(r"\p{N}{1,3}")])?, true)
        }
        "qwen2" | "deepseek-r1-qwen" => (split_and_map(&[&contraction_pattern(r"\p{N}")])?, false),
        "tekken" => (split_and_map(&[&tekken_pattern()])?, true),
        "default" => (
            split_and_map(&[
                r"[\p{P}\$\+<=>\^~\|]+",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
                r"\p{N}+",
                "[0-9][0-9][0-9]",
            ])?,
            false,
        ),
        other => {
            return Err(ModelError::config(
                "tokenizer.ggml.pre",
                format!(
                    "the pre-tokenizer {other:?} is not known; known are gpt-2, smollm, starcoder, \
                     refact, command-r, llama-bpe, qwen2, deepseek-r1-qwen, tekken and default"
                ),
            ));
        }
    };
    Ok(PreTokenizer {
        steps: Sequence::new(steps).into(),
        ignore_merges,
    })
}

/// Splits by each pattern in turn, then maps bytes to characters.
fn split_and_map(patterns: &[&str]) -> Result<Vec<PreTokenizerWrapper>, ModelError> {
    let mut steps = Vec::new();
    for &pattern in patterns {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
            .map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        steps.push(split.into());
    }
    steps.push(ByteLevel::new(false, true, false).into());
    Ok(steps)
}
