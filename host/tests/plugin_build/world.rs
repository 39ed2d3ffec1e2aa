//! The stock plugins, built once for all tests here, and a sandbox for them.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use formwork::build::build;
use formwork_sandbox::{
    GrammarLimits, Grammars, GuestError, OpenRequest, Plugin, Sandbox, SandboxLimits, Session,
    TokenId, Vocabulary,
};
use serde_json::Value;
use toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

/// A component as it was built.
pub(crate) struct Stock {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) digest: String,
    pub(crate) bytes: Vec<u8>,
}

/// Every plugin of the workspace, by name.
pub(crate) fn stock() -> &'static [Stock] {
    static BUILT: OnceLock<Vec<Stock>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins");
        let entries = std::fs::read_dir(plugins).unwrap();
        let mut crates: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        crates.sort();
        let out = tempfile::tempdir().unwrap();
        let built = build(&crates, Some(out.path())).unwrap();
        let built = built.into_iter().map(|plugin| Stock {
            name: plugin.name.to_string(),
            size: plugin.size,
            digest: plugin.digest,
            bytes: std::fs::read(&plugin.path).unwrap(),
        });
        built.collect()
    })
}

/// Bytes, pieces that span the seams of JSON, and one end token; the longest piece comes first.
pub(crate) fn vocabulary() -> Vocabulary {
    struct Greedy(TokTrie);
    impl TokenizerEnv for Greedy {
        fn tok_trie(&self) -> &TokTrie {
            &self.0
        }
        fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
            self.0.greedy_tokenize(text)
        }
    }
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let pieces = [
        "{\"", "\":", "\":\"", "\",\"", ",\"", "\"}", "[1", "1,", ",1", "1]", "},{", "true",
        "true,", "a\":", "12", "\"b",
    ];
    words.extend(pieces.iter().map(|piece| piece.as_bytes().to_vec()));
    words.push(b"\xFF<|end|>".to_vec());
    let end = words.len() as u32 - 1;
    let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
    Vocabulary::new("pieces", Arc::new(Greedy(trie)), end + 1, vec![end]).unwrap()
}

pub(crate) fn sandbox() -> Sandbox {
    let grammars = Grammars::new(Arc::new(vocabulary()), GrammarLimits::default()).unwrap();
    Sandbox::new(grammars, SandboxLimits::default()).unwrap()
}

/// A stock plugin, admitted to a sandbox of its own.
pub(crate) fn admitted(name: &str) -> Plugin {
    let found = stock().iter().find(|plugin| plugin.name == name);
    sandbox().admit(&found.unwrap().bytes).unwrap()
}

pub(crate) fn open(plugin: &Plugin, params: &Value) -> Result<Session, GuestError> {
    plugin.open(&OpenRequest {
        params: params.to_string(),
        prompt: Vec::new().into(),
        max_tokens: 400,
        request_id: "test".into(),
    })
}
