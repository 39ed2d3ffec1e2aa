//! Guests that mean harm, or are merely broken.

use crate::guest::{Guest, HOST, RECURSES, SPINS, plan_of};
use crate::world::{few, open, request, sandbox};
use formwork_sandbox::{Action, GuestError, LogLevel, Observed, SandboxLimits, Value, Verdict};
use std::time::{Duration, Instant};

/// What the first `plan` of a guest comes to.
fn planned(guest: &Guest) -> Result<Vec<Action>, GuestError> {
    let sandbox = sandbox(few(4));
    let plugin = sandbox.admit(&guest.component()).unwrap();
    open(&plugin).plan(Observed::Started)
}

fn refused(guest: &Guest, message: &str) {
    let error = planned(guest).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

fn with_plan(plan: impl Into<String>) -> Guest {
    let plan = plan.into();
    let imports = HOST;
    Guest {
        imports,
        plan,
        ..Guest::default()
    }
}

#[test]
fn a_spinning_guest_is_stopped_and_nobody_else_notices() {
    let sandbox = sandbox(few(4));
    let spinning = sandbox.admit(&with_plan(SPINS).component()).unwrap();
    let honest = sandbox.admit(&Guest::default().component()).unwrap();
    let (mut bad, mut good) = (open(&spinning), open(&honest));
    let other = std::thread::spawn(move || {
        for _ in 0..200 {
            assert!(matches!(
                good.plan(Observed::Started).unwrap()[..],
                [Action::Finish]
            ));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let begun = Instant::now();
    let error = bad.plan(Observed::Started).unwrap_err();
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(50) && took < Duration::from_secs(1),
        "{took:?}"
    );
    assert_eq!(
        error.to_string(),
        "the plugin's call took longer than the limit (call_ms) of 50ms"
    );
    assert_eq!(bad.plan(Observed::Started).unwrap_err(), GuestError::Closed);
    other.join().unwrap();
}

#[test]
fn spinning_in_open_or_check_is_stopped_too() {
    let sandbox = sandbox(few(4));
    let guest = Guest {
        open: SPINS,
        ..Guest::default()
    };
    let plugin = sandbox.admit(&guest.component()).unwrap();
    let error = plugin.open(&request()).unwrap_err();
    assert!(
        error.to_string().contains("the limit (open_ms) of 500ms"),
        "{error}"
    );
    let guest = Guest {
        check: SPINS,
        ..Guest::default()
    };
    let plugin = sandbox.admit(&guest.component()).unwrap();
    let value = Value {
        field: "a".into(),
        bytes: b"1".to_vec(),
        attempts: 1,
    };
    let error = open(&plugin).check(&value).unwrap_err();
    assert!(
        matches!(
            error,
            GuestError::Deadline {
                bound: "call_ms",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(sandbox.live_sessions(), 0);
}

#[test]
fn traps_name_their_cause_and_close_the_session() {
    refused(&with_plan("(unreachable)"), "unreachable");
    refused(
        &with_plan("(i32.load (i32.const -8))"),
        "out of bounds memory access",
    );
    refused(&with_plan(RECURSES), "call stack exhausted");
    refused(
        &with_plan("(i32.div_u (i32.const 1) (i32.const 0))"),
        "divide by zero",
    );
    let sandbox = sandbox(few(1));
    let plugin = sandbox
        .admit(&with_plan("(unreachable)").component())
        .unwrap();
    let mut session = open(&plugin);
    session.plan(Observed::Started).unwrap_err();
    let value = Value {
        field: "a".into(),
        bytes: vec![],
        attempts: 1,
    };
    assert_eq!(session.check(&value).unwrap_err(), GuestError::Closed);
    drop(session);
    open(&plugin);
}

#[test]
fn memory_is_capped() {
    let guest = with_plan(
        "(loop $more (br_if $more (i32.ne (i32.const -1) (memory.grow (i32.const 16)))))
        (unreachable)",
    );
    refused(
        &guest,
        "ran out of memory: the limit (memory_bytes) is 16777216",
    );
    let polite = with_plan(format!(
        "(if (i32.ne (i32.const -1) (memory.grow (i32.const 1000))) (then (unreachable))) {}",
        Guest::default().plan
    ));
    assert_eq!(planned(&polite).unwrap().len(), 1);
}

#[test]
fn handles_and_transfers_are_capped() {
    refused(
        &with_plan("(loop $more (drop (call $everything)) (br $more)) (unreachable)"),
        "the limit (handles) of 1024",
    );
    // 65,536 actions of which each claims the same 64 KiB: 4 GiB for the host to copy.
    let fill = "(local.set $a (i32.const 131072))
        (loop $more
          (i32.store8 (local.get $a) (i32.const 1))
          (i32.store offset=8 (local.get $a) (i32.const 65536))
          (local.set $a (i32.add (local.get $a) (i32.const 64)))
          (br_if $more (i32.lt_u (local.get $a) (i32.const 4325376))))
        (i32.store8 (i32.const 128) (i32.const 0))
        (i32.store (i32.const 132) (i32.const 131072))
        (i32.store (i32.const 136) (i32.const 65536))
        (i32.const 128)";
    let guest = Guest {
        pages: 70,
        ..with_plan(fill)
    };
    refused(&guest, "trapped");
}

#[test]
fn bad_bits_are_an_error_for_the_guest() {
    // Ten words for 300 tokens are right; nine are not: the error's text becomes the plan's failure.
    let plan = "(call $from_bits (i32.const 4096) (i32.const 9) (i32.const 300))
        (if (i32.eqz (i32.load8_u (i32.const 300))) (then (unreachable)))
        (i32.store8 (i32.const 128) (i32.const 1))
        (i32.store8 (i32.const 132) (i32.const 3))
        (i32.store (i32.const 136) (i32.load (i32.const 304)))
        (i32.store (i32.const 140) (i32.load (i32.const 308)))
        (i32.const 128)";
    refused(
        &with_plan(plan),
        "internal error: a mask over 300 tokens has 10 words, not 9",
    );
    // All bits set: those past the vocabulary and without a token are cleared.
    let plan = "(memory.fill (i32.const 4096) (i32.const 255) (i32.const 40))
        (call $from_bits (i32.const 4096) (i32.const 10) (i32.const 300))
        (i32.store8 (i32.const 512) (i32.const 0))
        (i32.store (i32.const 516) (i32.load (i32.const 304)))";
    let plan = planned(&with_plan(plan_of(1, plan))).unwrap();
    let [
        Action::Sample {
            mask,
            temperature: None,
        },
    ] = &plan[..]
    else {
        panic!("{plan:?}");
    };
    assert_eq!((mask.len(), mask.num_set()), (300, 262));
}

#[test]
fn senseless_plans_are_refused() {
    let plan = |count, fill: &str, message| refused(&with_plan(plan_of(count, fill)), message);
    plan(0, "", "the plan does nothing");
    plan(1, "(i32.store8 (i32.const 512) (i32.const 9))", "trapped");
    plan(
        1000,
        "(memory.fill (i32.const 512) (i32.const 0) (i32.const 64000))",
        "trapped",
    );
    let finishes = "(memory.fill (i32.const 512) (i32.const 3) (i32.const 64000))";
    plan(
        300,
        finishes,
        "the plan has 300 actions, the limit (actions) is 256",
    );
    plan(
        2,
        finishes,
        "action 0 of the plan: `finish` is not the last action",
    );
    let empty_write = "(i32.store8 (i32.const 512) (i32.const 1))";
    plan(1, empty_write, "the plan does nothing");
    let sample = "(i32.store (i32.const 516) (call $everything))";
    plan(
        2,
        &format!("{sample} (i32.store8 (i32.const 576) (i32.const 3))"),
        "action 0 of the plan: `sample` is not the last action",
    );
    let none = "(i32.store (i32.const 516) (call $nothing))";
    plan(1, none, "the mask allows no token");
    let hot = format!("{sample} (i32.store8 (i32.const 520) (i32.const 1))");
    for bad in ["nan", "inf", "-1"] {
        let fill = format!("{hot} (f32.store (i32.const 524) (f32.const {bad}))");
        plan(1, &fill, "not a finite number from 0");
    }
    plan(
        1,
        "(i32.store (i32.const 516) (i32.const 12345))",
        "trapped",
    );
}

/// Fills in a field named `text[..name_len]` of a grammar `a|b`.
fn field(name_len: u32, max_tokens: u32, attempts: u32) -> Guest {
    let fill = format!(
        r"(call $compile (i32.const 1) (i32.const 2056) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 300))
        (i32.store8 (i32.const 512) (i32.const 2))
        (i32.store (i32.const 516) (i32.const 2048))
        (i32.store (i32.const 520) (i32.const {name_len}))
        (i32.store (i32.const 524) (call $start (i32.load (i32.const 304))))
        (i32.store (i32.const 528) (i32.const {max_tokens}))
        (i32.store8 (i32.const 540) (i32.const 1))
        (i32.store (i32.const 544) (i32.const {attempts}))
        (f32.store (i32.const 548) (f32.const 0.5))
        (i32.store8 (i32.const 564) (i32.const 2))"
    );
    let text = "fieldnamea|b".into();
    Guest {
        text,
        ..with_plan(plan_of(1, &fill))
    }
}

#[test]
fn fields_come_through_with_a_matcher_and_bad_ones_do_not() {
    let guest = Guest {
        text: "fieldnama|b".into(),
        ..field(5, 3, 2)
    };
    let mut plan = planned(&guest).unwrap();
    let Some(Action::Field(field_of_plan)) = plan.first_mut() else {
        panic!("{plan:?}");
    };
    assert_eq!(field_of_plan.name, "field");
    assert!(field_of_plan.check && field_of_plan.max_tokens == 3);
    assert_eq!(field_of_plan.retry.attempts, 2);
    assert!((field_of_plan.retry.heat - 0.5).abs() < 1e-6);
    let mask = field_of_plan.matcher.mask().unwrap();
    assert_eq!(mask.to_list(), [u32::from(b'a'), u32::from(b'b')]);
    refused(&field(0, 3, 2), "a name has 1 to 256 bytes");
    refused(&field(5, 0, 2), "field \"field\": `max-tokens` is 0");
    refused(&field(5, 3, 0), "`attempts` is 0, it must be 1 to 32");
}

#[test]
fn the_log_is_bounded_and_tagged() {
    let plan = "(local.set $a (i32.const 1000))
        (loop $more
          (call $log (i32.const 2) (i32.const 2048) (i32.const 3))
          (local.set $a (i32.sub (local.get $a) (i32.const 1)))
          (br_if $more (local.get $a)))";
    let guest = Guest {
        text: "hey".into(),
        ..with_plan(format!("{plan} {}", Guest::default().plan))
    };
    let sandbox = sandbox(few(2));
    let plugin = sandbox.admit(&guest.component()).unwrap();
    let mut session = open(&plugin);
    session.plan(Observed::Started).unwrap();
    let log = session.take_log();
    assert_eq!(log.len(), 257);
    assert_eq!(
        (log[0].level, log[0].message.as_str(), log[0].call),
        (LogLevel::Warn, "hey", 1)
    );
    assert!(log[256].message.contains("log_lines"));
    session.plan(Observed::Started).unwrap();
    assert_eq!(session.take_log(), []);
    let huge = "(call $log (i32.const 0) (i32.const 2048) (i32.const 100000))";
    let guest = with_plan(format!("{huge} {huge} {}", Guest::default().plan));
    let plugin = sandbox.admit(&guest.component()).unwrap();
    let mut session = open(&plugin);
    session.plan(Observed::Started).unwrap();
    let bytes: usize = session
        .take_log()
        .iter()
        .map(|line| line.message.len())
        .sum();
    assert!((65_536..65_700).contains(&bytes), "{bytes}");
}

#[test]
fn a_full_pool_is_busy_and_recovers() {
    let sandbox = sandbox(few(3));
    let plugin = sandbox.admit(&Guest::default().component()).unwrap();
    let mut sessions: Vec<_> = (0..3).map(|_| open(&plugin)).collect();
    let busy = plugin.open(&request()).unwrap_err();
    assert_eq!(busy, GuestError::Busy { live: 3, limit: 3 });
    sessions.pop();
    sessions.push(open(&plugin));
    drop(sessions);
    assert_eq!(sandbox.live_sessions(), 0);
}

#[test]
fn sessions_that_come_and_go_leave_nothing() {
    let sandbox = sandbox(few(3));
    let honest = sandbox.admit(&Guest::default().component()).unwrap();
    let trapping = sandbox
        .admit(&with_plan("(unreachable)").component())
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (honest, trapping) = (&honest, &trapping);
            scope.spawn(move || {
                for round in 0..300 {
                    let traps = (round + thread) % 3 == 0;
                    let plugin = if traps { trapping } else { honest };
                    match plugin.open(&request()) {
                        Ok(mut session) if round % 5 != 0 => {
                            assert_eq!(session.plan(Observed::Started).is_err(), traps);
                        }
                        Ok(_) => {}
                        Err(error) => assert_eq!(error, GuestError::Busy { live: 3, limit: 3 }),
                    }
                }
            });
        }
    });
    assert_eq!(sandbox.live_sessions(), 0);
}

#[test]
fn a_thousand_sessions_live_at_once() {
    let sandbox = sandbox(SandboxLimits::default());
    let plugin = sandbox.admit(&Guest::default().component()).unwrap();
    let mut sessions: Vec<_> = (0..1_000).map(|_| open(&plugin)).collect();
    assert_eq!(sandbox.live_sessions(), 1_000);
    for session in &mut sessions {
        assert!(matches!(
            session.plan(Observed::Started).unwrap()[..],
            [Action::Finish]
        ));
        let value = Value {
            field: "a".into(),
            bytes: vec![1],
            attempts: 1,
        };
        assert_eq!(session.check(&value).unwrap(), Verdict::Accept);
    }
}

#[test]
fn a_failure_of_the_guest_reaches_the_caller() {
    let open = "(i32.store8 (i32.const 64) (i32.const 1))
        (i32.store8 (i32.const 68) (i32.const 0))
        (i32.store (i32.const 72) (i32.const 2048))
        (i32.store (i32.const 76) (i32.const 7))
        (i32.const 64)";
    let guest = Guest {
        open,
        text: "no such".into(),
        ..Guest::default()
    };
    let sandbox = sandbox(few(1));
    let plugin = sandbox.admit(&guest.component()).unwrap();
    for _ in 0..3 {
        let error = plugin.open(&request()).unwrap_err();
        assert_eq!(error.to_string(), "invalid parameters: no such");
    }
    assert_eq!(sandbox.live_sessions(), 0);
}
