//! From a crate of this workspace to a component that the sandbox admits.

use std::path::Path;
use std::sync::Arc;

use formwork::build::{STOCK_SIZE_LIMIT, build, interfaces};
use formwork::registry::digest;
use formwork_sandbox::{GrammarLimits, Grammars, Sandbox, SandboxLimits, Vocabulary};

fn sandbox() -> Sandbox {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let size = env.tok_trie().vocab_size() as u32;
    let end = vec![env.tok_trie().eos_token()];
    let vocabulary = Arc::new(Vocabulary::new("bytes", env, size, end).expect("a vocabulary"));
    let grammars = Grammars::new(vocabulary, GrammarLimits::default()).expect("grammars");
    Sandbox::new(grammars, SandboxLimits::default()).expect("a sandbox")
}

#[test]
fn every_stock_plugin_builds_is_small_and_is_admitted() {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins");
    let entries = std::fs::read_dir(plugins).unwrap();
    let mut crates: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    crates.sort();
    let out = tempfile::tempdir().unwrap();
    let built = build(&crates, Some(out.path())).unwrap();
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
    let sandbox = sandbox();
    for plugin in built {
        assert!(
            plugin.size <= STOCK_SIZE_LIMIT,
            "{} is {} bytes",
            plugin.name,
            plugin.size
        );
        let bytes = std::fs::read(&plugin.path).unwrap();
        assert_eq!(
            (plugin.size, &plugin.digest),
            (bytes.len(), &digest(&bytes))
        );
        let found = interfaces(&bytes).unwrap();
        for import in &found.imports {
            assert!(
                import.starts_with("formwork:plugin/"),
                "{} imports {import}",
                plugin.name
            );
        }
        assert_eq!(found.exports.len(), 2, "{:?}", found.exports);
        let admitted = sandbox.admit(&bytes).unwrap();
        assert_eq!(admitted.digest(), plugin.digest);
    }
}
