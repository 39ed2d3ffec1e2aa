//! Calls of tools, structural tags, and fields as events.

use serde_json::{Value, json};

use crate::house::{House, Reply, stock_plugins};

fn house() -> Option<House> {
    let dir = stock_plugins()?;
    Some(House::with(|config| config.plugins_dir = Some(dir)))
}

/// Two functions whose calls are short whatever the model likes.
fn tools() -> Value {
    let tool = |name: &str, values: Value| {
        let schema = json!({
            "type": "object", "properties": {"city": {"enum": values}}, "required": ["city"],
            "additionalProperties": false,
        });
        json!({"type": "function", "function": {"name": name, "description": "d", "parameters": schema}})
    };
    json!([
        tool("weather", json!(["Rome", "Oslo"])),
        tool("time", json!(["Bonn"]))
    ])
}

/// Name and arguments of each call of a whole answer.
fn calls(choice: &Value) -> Vec<(String, Value)> {
    let calls = choice["message"]["tool_calls"].as_array();
    let calls = calls.into_iter().flatten().map(|call| {
        assert_eq!(call["type"], "function");
        assert!(call["id"].as_str().unwrap().starts_with("call_"), "{call}");
        let function = &call["function"];
        let arguments = function["arguments"].as_str().unwrap();
        (
            function["name"].as_str().unwrap().to_owned(),
            serde_json::from_str(arguments).unwrap(),
        )
    });
    calls.collect()
}

#[test]
fn a_call_that_is_required_comes() {
    let Some(house) = house() else { return };
    for (choice, parallel) in [
        (json!("required"), false),
        (
            json!({"type": "function", "function": {"name": "time"}}),
            true,
        ),
    ] {
        let reply = house.chat(json!({
            "tools": tools(), "tool_choice": choice, "parallel_tool_calls": parallel, "max_tokens": 200,
        }));
        assert_eq!(reply.status, 200, "{}", reply.text);
        let answer = reply.json();
        let first = &answer["choices"][0];
        assert_eq!(first["finish_reason"], "tool_calls");
        assert_eq!(first["message"]["content"], Value::Null);
        let calls = calls(first);
        assert_eq!(calls.len(), 1);
        match calls[0].0.as_str() {
            "weather" if choice == "required" => {
                assert!(["Rome", "Oslo"].contains(&calls[0].1["city"].as_str().unwrap()))
            }
            "time" => assert_eq!(calls[0].1, json!({"city": "Bonn"})),
            other => panic!("{other} was called"),
        }
        assert_eq!(answer["formwork"]["completed"], true);
        assert_eq!(answer["formwork"]["plugin"]["name"], "formwork/tools");
        assert_eq!(answer["formwork"]["fields"][0]["name"], calls[0].0);
    }
}

/// The calls of one choice of a stream, put together as clients do it.
fn streamed_calls(events: &[Value], index: u64) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    let choices = events
        .iter()
        .flat_map(|event| event["choices"].as_array().unwrap());
    for choice in choices.filter(|choice| choice["index"] == index) {
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let at = call["index"].as_u64().unwrap() as usize;
            let function = &call["function"];
            if at == calls.len() {
                assert_eq!(
                    (&call["type"], &function["arguments"]),
                    (&json!("function"), &json!(""))
                );
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                calls.push((text(&call["id"]), text(&function["name"]), String::new()));
            } else {
                assert!(
                    call.get("id").is_none() && function.get("name").is_none(),
                    "{call}"
                );
                calls[at].2 += function["arguments"].as_str().unwrap();
            }
        }
    }
    calls
}

#[test]
fn calls_stream_name_first() {
    let Some(house) = house() else { return };
    let body = json!({"tools": tools(), "tool_choice": "required", "n": 2, "max_tokens": 400});
    let whole = house.chat(body.clone()).json();
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let (events, done) = house.chat(streamed).events();
    assert!(done);
    for index in 0..2 {
        let expected = &whole["choices"][index];
        let streamed = streamed_calls(&events, index as u64);
        let found = streamed.iter().map(|(_, name, arguments)| {
            (
                name.clone(),
                serde_json::from_str(arguments).unwrap_or(Value::Null),
            )
        });
        let mut found: Vec<_> = found.collect();
        let own = events.iter().map(|event| &event["choices"][0]);
        let own: Vec<&Value> = own.filter(|choice| choice["index"] == index).collect();
        assert_eq!(own[0]["delta"]["role"], "assistant");
        let reason = &own.last().unwrap()["finish_reason"];
        assert_eq!(*reason, expected["finish_reason"]);
        // One that was cut shows in a stream only.
        if reason == "length" {
            found.truncate(calls(expected).len());
        }
        assert_eq!(found, calls(expected));
    }
}

