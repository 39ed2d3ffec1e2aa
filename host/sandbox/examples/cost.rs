//! What a plugin costs: `cargo run -p formwork-sandbox --example cost`.
//!
//! Prints medians and 99th percentiles of opening a session, of one `plan`, and of masks through
//! grammars, over a made-up vocabulary of 152,064 tokens.

#[path = "../tests/sandbox/guest.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod guest;

use formwork_sandbox::{
    Action, GrammarLimits, Grammars, Observed, OpenRequest, Plugin, Sandbox, SandboxLimits, Source,
    Vocabulary,
};
use guest::{Guest, HOST, plan_of};
use std::sync::Arc;
use std::time::Instant;
use toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie, TokenId};

const SIZE: u32 = 152_064;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let vocabulary = Arc::new(vocabulary()?);
    let begun = Instant::now();
    let grammars = Grammars::new(vocabulary, GrammarLimits::default())?;
    println!("index {SIZE} tokens for grammars: {:?}", begun.elapsed());
    let sandbox = Sandbox::new(grammars.clone(), SandboxLimits::default())?;
    let begun = Instant::now();
    let plugin = sandbox.admit(&Guest::default().component())?;
    println!(
        "admit a component of {} bytes: {:?}",
        plugin.size(),
        begun.elapsed()
    );
    sessions(&plugin)?;
    plans("plan, finish only", &plugin)?;
    let sampling = Guest {
        imports: HOST,
        plan: plan_of(1, "(i32.store (i32.const 516) (call $everything))"),
        ..Guest::default()
    };
    plans(
        "plan, sample under a new mask",
        &sandbox.admit(&sampling.component())?,
    )?;
    masks(&grammars)?;
    bounds(&grammars)
}

fn sessions(plugin: &Plugin) -> Result<(), Box<dyn std::error::Error>> {
    let mut live = Vec::new();
    let mut opened = Vec::new();
    for _ in 0..1_000 {
        let begun = Instant::now();
        live.push(plugin.open(&request())?);
        opened.push(nanos(begun));
    }
    report("open a session, pool filling to 1,000", &mut opened);
    let (mut opened, mut closed) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let begun = Instant::now();
        drop(live.pop());
        closed.push(nanos(begun));
        let begun = Instant::now();
        live.push(plugin.open(&request())?);
        opened.push(nanos(begun));
    }
    report("open a session beside 999", &mut opened);
    report("close a session", &mut closed);
    Ok(())
}

fn plans(name: &str, plugin: &Plugin) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = plugin.open(&request())?;
    let mut times = Vec::new();
    for _ in 0..100_000 {
        let begun = Instant::now();
        let plan = session.plan(Observed::Started)?;
        times.push(nanos(begun));
        assert!(matches!(plan[..], [Action::Finish | Action::Sample { .. }]));
    }
    report(name, &mut times);
    Ok(())
}

/// Walks of a JSON object; tokens are drawn by a fixed rule.
fn masks(grammars: &Grammars) -> Result<(), Box<dyn std::error::Error>> {
    let schema = r#"{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string",
        "maxLength":20},"tags":{"type":"array","items":{"type":"string"}}},"required":["id","name","tags"]}"#;
    let begun = Instant::now();
    let grammar = grammars.compile(&Source::JsonSchema(schema.into()))?;
    println!(
        "compile a schema of three properties: {:?}",
        begun.elapsed()
    );
    let (mut starts, mut times, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for walk in 0..300usize {
        let begun = Instant::now();
        let mut matcher = grammar.start();
        matcher.accepting();
        starts.push(nanos(begun));
        for step in 0..60usize {
            let begun = Instant::now();
            let mask = matcher.mask()?;
            times.push(nanos(begun));
            if matcher.stopped() {
                break;
            }
            let allowed = mask.to_list();
            let token = allowed[(walk * 7919 + step * 104_729) % allowed.len()];
            let begun = Instant::now();
            matcher.commit(token)?;
            commits.push(nanos(begun));
        }
    }
    report("start a matcher", &mut starts);
    report("mask of the schema", &mut times);
    report("commit of a token", &mut commits);
    Ok(())
}

/// Masks inside strings with a bound, which must cost the same whatever the bound is.
fn bounds(grammars: &Grammars) -> Result<(), Box<dyn std::error::Error>> {
    for bound in [300, 100_000] {
        let schemas = [
            (
                "maxLength",
                format!(r#"{{"type":"string","maxLength":{bound}}}"#),
            ),
            (
                "pattern",
                format!(r#"{{"type":"string","pattern":"^[a-zA-Z ]{{1,{bound}}}$"}}"#),
            ),
            (
                "pattern and maxLength",
                format!(r#"{{"type":"string","pattern":"^[a-zA-Z ]+$","maxLength":{bound}}}"#),
            ),
        ];
        for (name, schema) in schemas {
            let grammar = grammars.compile(&Source::JsonSchema(schema.into()))?;
            let mut times = Vec::new();
            for walk in 0..20usize {
                let mut matcher = grammar.start();
                for step in 0..40usize {
                    let begun = Instant::now();
                    let mask = matcher.mask()?;
                    times.push(nanos(begun));
                    let bytes = |token| grammars.vocabulary().bytes(token);
                    // The string goes on, with tokens that keep it far from its bound.
                    let goes_on = |token: &TokenId| {
                        let bytes = bytes(*token);
                        step == 0 || bytes.len() < 4 && !bytes.contains(&b'"')
                    };
                    let allowed: Vec<_> = mask.iter().filter(goes_on).collect();
                    let token = allowed[(walk * 7919 + step * 104_729) % allowed.len()];
                    matcher.commit(token)?;
                    if matcher.stopped() {
                        break;
                    }
                }
            }
            report(&format!("mask in a string, {name} {bound}"), &mut times);
        }
    }
    Ok(())
}

fn request() -> OpenRequest {
    OpenRequest {
        params: "{}".into(),
        prompt: (0..512).collect(),
        max_tokens: 100,
        request_id: "cost".into(),
    }
}

/// Bytes, then words drawn by a linear congruence, then one end token.
fn vocabulary() -> Result<Vocabulary, Box<dyn std::error::Error>> {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let mut state = 1u64;
    let mut draw = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut seen = std::collections::HashSet::new();
    while words.len() < SIZE as usize - 1 {
        let space = if draw(2) == 0 { " " } else { "" };
        let length = 2 + draw(8);
        let letters = (0..length).map(|_| b"etaoinshrdlucmfwypvbgkqjxz09\"{}:,"[draw(33) as usize]);
        let word: Vec<u8> = space.bytes().chain(letters).collect();
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words.push(b"\xff<end>".to_vec());
    let trie = TokTrie::from(&TokRxInfo::new(SIZE, SIZE - 1), &words);
    let env = Arc::new(ApproximateTokEnv::new(trie));
    Ok(Vocabulary::new(
        "made up",
        env,
        SIZE,
        vec![SIZE - 1 as TokenId],
    )?)
}

fn nanos(begun: Instant) -> u64 {
    begun.elapsed().as_nanos() as u64
}

fn report(name: &str, times: &mut [u64]) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1_000.0;
    println!("{name}: median {:.2} µs, p99 {:.2} µs", at(0.5), at(0.99));
}
