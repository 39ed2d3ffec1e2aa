//! From the crates of this workspace to components: built, admitted, and held to the contract.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contract;
mod retries;
mod world;

use formwork::build::{STOCK_SIZE_LIMIT, interfaces};
use formwork::registry::digest;

#[test]
fn every_stock_plugin_builds_is_small_and_is_admitted() {
    let built = world::stock();
    let names: Vec<&str> = built.iter().map(|plugin| plugin.name.as_str()).collect();
    let expected = [
        "choice",
        "grammar",
        "json-schema",
        "regex",
        "structural-tag",
        "template",
        "tools",
    ];
    assert_eq!(names, expected.map(|name| format!("formwork/{name}")));
    let sandbox = world::sandbox();
    for plugin in built {
        let (name, bytes) = (&plugin.name, &plugin.bytes);
        assert!(bytes.len() <= STOCK_SIZE_LIMIT, "{name}: {}", bytes.len());
        assert_eq!((plugin.size, &plugin.digest), (bytes.len(), &digest(bytes)));
        let found = interfaces(bytes).unwrap();
        for import in &found.imports {
            assert!(
                import.starts_with("formwork:plugin/"),
                "{name} imports {import}"
            );
        }
        assert_eq!(found.exports.len(), 2, "{:?}", found.exports);
        let admitted = sandbox.admit(bytes).unwrap();
        assert_eq!(admitted.digest(), plugin.digest);
    }
}
