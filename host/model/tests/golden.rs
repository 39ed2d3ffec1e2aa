//! Greedy tokens of a real model against those of an independent implementation.

mod support;

use formwork_model::{KvDtype, Model, SpecialTokens};
use serde::Deserialize;
use std::sync::Arc;
use support::{Driver, greedy, smollm2};

/// Where the two choose different tokens, ours must hold theirs for this close to its own, in units of
/// logits: the other one computes with activations in single precision, we quantise them to 8 bits. The
/// second number is the share of tokens that must agree, in percent.
const BOUNDS: [(KvDtype, f32, usize); 2] = [(KvDtype::F16, 0.4, 95), (KvDtype::Int8, 0.6, 93)];

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt: String,
    tokens: Vec<u32>,
    generated: Vec<u32>,
}

#[test]
fn greedy_tokens_are_those_of_another_implementation() {
    let Some(model) = smollm2() else { return };
    for bounds in BOUNDS {
        compare(&model, bounds);
    }
}

fn compare(model: &Arc<Model>, (kv_dtype, largest_gap, share): (KvDtype, f32, usize)) {
    let golden: Golden =
        serde_json::from_str(include_str!("golden/smollm2.json")).expect("the file is sound");
    let mut driver = Driver::with_dtype(model, kv_dtype, 0, [golden.cases.len(), 128]);
    let (mut agreed, mut total) = (0, 0);
    for case in &golden.cases {
        let tokens = model.tokenizer().encode(&case.prompt, SpecialTokens::Parse);
        assert_eq!(tokens, case.tokens, "tokens of {:?}", case.prompt);
        let index = driver.add(&tokens);
        for (at, &want) in case.generated.iter().enumerate() {
            let (_, sampled) = driver
                .step(&[index], 128, &greedy())
                .expect("the step runs")
                .remove(0);
            total += 1;
            if sampled.token == Some(want) {
                agreed += 1;
                continue;
            }
            let found = sampled.top.iter().find(|(token, _)| *token == want);
            let gap = found.map_or(f32::INFINITY, |(_, logprob)| sampled.top[0].1 - logprob);
            println!(
                "{kv_dtype}: {:?}: token {at} differs, gap {gap}",
                case.prompt
            );
            assert!(gap < largest_gap, "{:?} at {at}: gap {gap}", case.prompt);
            // Go on with the other implementation's token, so that the contexts stay the same.
            let tokens = &mut driver.sequences[index].tokens;
            *tokens.last_mut().expect("one was just sampled") = want;
        }
    }
    println!("{kv_dtype}: {agreed} of {total} tokens agree");
    assert!(
        agreed * 100 >= total * share,
        "only {agreed} of {total} agree"
    );
}
