//! What a component imports and exports, by name.

use wit_component::DecodedWasm;

/// The interfaces of a component, as in `formwork:plugin/masks@0.1.0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// What it needs.
    pub imports: Vec<String>,
    /// What it offers.
    pub exports: Vec<String>,
}

/// Reads the interfaces of a component.
///
/// # Errors
/// What the decoder says of bytes that are no component.
pub fn interfaces(bytes: &[u8]) -> Result<Interfaces, String> {
    match wit_component::decode(bytes).map_err(|error| format!("{error:#}"))? {
        DecodedWasm::WitPackage(..) => Err("it is a WIT package, not a component".to_owned()),
        DecodedWasm::Component(resolve, world) => {
            let world = &resolve.worlds[world];
            let names = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>();
            Ok(Interfaces {
                imports: names(&mut world.imports.keys().map(|key| resolve.name_world_key(key))),
                exports: names(&mut world.exports.keys().map(|key| resolve.name_world_key(key))),
            })
        }
    }
}
