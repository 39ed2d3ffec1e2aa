//! The official JSON-Schema-Test-Suite through the whole path: the mask, then the validator.
//!
//! An instance counts as accepted when some spelling of it (compact, in some order of its keys) can be
//! written under the mask and passes validation. Cases that go wrong are named in `baseline.json`, which
//! may only shrink; `FORMWORK_UPDATE_BASELINE=1` takes out what was mended.

// Tests may panic; the lint's own exception knows test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod spelling;

use formwork_sandbox::{
    FailureKind, Formats, Grammar, GrammarLimits, Grammars, Schema, Source, Vocabulary,
};
use serde_json::{Value, json};
use spelling::spellings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DRAFTS: [(&str, &str); 2] = [
    (
        "draft2020-12",
        "https://json-schema.org/draft/2020-12/schema",
    ),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
];

#[derive(Default)]
struct Tally {
    cases: usize,
    failed: BTreeSet<String>,
    refused: usize,
}

#[test]
fn the_official_suite() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = here.join("../../../shared/data/json-schema-test-suite");
    if !suite.is_dir() {
        println!("skipped: {} is not there", suite.display());
        return;
    }
    let mut found = BTreeMap::new();
    for (draft, uri) in DRAFTS {
        let grammars = grammars(documents(&suite.join("remotes")));
        for kind in ["required", "optional"] {
            let tests = suite.join("tests").join(draft);
            let folder = if kind == "optional" {
                tests.join("optional")
            } else {
                tests
            };
            let mut tally = Tally::default();
            for file in files(&folder, kind == "optional") {
                run(&grammars, &file, &folder, uri, &mut tally);
            }
            println!(
                "{draft} {kind}: {} of {} cases right, {} in schemas that were refused",
                tally.cases - tally.failed.len(),
                tally.cases,
                tally.refused
            );
            found.insert(format!("{draft} {kind}"), tally.failed);
        }
    }
    compare(&here.join("tests/suite/baseline.json"), &found);
}

fn compare(path: &Path, found: &BTreeMap<String, BTreeSet<String>>) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| "{}".into());
    let mut known: BTreeMap<String, BTreeSet<String>> = serde_json::from_str::<Value>(&text)
        .map(|value| serde_json::from_value(value).unwrap())
        .unwrap();
    let fresh = known.is_empty();
    let (mut worse, mut mended) = (Vec::new(), Vec::new());
    for (part, failed) in found {
        let before = known.entry(part.clone()).or_default();
        worse.extend(failed.difference(before).cloned());
        mended.extend(before.difference(failed).cloned());
        if fresh {
            before.extend(failed.iter().cloned());
        }
        before.retain(|case| failed.contains(case));
    }
    if std::env::var_os("FORMWORK_UPDATE_BASELINE").is_some() {
        std::fs::write(path, serde_json::to_string_pretty(&known).unwrap() + "\n").unwrap();
        mended.clear();
        if fresh {
            worse.clear();
        }
    }
    assert!(worse.is_empty(), "these cases went wrong: {worse:#?}");
    assert!(
        mended.is_empty(),
        "these cases are right now; take them out with FORMWORK_UPDATE_BASELINE=1: {mended:#?}"
    );
}

fn grammars(documents: BTreeMap<String, Value>) -> Arc<Grammars> {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let vocabulary = Arc::new(Vocabulary::new("bytes", env, 300, vec![260, 261]).unwrap());
    Grammars::with_documents(vocabulary, GrammarLimits::default(), documents).unwrap()
}

/// The suite's remote documents, under the address that the suite gives them.
fn documents(folder: &Path) -> BTreeMap<String, Value> {
    let mut documents = BTreeMap::new();
    for file in files(folder, true) {
        let name = file.strip_prefix(folder).unwrap().to_str().unwrap();
        documents.insert(format!("http://localhost:1234/{name}"), read(&file));
    }
    documents
}

fn files(folder: &Path, deep: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && deep {
            found.extend(files(&path, true));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn run(grammars: &Grammars, file: &Path, folder: &Path, draft: &str, tally: &mut Tally) {
    let name = file.strip_prefix(folder).unwrap().display();
    for group in read(file).as_array().unwrap() {
        let mut schema = group["schema"].clone();
        if let Value::Object(map) = &mut schema {
            map.entry("$schema").or_insert_with(|| json!(draft));
        }
        let source = Schema {
            formats: formats(file, folder),
            ..schema.to_string().into()
        };
        let compiled = grammars.compile(&Source::JsonSchema(source));
        for test in group["tests"].as_array().unwrap() {
            tally.cases += 1;
            let accepted = match &compiled {
                Ok(grammar) => Some(accepts(grammar, &test["data"])),
                Err(failure) if failure.kind == FailureKind::Unsatisfiable => Some(false),
                Err(failure) => {
                    println!("{name}: {}: {failure}", group["description"]);
                    tally.refused += 1;
                    None
                }
            };
            if accepted != test["valid"].as_bool() {
                let case = |value: &Value| value.as_str().unwrap().to_owned();
                let (group, test) = (case(&group["description"]), case(&test["description"]));
                tally.failed.insert(format!("{name}: {group}: {test}"));
            }
        }
    }
}

/// What the standard leaves to choice is asserted, but where the suite tests what holds if nobody chose.
fn formats(file: &Path, folder: &Path) -> Formats {
    match folder.ends_with("draft2020-12") && file.ends_with("format.json") {
        true => Formats::Annotated,
        false => Formats::Asserted,
    }
}

fn accepts(grammar: &Arc<Grammar>, value: &Value) -> bool {
    spellings(value).iter().any(|text| {
        let mut matcher = grammar.start();
        let written = text.bytes().all(|byte| matcher.commit(byte.into()).is_ok());
        written && matcher.accepting() && grammar.validate(text.as_bytes()).is_ok()
    })
}
