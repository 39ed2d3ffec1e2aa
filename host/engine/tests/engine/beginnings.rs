//! Prompts that part within a block: what they share is copied rather than computed.

use super::*;

/// Runs one request to its end.
fn run(engine: &Engine, prompt: &[u8], max_tokens: usize) -> Outcome {
    let (request, events) = request(prompt, max_tokens, 7);
    engine.submit(vec![request]).expect("the engine takes it");
    gather(&events)
}

#[test]
fn a_prompt_takes_over_all_that_a_known_block_has_of_it() {
    let engine = engine(64, EngineConfig::default());
    let first = b"the hill behind the house";
    let cases: [(&[u8], usize); 6] = [
        // Nothing is known yet.
        (first, 0),
        // The same again: one position is left to compute.
        (first, first.len() - 1),
        // Parts in the middle of a block, at its first position, and in the very first block.
        (b"the hill behind a house", 16),
        (b"the hill below", 11),
        (b"the hills", 8),
        (b"thin ice is broken", 2),
    ];
    for (prompt, cached) in cases {
        let outcome = run(&engine, prompt, 8);
        assert_eq!(outcome.usage.cached, cached, "{}", prompt.escape_ascii());
        assert_eq!(outcome.usage.computed, prompt.len() - cached + 7);
        assert_eq!(
            outcome.tokens,
            alone(prompt, 8, 7),
            "{}",
            prompt.escape_ascii()
        );
    }
    assert_idle(&engine);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In a pool so small that a block's source is often given away while its copy is being planned, and under
    /// preemption, each sequence has the tokens that it would have had alone.
    #[test]
    fn copies_change_nothing(
        prompts in prop::collection::vec((0_usize..24, prop::collection::vec(0_u8..2, 0..9)), 1..10),
        blocks in 9_usize..16,
        together in 1_usize..4,
    ) {
        let engine = engine(blocks, EngineConfig { token_budget: 12, ..EngineConfig::default() });
        let prompts: Vec<Vec<u8>> = prompts
            .iter()
            .map(|(kept, tail)| [&b"01100110 10011001 0110 01"[..=*kept], tail].concat())
            .collect();
        for group in prompts.chunks(together) {
            let (requests, events): (Vec<_>, Vec<_>) =
                group.iter().map(|prompt| request(prompt, 5, 7)).unzip();
            engine.submit(requests).expect("the engine takes them");
            for (prompt, events) in group.iter().zip(&events) {
                prop_assert_eq!(gather(events).tokens, alone(prompt, 5, 7));
            }
        }
        assert_idle(&engine);
    }
}
