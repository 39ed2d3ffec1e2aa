//! The registry over real components.

mod guest;

use formwork_sandbox::{GrammarLimits, Grammars, SandboxLimits, Vocabulary};
use tempfile::TempDir;

use super::*;

const SCHEMA: &str = r#"{"type":"object","additionalProperties":false}"#;
const OTHER: &str = r#"{"type":"object","additionalProperties":true}"#;

fn sandbox() -> Arc<Sandbox> {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let size = env.tok_trie().vocab_size() as u32;
    let end = vec![env.tok_trie().eos_token()];
    let vocabulary = Arc::new(Vocabulary::new("bytes", env, size, end).unwrap());
    let grammars = Grammars::new(vocabulary, GrammarLimits::default()).unwrap();
    Arc::new(Sandbox::new(grammars, SandboxLimits::default()).unwrap())
}

fn open(dir: &TempDir) -> Registry {
    Registry::open(dir.path(), sandbox()).unwrap()
}

fn name(text: &str) -> PluginName {
    text.parse().unwrap()
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

fn blob_files(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path().join("blobs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn a_published_plugin_is_found_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = guest::component(SCHEMA);
    let record = {
        let registry = open(&dir);
        let ticket = name("acme/ticket");
        let record = registry.upload(&ticket, &version("1.0.0"), &bytes).unwrap();
        assert_eq!(record.digest, digest(&bytes));
        assert_eq!(record.size, bytes.len() as u64);
        assert_eq!(
            record.params,
            serde_json::from_str::<serde_json::Value>(SCHEMA).unwrap()
        );
        assert_eq!((record.on_late.as_str(), record.stock), ("hold", false));
        let again = registry.upload(&ticket, &version("1.0.0"), &bytes).unwrap();
        assert_eq!(again, record);
        record
    };
    let registry = open(&dir);
    assert_eq!(registry.list().unwrap(), vec![record.clone()]);
    let resolved = registry
        .resolve(&name("acme/ticket"), &selector("^1"))
        .unwrap();
    assert_eq!(resolved.record, record);
    assert_eq!(resolved.plugin.digest(), record.digest);
}

#[test]
fn versions_never_change() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let ticket = name("acme/ticket");
    let (one, two) = (guest::component(SCHEMA), guest::component(OTHER));
    registry.upload(&ticket, &version("1.0.0"), &one).unwrap();
    let error = registry
        .upload(&ticket, &version("1.0.0"), &two)
        .unwrap_err();
    assert!(matches!(&error, RegistryError::VersionTaken { digest: d, .. } if *d == digest(&one)));
    registry.upload(&ticket, &version("1.1.0"), &two).unwrap();
    registry
        .upload(&ticket, &version("2.0.0-rc.1"), &two)
        .unwrap();
    for (selector_text, expected) in [("latest", "1.1.0"), ("=1.0.0", "1.0.0"), ("1", "1.1.0")] {
        let resolved = registry.resolve(&ticket, &selector(selector_text)).unwrap();
        assert_eq!(
            resolved.record.version,
            version(expected),
            "{selector_text}"
        );
    }
    let shown: Vec<String> = registry
        .show(&ticket)
        .unwrap()
        .into_iter()
        .map(|record| record.version.to_string())
        .collect();
    assert_eq!(shown, ["2.0.0-rc.1", "1.1.0", "1.0.0"]);
}

#[test]
fn what_is_refused_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let bytes = guest::component(SCHEMA);
    registry
        .upload(&name("acme/ticket"), &version("1.0.0"), &bytes)
        .unwrap();
    let refused = |plugin: &str, v: &str, bytes: &[u8]| {
        let result = registry.upload(&name(plugin), &version(v), bytes);
        result.unwrap_err().to_string()
    };
    for (error, expected) in [
        (refused("formwork/regex", "1.0.0", &bytes), "kept for"),
        (refused("acme/ticket", "1.0.0+b2", &bytes), "build metadata"),
        (
            registry
                .resolve(&name("acme/tiket"), &Selector::Latest)
                .err()
                .unwrap()
                .to_string(),
            "acme/ticket",
        ),
        (
            registry
                .resolve(&name("acme/ticket"), &selector("2"))
                .err()
                .unwrap()
                .to_string(),
            "it has 1.0.0",
        ),
        (
            registry
                .delete(&name("acme/ticket"), &version("1.0.1"))
                .unwrap_err()
                .to_string(),
            "=1.0.1",
        ),
    ] {
        assert!(
            error.contains(expected),
            "{error:?} does not say {expected:?}"
        );
    }
    let result = registry.upload(&name("acme/bad"), &version("1.0.0"), b"\0asm nonsense");
    assert!(matches!(result, Err(RegistryError::Admission(_))));
    assert_eq!(blob_files(&dir).len(), 1, "a refused upload left a file");
}

