//! Guests written by hand: core modules in WAT, wrapped into components of the real world.
//!
//! Memory of a guest: results from 0, text from 1024, heap from 65536.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The parts of a guest that tests vary; the rest is a guest that finishes at once.
pub(crate) struct Guest {
    /// Core imports, beside `$session_new`.
    pub(crate) imports: &'static str,
    /// Pages of memory at the start.
    pub(crate) pages: u32,
    /// JSON Schema of the params, no quotes in it escaped.
    pub(crate) params: &'static str,
    /// Text at 2048 in memory, in WAT's escapes.
    pub(crate) text: String,
    /// Body of `open`: `(param $params i32) (param $params_len i32) (param $prompt i32)
    /// (param $prompt_len i32) (param $max i32) (result i32)`.
    pub(crate) open: &'static str,
    /// Body of `plan`: `(param $self i32) (param $seen i32) (param $a i32) (param $b i32) (result i32)`.
    pub(crate) plan: String,
    /// Body of `check`, of seven words in and one out.
    pub(crate) check: &'static str,
}

/// Body of `open` that makes a session.
pub(crate) const OPENS: &str = "
    (i32.store8 (i32.const 64) (i32.const 0))
    (i32.store (i32.const 68) (call $session_new (i32.const 7)))
    (i32.const 64)";

/// Body of a function that never returns.
pub(crate) const SPINS: &str = "(loop $again (br $again)) (unreachable)";

/// Body of a function that recurses without end, by calling `plan`.
pub(crate) const RECURSES: &str =
    "(call $plan (local.get $self) (local.get $seen) (local.get $a) (local.get $b))";

impl Default for Guest {
    fn default() -> Self {
        Self {
            imports: "",
            pages: 2,
            params: "{}",
            text: String::new(),
            open: OPENS,
            plan: plan_of(1, "(i32.store8 (i32.const 512) (i32.const 3))"),
            check: "(i32.store8 (i32.const 256) (i32.const 0)) (i32.const 256)",
        }
    }
}

/// Body of `plan` that answers `count` actions, which `fill` writes from 512 on, 64 bytes each.
pub(crate) fn plan_of(count: u32, fill: &str) -> String {
    format!(
        "{fill}
        (i32.store8 (i32.const 128) (i32.const 0))
        (i32.store (i32.const 132) (i32.const 512))
        (i32.store (i32.const 136) (i32.const {count}))
        (i32.const 128)"
    )
}

impl Guest {
    pub(crate) fn wat(&self) -> String {
        let Self {
            imports,
            pages,
            params,
            text,
            open,
            plan,
            check,
        } = self;
        let (params_len, params) = (params.len(), params.replace('"', "\\22"));
        format!(
            r#"(module
            (import "[export]formwork:plugin/decoding@0.1.0" "[resource-new]session"
              (func $session_new (param i32) (result i32)))
            {imports}
            (memory (export "memory") {pages})
            (data (i32.const 1024) "{params}")
            (data (i32.const 2048) "{text}")
            (global $heap (mut i32) (i32.const 65536))
            (func $realloc (export "cabi_realloc")
              (param $old i32) (param $old_len i32) (param $align i32) (param $len i32) (result i32)
              (local $at i32)
              (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
              (global.set $heap (i32.add (local.get $at) (local.get $len)))
              (if (i32.gt_u (global.get $heap) (i32.shl (memory.size) (i32.const 16)))
                (then (if (i32.eq (i32.const -1) (memory.grow (i32.add (i32.const 1)
                    (i32.shr_u (i32.sub (global.get $heap) (i32.shl (memory.size) (i32.const 16)))
                      (i32.const 16)))))
                  (then (unreachable)))))
              (local.get $at))
            (func (export "formwork:plugin/plugin@0.1.0#describe") (result i32)
              (i32.store (i32.const 16) (i32.const 1024))
              (i32.store (i32.const 20) (i32.const {params_len}))
              (i32.store8 (i32.const 24) (i32.const 1))
              (i32.const 16))
            (func (export "formwork:plugin/decoding@0.1.0#[static]session.open")
              (param $params i32) (param $params_len i32) (param $prompt i32)
              (param $prompt_len i32) (param $max i32) (result i32)
              {open})
            (func $plan (export "formwork:plugin/decoding@0.1.0#[method]session.plan")
              (param $self i32) (param $seen i32) (param $a i32) (param $b i32) (result i32)
              {plan})
            (func (export "formwork:plugin/decoding@0.1.0#[method]session.check")
              (param $self i32) (param $name i32) (param $name_len i32)
              (param $value i32) (param $value_len i32) (param $attempts i32) (result i32)
              {check}))"#
        )
    }

    /// The component's bytes.
    pub(crate) fn component(&self) -> Vec<u8> {
        wrap(
            &self.wat(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"),
        )
    }
}

/// Makes a component of a core module under the world `format` of the WIT at `wit`.
pub(crate) fn wrap(wat: &str, wit: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).unwrap();
    encode(wat, &resolve, package)
}

/// The same under another text of the WIT.
pub(crate) fn wrap_source(wat: &str, wit: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("plugin.wit", wit).unwrap();
    encode(wat, &resolve, package)
}

fn encode(wat: &str, resolve: &Resolve, package: wit_parser::PackageId) -> Vec<u8> {
    let world = resolve.select_world(&[package], Some("format")).unwrap();
    let mut module = wat::parse_str(wat).unwrap();
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    let encoder = ComponentEncoder::default().validate(true);
    encoder.module(&module).unwrap().encode().unwrap()
}

/// Core imports of the host functions that the guests here use.
pub(crate) const HOST: &str = r#"
    (import "formwork:plugin/masks@0.1.0" "[static]mask.everything" (func $everything (result i32)))
    (import "formwork:plugin/masks@0.1.0" "[static]mask.nothing" (func $nothing (result i32)))
    (import "formwork:plugin/masks@0.1.0" "[static]mask.from-bits"
      (func $from_bits (param i32 i32 i32)))
    (import "formwork:plugin/masks@0.1.0" "[method]mask.count" (func $count (param i32) (result i32)))
    (import "formwork:plugin/grammars@0.1.0" "[static]grammar.compile"
      (func $compile (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "formwork:plugin/grammars@0.1.0" "[method]grammar.start"
      (func $start (param i32) (result i32)))
    (import "formwork:plugin/grammars@0.1.0" "[method]matcher.mask"
      (func $matcher_mask (param i32) (result i32)))
    (import "formwork:plugin/log@0.1.0" "write" (func $log (param i32 i32 i32)))
"#;
