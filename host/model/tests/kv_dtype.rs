//! What an 8-bit cache costs in quality: on a real model, how well it predicts a text, and how often it
//! chooses the same token.

mod support;

use formwork_engine::{Sampling, SimpleVob, TokenId, WantedLogits};
use formwork_model::{KvDtype, Model, SpecialTokens};
use std::sync::Arc;
use support::{Driver, greedy, smollm2};

/// English prose about a program. What it says does not matter, only that it stays the same.
const TEXT: &str = include_str!("golden/prose.txt");
const SEQUENCES: usize = 8;
const TOKENS: usize = 256;

/// Negative log-likelihood per token, averaged over pieces of the text, and the model's first choices.
fn likelihood(model: &Arc<Model>, kv_dtype: KvDtype) -> (f64, Vec<TokenId>) {
    let text = model.tokenizer().encode(TEXT, SpecialTokens::AsText);
    let pieces: Vec<&[TokenId]> = text.chunks_exact(TOKENS).take(SEQUENCES).collect();
    assert_eq!(pieces.len(), SEQUENCES, "the text is too short");
    let mut driver = Driver::with_dtype(model, kv_dtype, 0, [SEQUENCES, TOKENS]);
    let which: Vec<usize> = pieces.iter().map(|piece| driver.add(&piece[..1])).collect();
    let sampling = Sampling {
        logprobs: Some(1),
        ..greedy()
    };
    let (mut total, mut choices) = (0.0, Vec::new());
    for done in 0..TOKENS - 1 {
        // A mask that allows the text's next token only; its probability is the model's own.
        let next = |index: usize| {
            let mut mask = SimpleVob::alloc(model.info().vocab_size);
            mask.allow_token(pieces[index][done + 1]);
            (Some(Arc::new(mask)), WantedLogits::All)
        };
        let step = driver.step_masked(&which, 1, &sampling, next);
        for (_, sampled) in step.expect("the step runs") {
            total -= f64::from(sampled.logprob);
            choices.push(sampled.top[0].0);
        }
    }
    (total / choices.len() as f64, choices)
}

#[test]
fn an_eight_bit_cache_predicts_a_text_as_well() {
    let Some(model) = smollm2() else { return };
    let (f16, first) = likelihood(&model, KvDtype::F16);
    let (int8, second) = likelihood(&model, KvDtype::Int8);
    let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
    println!(
        "perplexity {:.3} with f16, {:.3} with int8; {same} of {} first choices are the same",
        f16.exp(),
        int8.exp(),
        first.len()
    );
    assert!((int8 - f16).abs() < 0.01, "{f16} against {int8}");
    assert!(same * 100 >= first.len() * 93, "only {same} are the same");
}

#[test]
fn an_eight_bit_cache_holds_twice_as_much() {
    let model = Model::tiny(1);
    assert_eq!(model.kv_bytes_per_token(KvDtype::F16), 2 * 2 * 2 * 2 * 16);
    assert_eq!(
        model.kv_bytes_per_token(KvDtype::Int8),
        2 * 2 * 2 * (16 + 2)
    );
    assert_eq!(
        model.info().kv_bytes_per_token as usize,
        model.kv_bytes_per_token(KvDtype::F16)
    );
}
