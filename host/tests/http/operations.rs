//! Models and figures.

use serde_json::json;

use crate::house::{House, MODEL};

#[test]
fn the_model_is_listed() {
    let house = House::new();
    let models = house.get("/v1/models").json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], MODEL);
    assert_eq!(models["data"][0]["object"], "model");
    assert_eq!(
        models["data"][0]["max_model_len"],
        house.app.limits.max_context
    );
    assert_eq!(house.get("/ready").json(), json!({"status": "ready"}));
}

#[test]
fn figures_are_open_metrics() {
    let house = House::new();
    house.chat(json!({"max_tokens": 5, "ignore_eos": true}));
    house.chat(json!({"n": "many"}));
    house.settle();
    let reply = house.get("/metrics");
    let kind = reply.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let value = |line: &str| {
        let found = reply.text.lines().find_map(|text| text.strip_prefix(line));
        let found = found.unwrap_or_else(|| panic!("no {line} in\n{}", reply.text));
        found.trim().parse::<f64>().unwrap()
    };
    assert_eq!(value("formwork_unmasked_tokens_total"), 0.0);
    assert_eq!(value("formwork_sampled_tokens_total"), 5.0);
    assert_eq!(value("formwork_kv_blocks{state=\"leased\"}"), 0.0);
    assert!(value("formwork_kv_blocks{state=\"free\"}") > 0.0);
    assert_eq!(value("formwork_answers_total{kind=\"length\"}"), 1.0);
    assert_eq!(value("formwork_first_token_seconds_count"), 1.0);
    assert_eq!(value("formwork_inter_token_seconds_count"), 4.0);
    assert_eq!(value("formwork_sequences{state=\"running\"}"), 0.0);
    let route = "route=\"/v1/chat/completions\",method=\"POST\"";
    assert_eq!(
        value(&format!(
            "formwork_http_requests_total{{{route},status=\"200\"}}"
        )),
        1.0
    );
    assert_eq!(
        value(&format!(
            "formwork_http_requests_total{{{route},status=\"400\"}}"
        )),
        1.0
    );
    assert!(reply.text.ends_with("# EOF\n"));
}
