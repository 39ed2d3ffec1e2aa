//! Choosing one token from a row of logits.
//!
//! The order is: penalties and bias, mask, temperature, top-k, top-p, min-p, draw. Randomness is a
//! counter keyed by (seed, position), so a token depends on nothing but its own row.

use crate::{SampleRow, Sampled, Sampling, TokenId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;

thread_local! {
    /// Memory for the candidates of a draw: a whole vocabulary's would be mapped and unmapped each time.
    static CANDIDATES: RefCell<Vec<(TokenId, f32)>> = const { RefCell::new(Vec::new()) };
}

/// Samples from `logits` (one per vocabulary entry; changed in place by penalties and bias).
///
/// Entries that are not finite never win. Equal logits resolve to the lowest token id.
pub fn sample(logits: &mut [f32], row: &SampleRow<'_>) -> Sampled {
    let sampling = row.sampling;
    let raw = sampling.logprobs.map(|n| RawLogprobs::new(logits, n));
    let unpenalised: Option<Vec<f32>> = raw.as_ref().map(|_| logits.to_vec());
    penalise(logits, row);
    let token = if sampling.temperature <= 0.0 {
        argmax(logits, row)
    } else {
        CANDIDATES.with_borrow_mut(|kept| {
            candidates(logits, row, kept);
            draw(kept, row)
        })
    };
    let mut sampled = Sampled {
        token,
        ..Sampled::default()
    };
    if let (Some(raw), Some(before), Some(token)) = (raw, unpenalised, token) {
        sampled.logprob = raw.of(before[token as usize]);
        sampled.top = raw.top;
    }
    sampled
}

/// The model's own distribution, before anything is done to it.
struct RawLogprobs {
    log_sum: f32,
    top: Vec<(TokenId, f32)>,
}

impl RawLogprobs {
    fn new(logits: &[f32], n: usize) -> Self {
        let max = logits
            .iter()
            .copied()
            .filter(|l| l.is_finite())
            .fold(f32::MIN, f32::max);
        let sum: f64 = logits
            .iter()
            .filter(|l| l.is_finite())
            .map(|l| f64::from(l - max).exp())
            .sum();
        let log_sum = max + sum.ln() as f32;
        let mut best: Vec<(TokenId, f32)> = logits
            .iter()
            .enumerate()
            .map(|(t, &l)| (t as TokenId, l))
            .collect();
        let n = n.min(best.len());
        if n > 0 && n < best.len() {
            best.select_nth_unstable_by(n - 1, descending);
        }
        best.truncate(n);
        best.sort_unstable_by(descending);
        let top = best.into_iter().map(|(t, l)| (t, l - log_sum)).collect();
        Self { log_sum, top }
    }

    fn of(&self, logit: f32) -> f32 {
        logit - self.log_sum
    }
}

fn penalise(logits: &mut [f32], row: &SampleRow<'_>) {
    let Sampling {
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        ref logit_bias,
        ..
    } = *row.sampling;
    if repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0 {
        // Occurrences among the generated tokens; 0 for tokens seen in the prompt alone.
        let mut seen: HashMap<TokenId, u32> = HashMap::new();
        for (i, &token) in row.history.iter().enumerate() {
            *seen.entry(token).or_default() += u32::from(i >= row.prompt_len);
        }
        for (token, count) in seen {
            let Some(logit) = logits.get_mut(token as usize) else {
                continue;
            };
            *logit = if *logit > 0.0 {
                *logit / repetition_penalty
            } else {
                *logit * repetition_penalty
            };
            if count > 0 {
                *logit -= presence_penalty + frequency_penalty * count as f32;
            }
        }
    }
    for &(token, bias) in logit_bias {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit += bias;
        }
    }
}

/// Calls `visit` for every allowed token with a finite logit, in order of their ids.
fn for_each_allowed(logits: &[f32], row: &SampleRow<'_>, mut visit: impl FnMut(TokenId, f32)) {
    match &row.mask {
        Some(mask) => mask.iter_set_entries(|token| {
            if let Some(&logit) = logits.get(token)
                && logit.is_finite()
            {
                visit(token as TokenId, logit);
            }
        }),
        None => {
            for (token, &logit) in logits.iter().enumerate() {
                if logit.is_finite() {
                    visit(token as TokenId, logit);
                }
            }
        }
    }
}

fn argmax(logits: &[f32], row: &SampleRow<'_>) -> Option<TokenId> {
    let mut best: Option<(TokenId, f32)> = None;
    for_each_allowed(logits, row, |token, logit| {
        if best.is_none_or(|(_, b)| logit > b) {
            best = Some((token, logit));
        }
    });
    best.map(|(token, _)| token)
}

/// Fills `kept` with the allowed tokens and their unnormalised probabilities after temperature.
fn candidates(logits: &[f32], row: &SampleRow<'_>, kept: &mut Vec<(TokenId, f32)>) {
    kept.clear();
    let mut max = f32::NEG_INFINITY;
    for_each_allowed(logits, row, |token, logit| {
        max = max.max(logit);
        kept.push((token, logit));
    });
    let temperature = row.sampling.temperature;
    for (_, weight) in kept {
        *weight = ((*weight - max) / temperature).exp();
    }
}

fn draw(kept: &mut Vec<(TokenId, f32)>, row: &SampleRow<'_>) -> Option<TokenId> {
    let Sampling {
        top_k,
        top_p,
        min_p,
        seed,
        ..
    } = *row.sampling;
    if top_k > 0 && top_k < kept.len() {
        kept.select_nth_unstable_by(top_k - 1, descending);
        kept.truncate(top_k);
    }
    if top_p < 1.0 {
        keep_nucleus(kept, top_p);
    }
    if min_p > 0.0 {
        // The likeliest weighs 1 by construction: weights are relative to it.
        kept.retain(|&(_, w)| w >= min_p);
    }
    // Selection above leaves an order that depends on the values alone only after sorting.
    kept.sort_unstable_by_key(|&(token, _)| token);
    let total: f64 = kept.iter().map(|&(_, w)| f64::from(w)).sum();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(row.position);
    let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut left = unit * total;
    let mut last = None;
    for &(token, weight) in &*kept {
        if weight <= 0.0 {
            continue;
        }
        last = Some(token);
        left -= f64::from(weight);
        if left < 0.0 {
            break;
        }
    }
    // Rounding may leave a hair of `left` at the end; the last candidate takes it.
    last
}

/// Keeps the fewest likeliest candidates whose share reaches `top_p` (Holtzman 2020).
fn keep_nucleus(kept: &mut Vec<(TokenId, f32)>, top_p: f32) {
    let total: f64 = kept.iter().map(|&(_, w)| f64::from(w)).sum();
    // Candidates below this share cannot be needed: all of them together weigh less than 1 - top_p.
    let floor = f64::from(1.0 - top_p) * total / kept.len().max(1) as f64;
    kept.retain(|&(_, w)| f64::from(w) >= floor);
    kept.sort_unstable_by(descending);
    let mut sum = 0.0;
    let enough = |&(_, weight): &(TokenId, f32)| {
        sum += f64::from(weight);
        sum >= f64::from(top_p) * total
    };
    if let Some(last) = kept.iter().position(enough) {
        kept.truncate(last + 1);
    }
}

/// Likeliest first; equal weights by id, so that selections are deterministic.
fn descending(a: &(TokenId, f32), b: &(TokenId, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}
