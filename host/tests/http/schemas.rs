//! JSON Schemas over HTTP: what is enforced and by what, how values are written, and retries.

use serde_json::{Value, json};

use crate::house::{House, stock_plugins};

fn house() -> Option<House> {
    let dir = stock_plugins()?;
    Some(House::with(|config| config.plugins_dir = Some(dir)))
}

fn format(json_schema: Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": json_schema}, "max_tokens": 120})
}

/// The only answer's text and the only field's report.
fn answer(house: &House, request: Value) -> (String, Value, Value) {
    let reply = house.chat(request);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let mut answer = reply.json();
    let text = answer["choices"][0]["message"]["content"].as_str();
    let text = text.unwrap().to_owned();
    let field = answer["formwork"]["fields"][0].take();
    assert_eq!(field["value"], text, "the value is the whole answer");
    (text, field, answer["formwork"]["usage"].take())
}

#[test]
fn what_masks_leave_open_is_validated_and_written_again() {
    let Some(house) = house() else { return };
    let schema = json!({
        "type": "array", "items": {"enum": [0, 1, 2]}, "minItems": 2, "maxItems": 3, "uniqueItems": true,
        "not": {"contains": {"const": 2}},
    });
    let mut retried = 0;
    for seed in 0..6 {
        let mut request = format(json!({"schema": schema, "attempts": 32}));
        request["seed"] = json!(seed);
        let (text, field, usage) = answer(&house, request);
        assert!(["[0,1]", "[1,0]"].contains(&text.as_str()), "{text}");
        assert_eq!(field["verified"], true);
        let enforced = &field["enforced"];
        assert_eq!(enforced["validation"], json!(["/not", "/uniqueItems"]));
        assert_eq!(
            enforced["mask"],
            json!(["/items", "/items/enum", "/maxItems", "/minItems", "/type"])
        );
        assert_eq!(enforced.get("more"), None);
        let attempts = field["attempts"].as_u64().unwrap();
        let count = |name: &str| usage[name].as_u64().unwrap();
        assert_eq!(attempts > 1, count("retracted") > 0, "{field} {usage}");
        // Each attempt draws at least one token.
        assert!(
            count("sampled") >= attempts && count("computed") >= attempts,
            "{usage}"
        );
        retried += attempts - 1;
    }
    assert!(retried > 0, "no value was refused");
}

