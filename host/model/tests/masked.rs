//! A row whose mask comes late is sampled as if its logits had all been there.

mod support;

use formwork_engine::{Backend, SampleRow, Sampling, SimpleVob, StepInput, TokenId, WantedLogits};
use formwork_model::Model;
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use support::{Driver, smollm2};

static TINY: LazyLock<Arc<Model>> = LazyLock::new(|| Arc::new(Model::tiny(5)));

fn mask(size: usize, tokens: impl IntoIterator<Item = usize>) -> Arc<SimpleVob> {
    let mut mask = SimpleVob::alloc(size);
    for token in tokens {
        mask.allow_token((token % size) as TokenId);
    }
    Arc::new(mask)
}

/// What a step of all sequences samples, with masks promised or not.
fn sampled(
    model: &Arc<Model>,
    masks: &[Option<Arc<SimpleVob>>],
    promised: bool,
    sampling: &Sampling,
) -> Vec<(usize, formwork_engine::Sampled)> {
    let mut driver = Driver::new(model, 2, [masks.len(), 64]);
    let which: Vec<usize> = (0..masks.len())
        .map(|index| driver.add(&[65 + index as TokenId, 66, 67]))
        .collect();
    let mask = |index: usize| {
        let wanted = match promised && masks[index].is_some() {
            true => WantedLogits::Masked,
            false => WantedLogits::All,
        };
        (masks[index].clone(), wanted)
    };
    let mut all = Vec::new();
    for _ in 0..3 {
        let step = driver.step_masked(&which, 64, sampling, mask);
        all.extend(step.expect("the step runs"));
    }
    all
}

fn samplings() -> [Sampling; 2] {
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let drawn = Sampling {
        temperature: 1.3,
        top_p: 0.9,
        repetition_penalty: 1.2,
        presence_penalty: 0.5,
        logit_bias: vec![(70, 4.0), (5, -3.0)],
        seed: 11,
        ..Sampling::default()
    };
    [greedy, drawn]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn promised_masks_change_nothing(
        // Empty: the row is free. Few tokens, many, and all in between.
        masks in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(0usize..259, 0..4),
                proptest::collection::vec(0usize..259, 1..259),
            ],
            1..7,
        ),
    ) {
        let size = TINY.info().vocab_size;
        let masks: Vec<_> = masks
            .into_iter()
            .map(|tokens| (!tokens.is_empty()).then(|| mask(size, tokens)))
            .collect();
        for sampling in samplings() {
            let early = sampled(&TINY, &masks, false, &sampling);
            prop_assert_eq!(sampled(&TINY, &masks, true, &sampling), early);
        }
    }
}

#[test]
fn promised_masks_change_nothing_on_a_real_model() {
    let Some(model) = smollm2() else { return };
    let size = model.info().vocab_size;
    let masks = [
        Some(mask(size, [size - 1])),
        None,
        Some(mask(size, (0..size).step_by(700))),
        Some(mask(size, 0..size / 2)),
        Some(mask(size, 300..900)),
        Some(mask(size, 0..size)),
    ];
    for sampling in samplings() {
        let early = sampled(&model, &masks, false, &sampling);
        assert_eq!(sampled(&model, &masks, true, &sampling), early);
    }
}

#[test]
fn rows_whose_mask_is_late_are_left_out_and_the_others_are_right() {
    let size = TINY.info().vocab_size;
    let few = mask(size, [97, 98, 200]);
    let sampling = &samplings()[0];
    let all = sampled(&TINY, &vec![Some(Arc::clone(&few)); 4], false, sampling);
    let mut driver = Driver::new(&TINY, 2, [4, 64]);
    for index in 0..4 {
        driver.add(&[65 + index, 66, 67]);
    }
    let mut rows: Vec<_> = (0..4).map(|index| driver.row(index, 64)).collect();
    rows.iter_mut()
        .for_each(|row| row.logits = WantedLogits::Masked);
    let ticket = driver.backend.launch(StepInput { rows }).unwrap();
    // In another order than the step's, and without the second one.
    let sample = |row: usize| SampleRow {
        row,
        mask: Some(Arc::clone(&few)),
        sampling,
        position: 3,
        history: &[],
        prompt_len: 0,
    };
    let rows = [3, 0, 2].map(sample);
    let got = driver.backend.finish(ticket, &rows).unwrap();
    let want = [3, 0, 2].map(|row| all[row].1.clone());
    assert_eq!(got, want);
}

#[test]
fn an_empty_mask_samples_nothing_and_a_missing_one_everything() {
    let size = TINY.info().vocab_size;
    let free = sampled(&TINY, &[None], false, &samplings()[0]);
    for (mask, want) in [(Some(mask(size, [])), None), (None, free[0].1.token)] {
        let mut driver = Driver::new(&TINY, 1, [1, 64]);
        driver.add(&[65, 66, 67]);
        let mut row = driver.row(0, 64);
        row.logits = WantedLogits::Masked;
        let ticket = driver
            .backend
            .launch(StepInput { rows: vec![row] })
            .unwrap();
        let row = SampleRow {
            row: 0,
            mask,
            sampling: &samplings()[0],
            position: 3,
            history: &[],
            prompt_len: 0,
        };
        let got = driver.backend.finish(ticket, &[row]).unwrap();
        assert_eq!(got[0].token, want);
    }
}
