//! Plugins at fault, and clients that leave while a plugin works.

use std::time::Duration;

use serde_json::json;

use crate::guest;
use crate::house::{House, chat_body, stock_plugins};

/// A chat request through a plugin, as bytes.
fn request(plugin: &serde_json::Value) -> Vec<u8> {
    let options = json!({"plugin": plugin, "stream": true, "max_tokens": 60, "n": 2});
    let body = chat_body(options).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

#[test]
fn a_plugin_that_traps_costs_its_own_request_only() {
    let house = House::new();
    let component = guest::component(r#"{"type":"object"}"#);
    let record = house.upload("acme/trap", "0.1.0", &component);
    assert_eq!(record.status, 201, "{}", record.text);
    for stream in [false, true] {
        let reply = house.chat(json!({"plugin": {"name": "acme/trap"}, "stream": stream}));
        let (status, code, _) = reply.error();
        assert_eq!(
            (status, code.as_str()),
            (502, "plugin_trap"),
            "{}",
            reply.text
        );
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "plugin_error");
        let plugin = json!({
            "name": "acme/trap", "version": "0.1.0",
            "digest": record.json()["digest"], "step": 0,
        });
        assert_eq!(error["plugin"], plugin);
    }
    assert_eq!(house.chat(json!({})).status, 200);
    let metrics = house.get("/metrics").text;
    let line = "formwork_session_failures_total{kind=\"trap\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    assert_eq!(
        house.delete("/v1/plugins/acme/trap/0.1.0").status,
        200,
        "no use is left"
    );
}

#[test]
fn clients_that_leave_while_a_format_is_compiled_leave_nothing() {
    let Some(dir) = stock_plugins() else { return };
    let bytes = std::fs::read(dir.join("formwork--json-schema@1.0.0.wasm")).unwrap();
    let house = House::new();
    assert_eq!(house.upload("acme/json", "1.0.0", &bytes).status, 201);
    for round in 0..100_u64 {
        // Another schema each time, so that each is compiled.
        let schema = json!({
            "type": "object", "required": [format!("k{round}")],
            "properties": {format!("k{round}"): {"type": "string", "pattern": "[a-z ]{3,40}"}},
        });
        let plugin = json!({"name": "acme/json", "params": {"schema": schema}});
        let connection = house.send(&request(&plugin));
        std::thread::sleep(Duration::from_micros(round % 25 * 800));
        drop(connection);
    }
    house.wait("the last use to end", |house| {
        house.delete("/v1/plugins/acme/json/1.0.0").status == 200
    });
    house.settle();
    let stats = house.app.engine.stats();
    assert_eq!(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
}