#[test]
fn strict_refuses_what_masks_leave_open() {
    let Some(house) = house() else { return };
    let open =
        json!({"properties": {"a/b": {"uniqueItems": true}}, "not": {"required": ["c", "d"]}});
    let reply = house.chat(format(json!({"schema": open, "strict": true})));
    let place = "response_format.json_schema".to_owned();
    assert_eq!(reply.error(), (422, "unsatisfiable".to_owned(), place));
    for pointer in ["/properties/a~1b/uniqueItems", "/not"] {
        assert!(reply.text.contains(pointer), "{}", reply.text);
    }
    let whole = json!({"const": {"a": 1}});
    let (text, ..) = answer(&house, format(json!({"schema": whole, "strict": true})));
    assert_eq!(text, r#"{"a":1}"#);
}

#[test]
fn values_are_written_as_the_request_says() {
    let Some(house) = house() else { return };
    let point = json!({
        "type": "object", "properties": {"x": {"const": 1}, "y": {"const": 2}}, "required": ["x", "y"],
        "additionalProperties": false,
    });
    let write = |request: Value| answer(&house, request).0;
    let (compact, spaced) = (r#"{"x":1,"y":2}"#, r#"{"x": 1, "y": 2}"#);
    assert_eq!(write(format(json!({"schema": point}))), compact);
    assert_eq!(
        write(format(json!({"schema": point, "spacing": "spaced"}))),
        spaced
    );
    let structured = |extra: Value| {
        let mut structured = extra;
        structured["json"] = point.clone();
        write(json!({"structured_outputs": structured, "max_tokens": 60}))
    };
    assert_eq!(structured(json!({"disable_any_whitespace": true})), compact);
    assert_eq!(structured(json!({"disable_any_whitespace": false})), spaced);
    assert_eq!(structured(json!({"whitespace_pattern": "\\s*"})), spaced);
    let params = json!({
        "schema": {"$ref": "https://example.com/point"}, "documents": {"https://example.com/point": point},
        "key_order": "any",
    });
    let plugin = json!({"name": "formwork/json-schema", "params": params});
    let text = write(json!({"plugin": plugin, "max_tokens": 60}));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value, json!({"x": 1, "y": 2}));
    let lost = format(json!({"schema": {"$ref": "https://example.com/lost"}}));
    let reply = house.chat(lost);
    assert_eq!(reply.error().0, 400);
    assert!(
        reply.text.contains("https://example.com/lost"),
        "{}",
        reply.text
    );
    let bad =
        json!({"name": "formwork/json-schema", "params": {"schema": true, "spacing": "wide"}});
    let reply = house.chat(json!({"plugin": bad}));
    assert_eq!(
        reply.error(),
        (400, "invalid_params".to_owned(), "plugin.params".to_owned())
    );
    assert!(
        reply.text.contains("plugin.params/spacing"),
        "{}",
        reply.text
    );
}

#[test]
fn what_enforces_a_schema_is_told_of_schemas_only_and_in_bounds() {
    let Some(house) = house() else { return };
    let regex = json!({"structured_outputs": {"regex": "ab"}});
    let (_, field, _) = answer(&house, regex);
    assert_eq!(field.get("enforced"), None);
    let properties: serde_json::Map<_, _> = (0..100)
        .map(|index| (format!("p{index}"), json!({"type": "null"})))
        .collect();
    let many = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let (_, field, _) = answer(&house, format(json!({"schema": many})));
    let enforced = &field["enforced"];
    assert_eq!(enforced["mask"].as_array().unwrap().len(), 64);
    // The types of 100 properties, and three keywords of the object.
    assert_eq!(enforced["more"], json!({"mask": 39}), "{enforced}");
    assert_eq!(enforced["validation"], json!([]));
    // A stream's event has the same report.
    let mut request = format(json!({"schema": {"const": 7}}));
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_fields": true});
    let reply = house.chat(request);
    let event = reply.text.split("event: field\ndata: ").nth(1).unwrap();
    let field: Value = serde_json::from_str(event.split("\n\n").next().unwrap()).unwrap();
    assert_eq!(
        field["enforced"],
        json!({"mask": ["/const"], "validation": []})
    );
}

#[test]
fn tools_and_tags_tell_what_enforces_their_schemas() {
    let Some(house) = house() else { return };
    let schema = json!({"type": "array", "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8]}, "maxItems": 2, "uniqueItems": true});
    let parameters = json!({"type": "object", "properties": {"n": schema}, "required": ["n"], "additionalProperties": false});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let reply = house.chat(json!({
        "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 200,
    }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let field = &reply.json()["formwork"]["fields"][0];
    assert_eq!(field["name"], "f");
    assert_eq!(
        field["enforced"]["validation"],
        json!(["/properties/n/uniqueItems"])
    );
    let tag = json!({
        "type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"const": 1}}, "end": "</n>",
    });
    let tag = json!({"type": "structural_tag", "format": tag});
    let reply = house.chat(json!({"response_format": tag, "max_tokens": 40}));
    let field = &reply.json()["formwork"]["fields"][0];
    assert_eq!(
        field["enforced"],
        json!({"mask": ["/const"], "validation": []})
    );
}

#[test]
fn stop_strings_end_the_text_before_a_call_and_never_a_call() {
    let Some(house) = house() else { return };
    let parameters = json!({"const": {"city": "END"}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let ask = |change: Value| {
        let mut request = json!({"tools": [tool], "max_tokens": 100});
        for (key, value) in change.as_object().into_iter().flatten() {
            request[key] = value.clone();
        }
        let reply = house.chat(request);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["choices"][0].take()
    };
    let called = ask(json!({
        "tool_choice": "required", "parallel_tool_calls": false, "stop": ["END", "\n", "tool"],
    }));
    assert_eq!(called["finish_reason"], "tool_calls");
    let function = &called["message"]["tool_calls"][0]["function"];
    assert_eq!(function["arguments"], r#"{"city":"END"}"#);
    let letters = json!({"max_tokens": 12, "ignore_eos": true, "logit_bias": {"97": 60, "98": 60}});
    let free = ask(letters.clone());
    let free = free["message"]["content"].as_str().unwrap();
    let stop = &free[5..8];
    let mut stopping = letters;
    stopping["stop"] = json!(stop);
    let stopped = ask(stopping);
    assert_eq!(
        stopped["message"]["content"],
        free[..free.find(stop).unwrap()]
    );
    assert_eq!(stopped["finish_reason"], "stop");
}