#[test]
fn a_call_that_was_cut_is_none() {
    let Some(house) = house() else { return };
    // Nothing that short can be completed.
    let long = json!({"type": "object", "properties": {"s": {"type": "string", "minLength": 100}}, "required": ["s"]});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": long}});
    let body = json!({"tools": [tool], "tool_choice": "required", "max_tokens": 80});
    let answer = house.chat(body.clone()).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length", "{answer}");
    assert_eq!(choice["message"].get("tool_calls"), None);
    assert_eq!(answer["formwork"]["completed"], false);
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let (events, _) = house.chat(streamed).events();
    let calls = streamed_calls(&events, 0);
    assert_eq!((calls.len(), calls[0].1.as_str()), (1, "f"));
    assert!(calls[0].2.starts_with(r#"{"s":""#), "{calls:?}");
    assert_eq!(
        events.last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
}

#[test]
fn without_a_call_there_is_text() {
    let Some(house) = house() else { return };
    let letters = json!({"97": 60, "98": 60});
    for choice in ["auto", "none"] {
        let body = json!({"tools": tools(), "tool_choice": choice, "ignore_eos": true, "logit_bias": letters});
        let answer = house.chat(body).json();
        let first = &answer["choices"][0];
        let text = first["message"]["content"].as_str().unwrap();
        assert!(
            text.len() == 8 && text.bytes().all(|byte| b"ab".contains(&byte)),
            "{answer}"
        );
        assert_eq!(first["finish_reason"], "length");
        assert_eq!(first["message"].get("tool_calls"), None);
        let plugin = &answer["formwork"]["plugin"]["name"];
        assert_eq!(
            *plugin,
            if choice == "auto" {
                json!("formwork/tools")
            } else {
                Value::Null
            }
        );
    }
}

#[test]
fn answers_of_tools_are_part_of_the_chat() {
    let house = House::new();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "r<|im_end|>"},
    ]);
    assert_eq!(house.chat(json!({"messages": messages})).status, 200);
    let tokens = house
        .post("/tokenize", &json!({"messages": messages}))
        .json();
    let text = house
        .post("/detokenize", &json!({"tokens": tokens["tokens"]}))
        .json();
    assert_eq!(
        text["prompt"],
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \
         \"arguments\": {\"a\":1}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n\
         r<|im_end|>\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn bad_tools_are_refused_by_place() {
    let Some(house) = house() else { return };
    let with = |parameters: Value| {
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
        house.chat(json!({"tools": [tool], "tool_choice": "required"}))
    };
    let reply = with(json!({"type": "strin"}));
    assert_eq!(
        reply.error(),
        (400, "invalid_params".to_owned(), "tools".to_owned())
    );
    assert!(reply.text.contains("parameters of `f`"), "{}", reply.text);
    assert_eq!(with(json!({"enum": []})).error().0, 422);
}

#[test]
fn structured_outputs_choose_the_stock_plugins() {
    let Some(house) = house() else { return };
    let run = |structured: Value| {
        let reply = house.chat(json!({"structured_outputs": structured, "max_tokens": 40}));
        assert_eq!(reply.status, 200, "{structured}: {}", reply.text);
        let text = reply.json()["choices"][0]["message"]["content"].clone();
        text.as_str().unwrap().to_owned()
    };
    assert_eq!(run(json!({"regex": "ab{3}"})), "abbb");
    assert_eq!(run(json!({"choice": ["only"]})), "only");
    assert_eq!(run(json!({"json": {"const": [1, "x"]}})), r#"[1,"x"]"#);
    assert_eq!(run(json!({"json": r#"{"const": 7}"#})), "7");
    assert_eq!(run(json!({"grammar": "start: \"x\" \"y\""})), "xy");
    assert_eq!(
        run(json!({"grammar": "root ::= r{2}\nr ::= \"z\" | \"z\" \"z\""}))[..2],
        *"zz"
    );
    let format = json!({"type": "tag", "begin": "<n>", "content": {"type": "regex", "pattern": "12"}, "end": "</n>"});
    let tag = json!({"type": "structural_tag", "format": format});
    assert_eq!(run(json!({"structural_tag": tag})), "<n>12</n>");
    assert_eq!(run(json!({"structural_tag": tag.to_string()})), "<n>12</n>");
    let twice = "root ::= \"a\"\nroot ::= \"b\"";
    let reply = house.chat(json!({"structured_outputs": {"grammar": twice}}));
    let place = "structured_outputs.grammar".to_owned();
    assert_eq!(reply.error(), (400, "invalid_params".to_owned(), place));
    assert!(
        reply.text.contains("2:1: the rule `root` is defined twice"),
        "{}",
        reply.text
    );
    assert_eq!(
        run(json!({"regex": "c"})),
        "c",
        "the next request is served"
    );
}

#[test]
fn a_trigger_begins_a_structure() {
    let Some(house) = house() else { return };
    let tag = json!({
        "type": "structural_tag", "triggers": ["~"],
        "structures": [{"begin": "~<", "schema": {"const": {"a": "b"}}, "end": ">"}],
    });
    // The model likes `~` best: there is no free text before and after.
    let reply = house.chat(json!({
        "response_format": tag, "max_tokens": 28, "temperature": 0, "logit_bias": {"126": 100},
    }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    let text = answer["choices"][0]["message"]["content"].as_str();
    let text = text.unwrap();
    assert!(text.starts_with(r#"~<{"a":"b"}>~<{"a":"b"}>"#), "{text}");
    let fields = answer["formwork"]["fields"].as_array().unwrap();
    let names: Vec<&Value> = fields.iter().map(|field| &field["name"]).collect();
    assert_eq!(names[..2], ["~<", "~<"]);
}

/// Kind and data of every event.
fn events(reply: &Reply) -> Vec<(String, String)> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let blocks = reply.text.split_terminator("\n\n");
    let events = blocks.map(|block| {
        let (kind, data) = match block.strip_prefix("event: ") {
            Some(rest) => rest.split_once('\n').unwrap(),
            None => ("message", block),
        };
        (
            kind.to_owned(),
            data.strip_prefix("data: ").unwrap().to_owned(),
        )
    });
    events.collect()
}

#[test]
fn fields_are_told_of_as_they_are_accepted() {
    let Some(house) = house() else { return };
    let parts = json!([
        {"literal": "<"}, {"field": "one", "choice": ["aa", "bb"]}, {"literal": "|"},
        {"field": "two", "regex": "[cd]{3}"}, {"literal": ">"},
    ]);
    let body = json!({
        "plugin": {"name": "formwork/template", "params": {"parts": parts}}, "max_tokens": 40, "stream": true,
    });
    let mut telling = body.clone();
    telling["stream_options"] = json!({"include_fields": true});
    let silent = events(&house.chat(body));
    assert!(silent.iter().all(|(kind, _)| kind == "message"));
    let told = events(&house.chat(telling));
    let messages = |events: &[(String, String)]| {
        let only = events
            .iter()
            .filter(|(kind, data)| kind == "message" && data != "[DONE]");
        let text = only.map(|(_, data)| {
            let data: Value = serde_json::from_str(data).unwrap();
            data["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        });
        text.collect::<String>()
    };
    let text = messages(&told);
    assert_eq!(text, messages(&silent));
    let mut seen = String::new();
    let mut names = Vec::new();
    for (at, (kind, data)) in told.iter().enumerate() {
        if kind != "field" {
            seen = messages(&told[..=at]);
            continue;
        }
        let field: Value = serde_json::from_str(data).unwrap();
        let value = field["value"].as_str().unwrap();
        assert!(
            seen.contains(value),
            "{value:?} is told before it is shown: {seen:?}"
        );
        assert_eq!(
            (&field["attempts"], &field["verified"]),
            (&json!(1), &json!(true))
        );
        assert_eq!(
            (&field["choice"], field["tokens"].as_u64()),
            (&json!(0), Some(value.len() as u64))
        );
        assert!(field["forced"].as_u64().unwrap() <= value.len() as u64);
        assert!(field["ms"].as_f64().unwrap() >= 0.0);
        names.push(field["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names, ["one", "two"]);
}
