//! What is let in, and what is told to those who are not.

use crate::guest::{Guest, wrap_source};
use crate::world::{bytes, few, grammars, sandbox};
use formwork_sandbox::{LatePolicy, Sandbox, SandboxLimits};

fn refused_by(sandbox: &Sandbox, bytes: &[u8], message: &str) {
    let error = sandbox.admit(bytes).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

fn refused(bytes: &[u8], message: &str) {
    refused_by(&sandbox(few(2)), bytes, message);
}

#[test]
fn a_plugin_is_known_by_its_bytes() {
    let params = r#"{"type":"object","required":["pattern"]}"#;
    let guest = Guest {
        params,
        ..Guest::default()
    };
    let component = guest.component();
    let plugin = sandbox(few(2)).admit(&component).unwrap();
    assert_eq!(plugin.size(), component.len());
    assert_eq!(plugin.description().params["required"][0], "pattern");
    assert_eq!(plugin.description().on_late, LatePolicy::Fail);
    assert_eq!(plugin.digest().len(), 64);
    let again = sandbox(few(2)).admit(&component).unwrap();
    let other = sandbox(few(2))
        .admit(&Guest::default().component())
        .unwrap();
    assert_eq!(again.digest(), plugin.digest());
    assert_ne!(other.digest(), plugin.digest());
}

#[test]
fn what_is_not_a_component_is_refused_with_advice() {
    refused(b"", "it does not begin with the magic bytes");
    refused(b"(component)", "it does not begin with the magic bytes");
    refused(b"\0asm", "invalid");
    let module = wat::parse_str(Guest::default().wat()).unwrap();
    refused(&module, "it is a core module; make a component of it");
    let empty = wat::parse_str("(component)").unwrap();
    refused(&empty, "does not export `formwork:plugin/plugin@0.1.0`");
    let component = Guest::default().component();
    refused(&component[..component.len() / 2], "invalid");
    for (index, step) in component.iter().enumerate().step_by(37) {
        let mut bytes = component.clone();
        bytes[index] = step.wrapping_add(101);
        // Damaged components may be let in or not; they must not take the process with them.
        let _ = sandbox(few(1)).admit(&bytes);
    }
}

#[test]
fn machine_code_is_refused() {
    let mut config = wasmtime::Config::new();
    config.wasm_component_model(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let component = Guest::default().component();
    let code = engine.precompile_component(&component).unwrap();
    refused(
        &code,
        "compiled machine code, which is never taken from outside",
    );
}

#[test]
fn imports_are_limited() {
    let import =
        |name: &str| wat::parse_str(format!("(component (import \"{name}\" (instance)))")).unwrap();
    refused(
        &import("wasi:clocks/monotonic-clock@0.2.0"),
        "`formwork plugin build`",
    );
    refused(
        &import("wasi:cli/stdout@0.2.3"),
        "`wasi:cli/stdout@0.2.3` is not allowed",
    );
    refused(&import("acme:net/http"), "`acme:net/http` is not allowed");
    refused(&import("formwork:plugin/secrets@0.1.0"), "no such import");
    refused(
        &import("formwork:plugin/masks@0.2.0"),
        "`formwork:plugin/masks@0.2.0` is of another version; this host serves formwork:plugin@0.1.0",
    );
}

#[test]
fn other_versions_and_types_of_the_world_are_refused() {
    let wit = include_str!("../../../../wit/plugin.wit");
    let newer = wit.replace("plugin@0.1.0", "plugin@0.9.0");
    let wat = Guest::default().wat().replace("@0.1.0", "@0.9.0");
    refused(&wrap_source(&wat, &newer), "of another version");
    let other = wit.replace(
        "describe: func() -> description;",
        "describe: func() -> u32;",
    );
    refused(
        &wrap_source(&Guest::default().wat(), &other),
        "does not fit the world",
    );
}

#[test]
fn sizes_are_limited() {
    let component = Guest::default().component();
    let with = |limits| Sandbox::new(grammars(bytes()), limits).unwrap();
    let small = with(SandboxLimits {
        component_bytes: 100,
        ..few(1)
    });
    refused_by(&small, &component, "the limit (component_bytes) is 100");
    let small = with(SandboxLimits {
        function_bytes: 10,
        ..few(1)
    });
    refused_by(&small, &component, "the limit (function_bytes) is 10");
    let big = Guest {
        pages: 1000,
        ..Guest::default()
    };
    refused(
        &big.component(),
        "the initial memory in bytes is 65536000, the limit (memory_bytes)",
    );
    let instances = "(core instance (instantiate $m))".repeat(8);
    let text = format!(
        "(component (core module $m (memory 1)) {instances}
          (instance $i) (export \"formwork:plugin/plugin@0.1.0\" (instance $i))
          (export \"formwork:plugin/decoding@0.1.0\" (instance $i)))"
    );
    refused(
        &wat::parse_str(text).unwrap(),
        "the number of memories is 8",
    );
}

#[test]
fn the_trial_run_must_succeed() {
    let guest = Guest {
        params: "{\"type\":",
        ..Guest::default()
    };
    refused(&guest.component(), "`params` is not JSON");
    let guest = Guest {
        params: "[]",
        ..Guest::default()
    };
    refused(&guest.component(), "`params` is not a JSON Schema");
    let spins = Guest::default()
        .wat()
        .replace("(i32.const 16))", "(loop $l (br $l)) (i32.const 16))");
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
    refused(
        &crate::guest::wrap(&spins, wit),
        "`describe` failed in a trial run",
    );
}
