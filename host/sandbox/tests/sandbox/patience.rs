//! Whose time it is while a grammar compiles.

use crate::guest::{Guest, HOST, SPINS, plan_of};
use crate::world::{bytes, few, open};
use formwork_sandbox::{Action, GrammarLimits, Grammars, GuestError, Observed, SandboxLimits};
use formwork_sandbox::{Sandbox, Source};

use std::time::{Duration, Instant};

/// Time that a guest has, far less than compiling [`slow`] takes.
const OWN_MS: u64 = 15;

/// A regex that takes long to compile, of no more bytes than a guest here has room for.
fn slow() -> String {
    let mut words = String::new();
    let mut state = 1u64;
    while words.len() < 60_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        words += &format!("{:x}|", state >> 36);
    }
    words.pop();
    words
}

/// Finishes.
const FINISH: &str = "(i32.store8 (i32.const 512) (i32.const 3))";

/// Compiles the text as a regex in `plan`, traps if that is refused, and then does `then`.
fn compiling(then: &str) -> Guest {
    let text = slow();
    let call = format!(
        "(call $compile (i32.const 1) (i32.const 2048) (i32.const {}) (i32.const 0) (i32.const 0)
          (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 300))
        (if (i32.load8_u (i32.const 300)) (then unreachable))",
        text.len()
    );
    Guest {
        imports: HOST,
        plan: plan_of(1, &format!("{call} {then}")),
        text,
        ..Guest::default()
    }
}

fn sandbox(compile_ms: u64) -> Sandbox {
    let grammars = Grammars::new(
        bytes(),
        GrammarLimits {
            compile_ms,
            ..GrammarLimits::default()
        },
    );
    let limits = SandboxLimits {
        call_ms: OWN_MS,
        ..few(4)
    };
    Sandbox::new(grammars.unwrap(), limits).unwrap()
}

#[test]
fn compiling_is_not_the_guests_time() {
    let sandbox = sandbox(10_000);
    let plugin = sandbox.admit(&compiling(FINISH).component()).unwrap();
    let mut session = open(&plugin);
    let begun = Instant::now();
    let plan = session.plan(Observed::Started).unwrap();
    assert!(matches!(plan[..], [Action::Finish]));
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(2 * OWN_MS), "{took:?}");
}

#[test]
fn a_guest_that_spins_after_it_is_still_stopped() {
    let sandbox = sandbox(10_000);
    let plugin = sandbox.admit(&compiling(SPINS).component()).unwrap();
    let begun = Instant::now();
    let error = open(&plugin).plan(Observed::Started).unwrap_err();
    let bound = "call_ms";
    assert!(
        matches!(error, GuestError::Deadline { bound: found, .. } if found == bound),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_call_that_holds_up_a_step_waits_no_longer_than_its_own_time() {
    let sandbox = sandbox(10_000);
    let plugin = sandbox.admit(&compiling(FINISH).component()).unwrap();
    let error = open(&plugin).plan(Observed::Sampled(1)).unwrap_err();
    // The guest traps where its grammar is refused.
    assert!(error.to_string().contains("unreachable"), "{error}");
}

#[test]
fn a_late_grammar_names_the_bound_and_is_not_compiled_again() {
    let limits = GrammarLimits {
        compile_ms: 1,
        ..GrammarLimits::default()
    };
    let grammars = Grammars::new(bytes(), limits).unwrap();
    let source = Source::Regex(slow());
    let failure = grammars.compile(&source).unwrap_err();
    assert!(
        failure.message.contains("the limit (compile_ms) of 1ms"),
        "{failure}"
    );
    let begun = Instant::now();
    while grammars.compile(&source).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    let stats = grammars.stats();
    assert_eq!((stats.misses, stats.entries), (1, 1));
    assert!(stats.hits > 0);
}
