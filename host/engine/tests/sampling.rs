//! What the sampler chooses.

use formwork_engine::{SampleRow, Sampling, SimpleVob, TokenId, sample};
use proptest::prelude::*;
use std::sync::Arc;

fn pick(
    logits: &[f32],
    sampling: &Sampling,
    mask: Option<&[TokenId]>,
    position: u64,
) -> Option<TokenId> {
    let mask = mask.map(|allowed| {
        let mut mask = SimpleVob::alloc(logits.len());
        allowed.iter().for_each(|&token| mask.allow_token(token));
        Arc::new(mask)
    });
    let row = SampleRow {
        row: 0,
        mask,
        sampling,
        position,
        history: &[1, 2, 2, 3],
        prompt_len: 2,
    };
    sample(&mut logits.to_vec(), &row).token
}

fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        ..Sampling::default()
    }
}

#[test]
fn greedy_takes_the_likeliest_that_is_allowed() {
    let logits = [0.0, 5.0, 3.0, 5.0];
    assert_eq!(pick(&logits, &greedy(), None, 0), Some(1));
    assert_eq!(pick(&logits, &greedy(), Some(&[0, 2]), 0), Some(2));
    assert_eq!(pick(&logits, &greedy(), Some(&[]), 0), None);
    assert_eq!(
        pick(&[f32::NAN, f32::INFINITY, 0.0], &greedy(), None, 0),
        Some(2)
    );
}

#[test]
fn penalties_and_bias_follow_their_definitions() {
    let logits = [0.0, 4.0, 4.0, 3.0];
    // Token 1 is in the prompt, 2 in both, 3 was generated.
    let repetition = Sampling {
        repetition_penalty: 2.0,
        ..greedy()
    };
    assert_eq!(pick(&[2.5, 4.0, 4.0, 3.0], &repetition, None, 0), Some(0));
    let presence = Sampling {
        presence_penalty: 1.5,
        ..greedy()
    };
    assert_eq!(pick(&logits, &presence, None, 0), Some(1));
    let bias = Sampling {
        logit_bias: vec![(0, 9.0)],
        ..greedy()
    };
    assert_eq!(pick(&logits, &bias, None, 0), Some(0));
}

#[test]
fn logprobs_are_the_models_own() {
    let sampling = Sampling {
        logprobs: Some(2),
        ..greedy()
    };
    let mut mask = SimpleVob::alloc(3);
    mask.allow_token(0);
    let row = SampleRow {
        row: 0,
        mask: Some(Arc::new(mask)),
        sampling: &sampling,
        position: 0,
        history: &[],
        prompt_len: 0,
    };
    let sampled = sample(&mut [0.0, 2.0_f32.ln(), 0.0], &row);
    assert_eq!(sampled.token, Some(0));
    assert!((sampled.logprob - 0.25_f32.ln()).abs() < 1e-6);
    assert_eq!(sampled.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 0]);
    assert!((sampled.top[0].1 - 0.5_f32.ln()).abs() < 1e-6);
}

#[test]
fn frequencies_follow_the_distribution() {
    let logits = [0.0, 2.0_f32.ln(), 5.0_f32.ln()];
    let mut counts = [0u32; 3];
    for position in 0..8000 {
        counts[pick(&logits, &Sampling::default(), None, position).unwrap() as usize] += 1;
    }
    // Expected 1000, 2000, 5000; four standard deviations are below 180.
    for (count, expected) in counts.iter().zip([1000u32, 2000, 5000]) {
        assert!(count.abs_diff(expected) < 180, "{counts:?}");
    }
}

proptest! {
    #[test]
    fn truncation_keeps_what_it_should(
        logits in prop::collection::vec(-8.0f32..8.0, 2..40),
        top_k in 0usize..10,
        top_p in 0.05f32..1.0,
        min_p in 0.0f32..0.5,
        seed in any::<u64>(),
    ) {
        let sampling = Sampling { top_k, top_p, min_p, seed, ..Sampling::default() };
        let token = pick(&logits, &sampling, None, seed).expect("the likeliest always stays");
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let rank = order.iter().position(|&t| t == token as usize).unwrap();
        if top_k > 0 {
            prop_assert!(rank < top_k);
        }
        let kept = if top_k > 0 { &order[..top_k.min(order.len())] } else { &order[..] };
        let weight = |t: usize| f64::from((logits[t] - logits[order[0]]).exp());
        let total: f64 = kept.iter().map(|&t| weight(t)).sum();
        // Everything likelier than the choice must not have reached top_p already.
        let before: f64 = order[..rank].iter().map(|&t| weight(t)).sum();
        prop_assert!(before / total < f64::from(top_p) + 1e-4);
        prop_assert!(weight(token as usize) >= f64::from(min_p) - 1e-4);
        prop_assert_eq!(pick(&logits, &sampling, None, seed), Some(token), "the same key, the same token");
    }
}
