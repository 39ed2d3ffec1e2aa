//! Plugins over HTTP: publish, use, list, delete; answers with fields; failures with their plugin.

use serde_json::{Value, json};

use crate::house::{House, chat_body, stock_plugins};

const JSON_SCHEMA: &str = "formwork--json-schema@1.0.0.wasm";

/// A server with the stock plugins, if they are built.
fn stocked() -> Option<House> {
    let dir = stock_plugins()?;
    Some(House::with(|config| config.plugins_dir = Some(dir)))
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn a_plugin_is_published_used_and_deleted() {
    let Some(dir) = stock_plugins() else { return };
    let bytes = std::fs::read(dir.join("formwork--choice@1.0.0.wasm")).unwrap();
    let house = House::new();
    let record = house.upload("acme/pick", "1.2.0", &bytes);
    assert_eq!(record.status, 201, "{}", record.text);
    let record = record.json();
    assert_eq!(
        (&record["name"], &record["version"]),
        (&json!("acme/pick"), &json!("1.2.0"))
    );
    assert_eq!(
        house.upload("acme/pick", "1.2.0", &bytes).json()["digest"],
        record["digest"]
    );
    assert_eq!(house.get("/v1/plugins").json()["data"], json!([record]));
    assert_eq!(
        house.get("/v1/plugins/acme/pick").json()["data"],
        json!([record])
    );
    assert_eq!(house.get("/v1/plugins/acme/pick/1.2.0").json(), record);
    assert_eq!(
        house.get("/v1/plugins/acme/pick/9.0.0").error().1,
        "plugin_version_not_found"
    );

    let plugin =
        json!({"name": "acme/pick", "version": "^1", "params": {"choices": ["yes", "no"]}});
    let answer = house.chat(json!({"plugin": plugin})).json();
    let text = content(&answer);
    assert!(["yes", "no"].contains(&text), "{answer}");
    let own = &answer["formwork"];
    let expected = json!({"name": "acme/pick", "version": "1.2.0", "digest": record["digest"]});
    assert_eq!(own["plugin"], expected);
    assert_eq!(own["completed"], true);
    assert_eq!(own["fields"][0]["value"], text);
    assert_eq!(own["fields"][0]["verified"], true);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");

    let (status, code, _) = house.upload("formwork/x", "1.0.0", &bytes).error();
    assert_eq!((status, code.as_str()), (403, "reserved_namespace"));
    house.settle();
    house.wait("the use to end", |house| {
        house.delete("/v1/plugins/acme/pick/1.2.0").status == 200
    });
    assert_eq!(
        house.get("/v1/plugins/acme/pick").error().1,
        "plugin_not_found"
    );
}

#[test]
fn uploads_are_checked() {
    let house = House::with(|config| config.limits.max_plugin_bytes = 1 << 20);
    let check = |reply: crate::house::Reply, expected: (u16, &str)| {
        let (status, code, _) = reply.error();
        assert_eq!((status, code.as_str()), expected, "{}", reply.text);
    };
    check(
        house.upload("acme/x", "1.0.0", b"junk"),
        (400, "plugin_rejected"),
    );
    check(
        house.upload("acme", "1.0.0", b"junk"),
        (400, "invalid_value"),
    );
    check(
        house.upload("acme/x", "one", b"junk"),
        (400, "invalid_value"),
    );
    check(
        house.upload("acme/x", "1.0.0", &vec![0; (1 << 20) + 1]),
        (413, "body_too_large"),
    );
    let head =
        "POST /v1/plugins?name=acme/x&vresion=1.0.0 HTTP/1.1\r\ncontent-type: application/wasm";
    check(house.raw(head, b"junk"), (400, "missing_field"));
    let head = "POST /v1/plugins?name=acme/x&version=1.0.0&force=1 HTTP/1.1\r\ncontent-type: application/wasm";
    check(house.raw(head, b"junk"), (400, "unknown_field"));
    let head = "POST /v1/plugins?name=acme/x&version=1.0.0 HTTP/1.1\r\ncontent-type: text/html";
    check(house.raw(head, b"junk"), (415, "unsupported_media_type"));
    check(
        house.delete("/v1/plugins/acme/x/1.0.0"),
        (404, "plugin_not_found"),
    );
}

#[test]
fn response_format_selects_the_stock_plugin() {
    let Some(house) = stocked() else { return };
    let schema = json!({
        "type": "object",
        "properties": {"z": {"enum": ["red", "blue"]}, "a": {"type": "boolean"}},
        "required": ["z", "a"], "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let body = json!({"response_format": format, "max_tokens": 100, "n": 2, "logprobs": true});
    let answer = house.chat(body.clone()).json();
    for choice in answer["choices"].as_array().unwrap() {
        let text = choice["message"]["content"].as_str().unwrap();
        assert!(
            text.starts_with("{\"z\":"),
            "the schema's order is kept: {text}"
        );
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(value["a"].is_boolean(), "{value}");
        assert_eq!(choice["finish_reason"], "stop");
        let tokens = choice["logprobs"]["content"].as_array().unwrap();
        assert!(tokens.iter().any(|token| token["forced"] == true));
    }
    assert_eq!(answer["formwork"]["plugin"]["name"], "formwork/json-schema");
    let forced = answer["formwork"]["usage"]["forced"].as_u64().unwrap();
    assert!(
        forced > 10,
        "keys and punctuation are not sampled: {answer}"
    );

    let mut streamed = body;
    streamed["stream"] = json!(true);
    let (events, done) = house.chat(streamed).events();
    assert!(done);
    let text: String = events
        .iter()
        .filter(|event| event["choices"][0]["index"] == 0)
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, content(&answer));
    // All but the time that they took.
    let fields = |answer: &Value| {
        let mut fields = answer["formwork"]["fields"].as_array().unwrap().clone();
        fields
            .iter_mut()
            .for_each(|field| field["ms"] = Value::Null);
        fields
    };
    assert_eq!(fields(events.last().unwrap()), fields(&answer));
}

#[test]
fn an_output_that_was_cut_says_so() {
    let Some(house) = stocked() else { return };
    let plugin = json!({"name": "formwork/regex", "params": {"pattern": "[a-z]{50}"}});
    let reply = house.chat(json!({"plugin": plugin, "max_tokens": 5}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["formwork"]["completed"], false);
    assert_eq!(content(&answer).len(), 5);
}

#[test]
fn params_are_checked_before_anything_runs() {
    let Some(house) = stocked() else { return };
    let check = |name: &str, params: Value, expected: (u16, &str, &str)| {
        let plugin = json!({"name": name, "params": params});
        let reply = house.chat(json!({"plugin": plugin}));
        let (status, code, param) = reply.error();
        assert_eq!(
            (status, code.as_str(), param.as_str()),
            expected,
            "{}",
            reply.text
        );
        let plugin = &reply.json()["error"]["plugin"];
        assert_eq!(plugin["name"], name);
        assert_eq!(plugin["digest"].as_str().unwrap().len(), 64);
        assert_eq!(plugin["step"], 0);
        reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let wrong = (400, "invalid_params", "plugin.params");
    let message = check("formwork/choice", json!({"choices": [1]}), wrong);
    assert!(message.contains("at plugin.params/choices/0"), "{message}");
    check("formwork/regex", json!({}), wrong);
    check("formwork/regex", json!({"pattern": "a", "more": 1}), wrong);
    assert_eq!(house.app.engine.stats().steps, 0);
}

#[test]
fn formats_that_cannot_work_fail_with_their_plugin() {
    let Some(house) = stocked() else { return };
    for stream in [false, true] {
        let plugin = json!({"name": "formwork/regex", "params": {"pattern": "(unclosed"}});
        let reply = house.chat(json!({"plugin": plugin, "stream": stream}));
        let (status, code, _) = reply.error();
        assert_eq!(
            (status, code.as_str()),
            (400, "invalid_params"),
            "{}",
            reply.text
        );
        assert_eq!(reply.json()["error"]["plugin"]["name"], "formwork/regex");
        let schema = json!({"type": "string", "enum": []});
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let reply = house.chat(json!({"response_format": format, "stream": stream}));
        assert_eq!(reply.error().0, 422, "{}", reply.text);
        assert_eq!(reply.error().1, "unsatisfiable");
    }
    assert_eq!(house.chat(json!({})).status, 200, "the next request works");
}

#[test]
fn a_plugin_in_use_is_not_deleted() {
    let Some(dir) = stock_plugins() else { return };
    let bytes = std::fs::read(dir.join(JSON_SCHEMA)).unwrap();
    let house = House::new();
    assert_eq!(house.upload("acme/json", "1.0.0", &bytes).status, 201);
    let schema = json!({"type": "string", "minLength": 3000});
    let plugin = json!({"name": "acme/json", "params": {"schema": schema}});
    let options = json!({"plugin": plugin, "stream": true, "max_tokens": 3500});
    let body = chat_body(options).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let running = house.send((head + &body).as_bytes());
    house.wait("a running sequence", |house| {
        house.app.engine.stats().running > 0
    });
    let (status, code, _) = house.delete("/v1/plugins/acme/json/1.0.0").error();
    assert_eq!((status, code.as_str()), (409, "plugin_in_use"));
    drop(running);
    house.settle();
    house.wait("the use to end", |house| {
        house.delete("/v1/plugins/acme/json/1.0.0").status == 200
    });
}
