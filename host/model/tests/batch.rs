//! A sequence's tokens do not depend on what else is in the batch.

mod support;

use formwork_engine::TokenId;
use formwork_model::{KvDtype, Model, SpecialTokens};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use support::{Driver, greedy, smollm2};

const TEXTS: [&str; 8] = [
    "Once upon a time",
    "The quick brown fox jumps over the lazy dog, and then it",
    "fn main() {",
    "1, 2, 3, 4,",
    "Dear Sir or Madam,\n\nI am writing to you because",
    "a",
    "Der Himmel über Berlin ist",
    "{\"name\": \"",
];

fn prompts(model: &Model) -> Vec<Vec<TokenId>> {
    TEXTS
        .iter()
        .map(|text| model.tokenizer().encode(text, SpecialTokens::AsText))
        .collect()
}

/// For whoever compares two machines: results are the same to the bit whatever the instruction set.
fn print_digest(what: &str, results: impl std::fmt::Debug) {
    let mut hasher = DefaultHasher::new();
    format!("{results:?}").hash(&mut hasher);
    println!("on all machines: {what} {:016x}", hasher.finish());
}

fn batch_is_one_by_one(model: &Arc<Model>, kv_dtype: KvDtype, count: usize) -> Vec<Vec<TokenId>> {
    let prompts = prompts(model);
    let mut together = Driver::with_dtype(model, kv_dtype, 2, [8, 160]);
    let all: Vec<usize> = prompts.iter().map(|prompt| together.add(prompt)).collect();
    let batched = together.generate(&all, count, 160);
    let mut alone = Driver::with_dtype(model, kv_dtype, 1, [8, 160]);
    for (prompt, want) in prompts.iter().zip(&batched) {
        let index = alone.add(prompt);
        // One thread and small prefill chunks, to differ in everything that must not matter.
        let got = alone.generate(&[index], count, 5).remove(0);
        assert_eq!(&got, want);
    }
    batched
}

#[test]
fn a_batch_of_eight_is_the_same_eight_one_by_one() {
    let model = Arc::new(Model::tiny(7));
    for kv_dtype in KvDtype::ALL {
        let tokens = batch_is_one_by_one(&model, kv_dtype, 60);
        print_digest("greedy tokens", tokens);
    }
}

#[test]
fn a_batch_of_eight_is_the_same_eight_one_by_one_on_a_real_model() {
    if let Some(model) = smollm2() {
        for kv_dtype in KvDtype::ALL {
            batch_is_one_by_one(&model, kv_dtype, 24);
        }
    }
}

#[test]
fn log_probabilities_do_not_depend_on_the_batch_to_the_bit() {
    let model = Arc::new(Model::tiny(3));
    let prompts = prompts(&model);
    let mut together = Driver::new(&model, 2, [8, 160]);
    let all: Vec<usize> = prompts.iter().map(|prompt| together.add(prompt)).collect();
    let batched = together.step(&all, 160, &greedy()).unwrap();
    print_digest("log-probabilities", &batched);
    let mut alone = Driver::new(&model, 1, [8, 160]);
    for (prompt, (_, want)) in prompts.iter().zip(batched) {
        let index = alone.add(prompt);
        let got = alone.step(&[index], 160, &greedy()).unwrap().remove(0).1;
        assert_eq!(got, want);
    }
}

#[test]
fn seeds_make_different_models_and_the_same_seed_the_same() {
    let mut outputs = Vec::new();
    for seed in [1, 1, 2] {
        let model = Arc::new(Model::tiny(seed));
        let mut driver = Driver::new(&model, 1, [1, 64]);
        let index = driver.add(&[256, 72, 105]);
        outputs.push(driver.generate(&[index], 40, 64).remove(0));
    }
    assert_eq!(outputs[0], outputs[1]);
    assert_ne!(outputs[0], outputs[2]);
}
