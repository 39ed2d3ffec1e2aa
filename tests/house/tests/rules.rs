//! The house rules.

use formwork_house::{packages, root, sources};

const MAX_FILE_LINES: usize = 400;

/// Fails with the whole list, not with its first line.
fn none(what: &str, offenders: Vec<String>) {
    assert!(
        offenders.is_empty(),
        "{what}:\n  {}",
        offenders.join("\n  ")
    );
}

#[test]
fn files_are_short_and_named_after_what_they_hold() {
    let files = sources("rs");
    assert!(
        files.len() > 20,
        "only {} source files were found",
        files.len()
    );
    let mut offenders = Vec::new();
    for (path, text) in files {
        let lines = text.lines().count();
        if lines > MAX_FILE_LINES {
            offenders.push(format!(
                "{}: {lines} lines, above {MAX_FILE_LINES}",
                path.display()
            ));
        }
        let vague = ["utils.rs", "util.rs", "common.rs", "helpers.rs", "misc.rs"];
        if vague.iter().any(|name| path.ends_with(name)) {
            offenders.push(format!("{}: a name that says nothing", path.display()));
        }
    }
    none("files", offenders);
}

/// What each crate may use of ours, and what it must never use of others'.
const FLOORS: &[(&str, &[&str], &[&str])] = &[
    (
        "formwork-engine",
        &[],
        &[
            "serde_json",
            "hyper",
            "axum",
            "tokio",
            "wasmtime",
            "candle-core",
            "rusqlite",
        ],
    ),
    (
        "formwork-kernels",
        &[],
        &["serde_json", "tokio", "wasmtime", "candle-core"],
    ),
    (
        "formwork-sandbox",
        &[],
        &["hyper", "axum", "tokio", "candle-core", "rusqlite"],
    ),
    (
        "formwork-model",
        &["formwork-engine", "formwork-kernels"],
        &["hyper", "axum", "tokio", "wasmtime", "rusqlite"],
    ),
    (
        "formwork",
        &[
            "formwork-engine",
            "formwork-kernels",
            "formwork-sandbox",
            "formwork-model",
        ],
        &["wasmtime", "candle-core"],
    ),
    ("formwork-plugin-sdk", &[], &["wasmtime", "tokio"]),
    ("formwork-house", &[], &["wasmtime", "tokio"]),
    (
        "formwork-fuzz",
        &[
            "formwork-engine",
            "formwork-sandbox",
            "formwork-plugin-grammar",
        ],
        &["wasmtime", "tokio", "candle-core"],
    ),
];

#[test]
fn crates_stay_on_their_floor() {
    let mut offenders = Vec::new();
    let packages = packages();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let floor = FLOORS.iter().find(|(crate_name, ..)| *crate_name == name);
        let guest: (&str, &[&str], &[&str]) =
            ("", &["formwork-plugin-sdk"], &["wasmtime", "tokio"]);
        let (_, ours, never) = floor.unwrap_or(&guest);
        for dependency in package["dependencies"].as_array().unwrap() {
            // Tests may reach wider.
            if dependency["kind"] == "dev" {
                continue;
            }
            let used = dependency["name"].as_str().unwrap();
            let foreign_room = used.starts_with("formwork") && !ours.contains(&used);
            if foreign_room || never.contains(&used) {
                offenders.push(format!("{name} uses {used}"));
            }
        }
    }
    for (name, ..) in FLOORS {
        assert!(
            packages.iter().any(|package| package["name"] == *name),
            "no crate {name}"
        );
    }
    none("floors", offenders);
}

/// Lines above an `unsafe` in which its `SAFETY:` may begin.
const SAFETY_LINES: usize = 12;

#[test]
fn each_unsafe_says_why_it_is_sound() {
    let mut offenders = Vec::new();
    for (path, text) in sources("rs") {
        if path.starts_with("tests/house") {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let opens = code.contains("unsafe {") || code.contains("unsafe impl");
            let above = &lines[index.saturating_sub(SAFETY_LINES)..=index];
            if opens && !above.iter().any(|line| line.contains("SAFETY:")) {
                offenders.push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    none("`unsafe` without SAFETY:", offenders);
}

#[test]
fn the_authoring_guide_names_every_function_of_the_contract() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let guide = read("docs/plugins.md");
    let wit = read("wit/plugin.wit");
    let mut names = Vec::new();
    for line in wit.lines().map(str::trim) {
        let resource = line.strip_prefix("resource ");
        let function = line.split_once(':').filter(|(_, rest)| {
            let rest = rest.trim_start();
            rest.starts_with("func(") || rest.starts_with("static func(")
        });
        let resource = resource.map(|rest| rest.split([' ', '{']).next().unwrap_or_default());
        names.extend(resource.or(function.map(|(name, _)| name)));
    }
    assert!(
        names.len() > 20,
        "the contract was not understood: {names:?}"
    );
    // In the contract's spelling or in Rust's.
    let missing = names
        .into_iter()
        .filter(|name| !guide.contains(*name) && !guide.contains(&name.replace('-', "_")));
    none(
        "docs/plugins.md does not mention",
        missing.map(str::to_owned).collect(),
    );
}

#[test]
fn files_name_no_place_of_one_machine() {
    let mut offenders = Vec::new();
    for extension in ["rs", "toml", "md", "py", "sh", "tmpl", "wit"] {
        for (path, text) in sources(extension) {
            if path.starts_with("tests/house") {
                continue;
            }
            // Homes and checkouts of whoever wrote it.
            for place in ["/root/", "/home/", "/work/", "/tmp/", "/Users/"] {
                if text.contains(place) {
                    offenders.push(format!("{}: {place}", path.display()));
                }
            }
        }
    }
    none("absolute paths", offenders);
}
