//! A plugin small enough to write by hand: it describes itself, and any session traps.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

/// Where `describe` leaves its result, and where the schema's text lies.
const RESULT: usize = 16;
const SCHEMA: usize = 64;

/// A component whose params schema is `schema` (different schemas make different digests).
pub(super) fn component(schema: &str) -> Vec<u8> {
    let text: String = schema.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    let length = schema.len();
    let interface = |name: &str| format!("formwork:plugin/{name}@0.1.0");
    let (plugin, decoding) = (interface("plugin"), interface("decoding"));
    let module = format!(
        r#"(module
            (memory (export "memory") 1)
            (global $top (mut i32) (i32.const 32768))
            (data (i32.const {SCHEMA}) "{text}")
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                (global.get $top)
                (global.set $top (i32.add (global.get $top)
                    (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16)))))
            (func (export "{plugin}#describe") (result i32)
                (i32.store (i32.const {RESULT}) (i32.const {SCHEMA}))
                (i32.store offset=4 (i32.const {RESULT}) (i32.const {length}))
                (i32.store8 offset=8 (i32.const {RESULT}) (i32.const 0))
                (i32.const {RESULT}))
            (func (export "{decoding}#[static]session.open")
                (param i32 i32 i32 i32 i32) (result i32) unreachable)
            (func (export "{decoding}#[method]session.plan")
                (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "{decoding}#[method]session.check")
                (param i32 i32 i32 i32 i32 i32) (result i32) unreachable))"#
    );
    let mut module = wat::parse_str(module).unwrap();
    let mut resolve = wit_parser::Resolve::default();
    let wit = include_str!("../../../../wit/plugin.wit");
    let package = resolve.push_str("plugin.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("format")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let encoder = ComponentEncoder::default().validate(true);
    encoder.module(&module).unwrap().encode().unwrap()
}
