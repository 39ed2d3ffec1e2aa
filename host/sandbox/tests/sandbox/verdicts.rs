//! What a guest says of a value.

use crate::guest::Guest;
use crate::world::{few, open, sandbox};
use formwork_sandbox::{GuestError, Value, Verdict};

/// Asks for another attempt at a value, of which `$from` says how much stays.
const RETRIES: &str = "
    (i32.store8 (i32.const 256) (i32.const 2))
    (i32.store (i32.const 260) (i32.const 1024))
    (i32.store (i32.const 264) (i32.const 2))
    (i32.store (i32.const 268) (local.get $attempts))
    (i32.const 256)";

#[test]
fn a_retry_keeps_no_more_than_there_is() {
    let guest = Guest {
        check: RETRIES,
        ..Guest::default()
    };
    let sandbox = sandbox(few(1));
    let plugin = sandbox.admit(&guest.component()).unwrap();
    let mut session = open(&plugin);
    let mut check = |from: u32| {
        session.check(&Value {
            field: "a".into(),
            bytes: b"abc".to_vec(),
            attempts: from,
        })
    };
    for from in [0, 1, 3] {
        let Verdict::Retry(retry) = check(from).unwrap() else {
            panic!("another verdict");
        };
        assert_eq!((retry.reason.as_str(), retry.from), ("{}", from as usize));
    }
    let error = check(4).unwrap_err();
    assert!(matches!(error, GuestError::Invalid(_)), "{error:?}");
    let message = "`retry` keeps 4 bytes of a value that has 3";
    assert!(error.to_string().contains(message), "{error}");
    assert_eq!(check(0).unwrap_err(), GuestError::Closed);
}
