//! scratch
#![allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
use formwork_sandbox::*;
use std::sync::Arc;
#[path = "../../src/cli/bench/spelling.rs"]
mod spelling;
#[path = "../../src/cli/bench/search.rs"]
mod search;
fn main() {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let voc = Arc::new(Vocabulary::new("bytes", env, 300, vec![260, 261]).unwrap());
    let g = Grammars::new(voc, GrammarLimits::default()).unwrap();
    let path = std::env::args().nth(1).unwrap();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let gr = match g.compile(&Source::JsonSchema(case["schema"].to_string())) {
            Ok(g) => g,
            Err(e) => { println!("{name}: NOT COMPILED {:.400}", e.to_string()); continue; }
        };
        let order = spelling::KeyOrder::of(&case["schema"]);
        for (i, t) in case["tests"].as_array().unwrap().iter().enumerate() {
            let text = order.write(&t["data"]);
            let text = if t["valid"] == true || std::env::args().nth(2).is_some() { search::find(gr.start(), &t["data"], spelling::Numbers::of(&case["schema"])).unwrap_or(text) } else { text };
            let mut m = gr.start();
            let mut at = None;
            for (i, b) in text.bytes().enumerate() {
                if m.commit(b.into()).is_err() { at = Some(i); break; }
            }
            let valid = t["valid"] == true;
            let verdict = match at {
                Some(i) => Err(format!("mask at {i}: {} >>> {}", String::from_utf8_lossy(&text.as_bytes()[i.saturating_sub(160)..i]), String::from_utf8_lossy(&text.as_bytes()[i..(i+60).min(text.len())]))),
                None if !m.accepting() => Err("not accepting".to_owned()),
                None => gr.validate(text.as_bytes()).map_err(|e| format!("validator: {:.300}", e)),
            };
            if verdict.is_ok() != valid {
                println!("{name} {i} valid={valid} {:?}\n      unmasked {:.200}", verdict, format!("{:?}", gr.unmasked()));
            }
        }
    }
}