#[test]
fn what_is_in_use_is_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let (ticket, v1) = (name("acme/ticket"), version("1.0.0"));
    let bytes = guest::component(SCHEMA);
    registry.upload(&ticket, &v1, &bytes).unwrap();
    registry.upload(&name("acme/other"), &v1, &bytes).unwrap();
    let resolved = registry.resolve(&ticket, &Selector::Latest).unwrap();
    let clone = resolved.clone();
    drop(resolved);
    assert!(matches!(
        registry.delete(&ticket, &v1),
        Err(RegistryError::InUse { uses: 1, .. })
    ));
    drop(clone);
    registry.delete(&ticket, &v1).unwrap();
    assert_eq!(
        blob_files(&dir).len(),
        1,
        "the other plugin holds the same component"
    );
    registry.delete(&name("acme/other"), &v1).unwrap();
    assert_eq!(blob_files(&dir), Vec::<String>::new());
    assert_eq!(registry.list().unwrap(), vec![]);
}

#[test]
fn a_damaged_component_is_noticed_and_mended_by_uploading_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let (ticket, v1) = (name("acme/ticket"), version("1.0.0"));
    let bytes = guest::component(SCHEMA);
    let path = {
        let record = open(&dir).upload(&ticket, &v1, &bytes).unwrap();
        dir.path()
            .join("blobs")
            .join(format!("{}.wasm", record.digest))
    };
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    fs::write(&path, damaged).unwrap();
    let registry = open(&dir);
    let result = registry.resolve(&ticket, &Selector::Latest);
    assert!(matches!(result, Err(RegistryError::Damaged { .. })));
    registry.upload(&ticket, &v1, &bytes).unwrap();
    registry.resolve(&ticket, &Selector::Latest).unwrap();
}

#[test]
fn what_a_crash_left_is_swept_and_the_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = guest::component(SCHEMA);
    let registry = open(&dir);
    registry
        .upload(&name("acme/ticket"), &version("1.0.0"), &bytes)
        .unwrap();
    let second = Registry::open(dir.path(), sandbox());
    assert!(matches!(second, Err(RegistryError::Locked(_))));
    drop(registry);
    for left in ["ffff.wasm", ".tmpAbC"] {
        fs::write(dir.path().join("blobs").join(left), b"half").unwrap();
    }
    let registry = open(&dir);
    assert_eq!(blob_files(&dir), [format!("{}.wasm", digest(&bytes))]);
    registry
        .resolve(&name("acme/ticket"), &Selector::Latest)
        .unwrap();
}

#[test]
fn stock_plugins_come_from_files_that_say_their_name() {
    let (dir, stock) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = open(&dir);
    let bytes = guest::component(SCHEMA);
    let put = |file: &str| fs::write(stock.path().join(file), &bytes).unwrap();
    put("formwork--json-schema@1.0.0.wasm");
    put("README.txt");
    let loaded = registry.load_stock(stock.path()).unwrap();
    assert_eq!(loaded.len(), 1);
    assert!(loaded[0].stock);
    let resolved = registry
        .resolve(&name("formwork/json-schema"), &selector("1"))
        .unwrap();
    assert_eq!(resolved.record, loaded[0]);
    let deleted = registry.delete(&name("formwork/json-schema"), &version("1.0.0"));
    assert!(matches!(deleted, Err(RegistryError::Reserved(_))));
    for bad in ["json-schema.wasm", "acme--ticket@1.0.0.wasm"] {
        put(bad);
        let error = registry.load_stock(stock.path()).unwrap_err().to_string();
        assert!(error.contains(bad), "{error}");
        fs::remove_file(stock.path().join(bad)).unwrap();
    }
}

#[test]
fn racing_uploads_of_one_version_agree_on_one() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let (ticket, v1) = (name("acme/ticket"), version("1.0.0"));
    let components = [guest::component(SCHEMA), guest::component(OTHER)];
    let results: Vec<Result<PluginRecord, RegistryError>> = std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..8)
            .map(|i| {
                scope.spawn({
                    let (registry, ticket, v1, bytes) =
                        (&registry, &ticket, &v1, &components[i % 2]);
                    move || registry.upload(ticket, v1, bytes)
                })
            })
            .collect();
        uploads
            .into_iter()
            .map(|upload| upload.join().unwrap())
            .collect()
    });
    let winner = registry.resolve(&ticket, &Selector::Latest).unwrap().record;
    for result in results {
        match result {
            Ok(record) => assert_eq!(record, winner),
            Err(RegistryError::VersionTaken { digest, .. }) => assert_eq!(digest, winner.digest),
            Err(error) => panic!("{error}"),
        }
    }
    let kept = format!("{}.wasm", winner.digest);
    assert_eq!(blob_files(&dir), [kept]);
}
