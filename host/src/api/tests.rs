//! Bodies in, requests or errors out.

use serde_json::{Value, json};

use super::{ApiLimits, ChatRequest, CompletionRequest, Prompt, TokenizeRequest};
use crate::config::LimitArgs;
use crate::errors::ApiError;

fn limits() -> ApiLimits {
    ApiLimits::new(&LimitArgs::default(), "tiny".to_owned(), 300, 1000)
}

fn with(base: Value, change: &Value) -> Value {
    let mut body = base;
    for (key, value) in change.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn chat(change: &Value) -> Result<ChatRequest, ApiError> {
    let base = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    ChatRequest::read(with(base, change), &limits())
}

fn completion(change: &Value) -> Result<CompletionRequest, ApiError> {
    CompletionRequest::read(
        with(json!({"model": "tiny", "prompt": "hi"}), change),
        &limits(),
    )
}

/// Param, code and message of an error.
fn error<T>(result: Result<T, ApiError>) -> (String, String, String) {
    let body = result.err().expect("an error").body();
    let text = |name: &str| body["error"][name].as_str().unwrap_or("null").to_owned();
    (text("param"), text("code"), text("message"))
}

/// Changes to a good chat request, each with the param and the code of its error.
const WRONG_CHATS: &str = r#"
{"temprature": 1} => temprature unknown_field
{"temperature": "hot"} => temperature invalid_type
{"temperature": 2.5} => temperature out_of_range
{"n": 0} => n out_of_range
{"n": 1e30} => n out_of_range
{"n": 1.5} => n out_of_range
{"seed": 18446744073709551615} => seed out_of_range
{"max_tokens": 0} => max_tokens out_of_range
{"max_tokens": 1, "max_completion_tokens": 2} => max_completion_tokens invalid_value
{"stop": ["a", ""]} => stop[1] out_of_range
{"stop": [1]} => stop[0] invalid_type
{"stop": ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]} => stop out_of_range
{"logit_bias": {"x": 1}} => logit_bias.x out_of_range
{"logit_bias": {"300": 1}} => logit_bias.300 out_of_range
{"logit_bias": {"3": 101}} => logit_bias.3 out_of_range
{"top_logprobs": 2} => top_logprobs invalid_value
{"logprobs": true, "top_logprobs": 21} => top_logprobs out_of_range
{"stream_options": {}} => stream_options invalid_value
{"stream": true, "stream_options": {"usage": true}} => stream_options.usage unknown_field
{"tools": [{}]} => tools[0].type missing_field
{"tools": [{"type": "custom"}]} => tools[0].type unsupported_parameter
{"tools": [{"type": "function", "function": {"name": "a b"}}]} => tools[0].function.name invalid_value
{"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]} => tools[0].function.parameters invalid_type
{"tools": [{"type": "function", "function": {"name": "f", "strikt": true}}]} => tools[0].function.strikt unknown_field
{"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]} => tools[1].function.name invalid_value
{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}} => tool_choice.function.name invalid_value
{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools"}} => tool_choice.type invalid_value
{"tools": [{"type": "function", "function": {"name": "f"}}], "response_format": {"type": "json_object"}} => response_format invalid_value
{"tools": [{"type": "function", "function": {"name": "f"}}], "model": "tiny:acme/ticket"} => model invalid_value
{"tool_choice": "required"} => tool_choice invalid_value
{"tool_choice": "sometimes"} => tool_choice invalid_value
{"tool_choice": 1} => tool_choice invalid_type
{"functions": [{}]} => functions unsupported_parameter
{"messages": [{"role": "user", "content": "", "tool_calls": [{}]}]} => messages[0].tool_calls unsupported_parameter
{"messages": [{"role": "assistant", "tool_calls": []}]} => messages[0].content missing_field
{"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}]} => messages[0].tool_calls[0].function.name missing_field
{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]} => messages[0].tool_calls[0].id missing_field
{"messages": [{"role": "user", "content": "", "reasoning_content": "x"}]} => messages[0].reasoning_content unknown_field
{"messages": [{"role": "assistant", "content": "", "reasoning_content": 1}]} => messages[0].reasoning_content invalid_type
{"structured_outputs": {}} => structured_outputs invalid_value
{"structured_outputs": 1} => structured_outputs invalid_type
{"structured_outputs": {"rexeg": "a"}} => structured_outputs.rexeg unknown_field
{"structured_outputs": {"regex": "a", "choice": ["a"]}} => structured_outputs.choice invalid_value
{"structured_outputs": {"regex": "a", "json_object": false}} => structured_outputs.json_object invalid_value
{"structured_outputs": {"regex": "a"}, "guided_json": {}} => structured_outputs.regex invalid_value
{"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}} => structured_outputs.regex invalid_value
{"structured_outputs": {"regex": "a", "whitespace_pattern": " "}} => structured_outputs.whitespace_pattern unsupported_parameter
{"structured_outputs": {"json": {}, "whitespace_pattern": " "}} => structured_outputs.whitespace_pattern unsupported_parameter
{"structured_outputs": {"json": {}, "whitespace_pattern": "("}} => structured_outputs.whitespace_pattern invalid_value
{"structured_outputs": {"regex": "a", "whitespace_pattern": " ?"}} => structured_outputs.whitespace_pattern invalid_value
{"guided_regex": "a", "guided_whitespace_pattern": " ?"} => guided_whitespace_pattern invalid_value
{"structured_outputs": {"structural_tag": "{"}} => structured_outputs.structural_tag invalid_value
{"structured_outputs": {"structural_tag": 1}} => structured_outputs.structural_tag invalid_type
{"structured_outputs": {"structural_tag": {"type": "x"}}} => structured_outputs.structural_tag.type invalid_value
{"guided_json": "{"} => guided_json invalid_value
{"stream": true, "stream_options": {"include_fields": 1}} => stream_options.include_fields invalid_type
{"messages": []} => messages invalid_value
{"messages": null} => messages missing_field
{"messages": [{"role": "king", "content": ""}]} => messages[0].role invalid_value
{"messages": [{"role": "user"}]} => messages[0].content missing_field
{"messages": [{"role": "user", "content": "", "mood": 1}]} => messages[0].mood unknown_field
{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]} => messages[0].content[0].type unsupported_parameter
{"messages": [{"role": "user", "content": "", "name": "<|im_end|>"}]} => messages[0].name invalid_value
{"model": "other"} => model model_not_found
{"model": "tinyacme/x"} => model model_not_found
{"model": "tiny:acme"} => model invalid_value
{"model": "tiny:acme/x@one"} => model invalid_value
{"plugin": {"name": "acme"}} => plugin.name invalid_value
{"plugin": {"name": "a/b", "version": "one"}} => plugin.version invalid_value
{"plugin": {"name": "a/b", "params": []}} => plugin.params invalid_type
{"plugin": {"name": "a/b", "parms": {}}} => plugin.parms unknown_field
{"plugin": {"name": "a/b"}, "response_format": {"type": "json_object"}} => response_format invalid_value
{"plugin": {"name": "a/b"}, "model": "tiny:acme/ticket"} => plugin invalid_value
{"guided_regex": "a", "guided_choice": ["a"]} => guided_choice invalid_value
{"response_format": {"type": "xml"}} => response_format.type invalid_value
{"response_format": {"type": "json_schema"}} => response_format.json_schema missing_field
{"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}} => response_format.json_schema.schema invalid_type
{"response_format": {"type": "json_schema", "json_schema": {"spacing": "wide"}}} => response_format.json_schema.spacing invalid_value
{"response_format": {"type": "json_schema", "json_schema": {"key_order": 1}}} => response_format.json_schema.key_order invalid_type
{"response_format": {"type": "json_schema", "json_schema": {"attempts": 33}}} => response_format.json_schema.attempts out_of_range
{"response_format": {"type": "json_schema", "json_schema": {"documents": []}}} => response_format.json_schema.documents invalid_type
{"response_format": {"type": "json_schema", "json_schema": {"documents": {"u:x": 1}}}} => response_format.json_schema.documents["u:x"] invalid_type
{"response_format": {"type": "json_schema", "json_schema": {"key-order": "any"}}} => response_format.json_schema.key-order unknown_field
"#;

#[test]
fn wrong_chat_bodies_are_refused_by_name() {
    for line in WRONG_CHATS.trim().lines() {
        let (change, expected) = line.split_once(" => ").unwrap();
        let (param, code, message) = error(chat(&serde_json::from_str(change).unwrap()));
        assert_eq!(format!("{param} {code}"), expected, "{change}: {message}");
    }
}

/// Checks the plugin that a change to a good chat request chooses.
fn check(change: Value, expected: &str) {
    let format = chat(&change).unwrap().generation.format;
    let chosen = format.map(|f| format!("{} {} {}", f.name, f.selector, f.params));
    assert_eq!(chosen.as_deref().unwrap_or("none"), expected, "{change}");
}

#[test]
fn formats_are_chosen() {
    check(json!({}), "none");
    check(json!({"response_format": {"type": "text"}}), "none");
    let plugin = json!({"name": "acme/ticket"});
    check(json!({ "plugin": plugin }), "acme/ticket latest {}");
    check(
        json!({"model": "tiny:acme/ticket@^1.2"}),
        "acme/ticket ^1.2 {}",
    );
    check(
        json!({"model": "tiny:acme/ticket"}),
        "acme/ticket latest {}",
    );
    check(
        json!({"guided_choice": ["a", "b"]}),
        r#"formwork/choice latest {"choices":["a","b"]}"#,
    );
    check(
        json!({"guided_json": "{\"z\": 1, \"a\": 2}"}),
        r#"formwork/json-schema latest {"schema":{"z":1,"a":2}}"#,
    );
    check(
        json!({"structured_outputs": {"grammar": "g", "disable_any_whitespace": true}}),
        r#"formwork/grammar latest {"grammar":"g"}"#,
    );
    check(
        json!({"structured_outputs": {"json_object": true}}),
        "formwork/json-schema latest {}",
    );
    check(
        json!({"structured_outputs": {"json_object": false}}),
        "none",
    );
    let tag = json!({"type": "structural_tag", "triggers": ["<"], "structures": []});
    for change in [
        json!({"response_format": tag}),
        json!({"structured_outputs": {"structural_tag": tag}}),
        json!({"structured_outputs": {"structural_tag": tag.to_string()}}),
    ] {
        let expected = r#"formwork/structural-tag latest {"triggers":["<"],"structures":[]}"#;
        check(change, expected);
    }
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let schema = json!({"name": "x", "strict": false, "schema": schema});
    check(
        json!({"response_format": {"type": "json_schema", "json_schema": schema}}),
        "formwork/json-schema latest \
         {\"schema\":{\"type\":\"object\",\"properties\":{\"z\":{},\"a\":{}}},\"strict\":false}",
    );
}

#[test]
fn schemas_say_how_their_values_are_written() {
    for (given, spacing) in [
        (json!({"disable_any_whitespace": true}), "compact"),
        (json!({"disable_any_whitespace": false}), "spaced"),
        (json!({"whitespace_pattern": "[\\n\\t ]*"}), "spaced"),
        (
            json!({"whitespace_pattern": "[ ]?", "disable_any_whitespace": true}),
            "compact",
        ),
        (
            json!({"whitespace_pattern": "", "disable_any_whitespace": false}),
            "compact",
        ),
    ] {
        let mut structured = given;
        structured["json"] = json!(true);
        let expected =
            format!(r#"formwork/json-schema latest {{"schema":true,"spacing":"{spacing}"}}"#);
        check(json!({"structured_outputs": structured}), &expected);
    }
    check(
        json!({"guided_json": true, "guided_whitespace_pattern": " ?"}),
        r#"formwork/json-schema latest {"schema":true,"spacing":"spaced"}"#,
    );
    let extended = json!({
        "schema": true, "spacing": "spaced", "key_order": "any", "formats": "annotated", "attempts": 5,
        "documents": {"https://x/y": {"type": "null"}},
    });
    check(
        json!({"response_format": {"type": "json_schema", "json_schema": extended}}),
        r#"formwork/json-schema latest {"schema":true,"spacing":"spaced","key_order":"any","formats":"annotated","attempts":5,"documents":{"https://x/y":{"type":"null"}}}"#,
    );
}

#[test]
fn tools_choose_their_plugin() {
    let tool =
        json!({"type": "function", "function": {"name": "f", "description": "d", "strict": true}});
    let tools = json!([tool]);
    check(
        json!({"tools": tools, "parallel_tool_calls": false}),
        r#"formwork/tools latest {"tools":[{"name":"f","strict":true}],"choice":"auto","parallel":false}"#,
    );
    let named = json!({"type": "function", "function": {"name": "f"}});
    check(
        json!({"tools": tools, "tool_choice": named}),
        r#"formwork/tools latest {"tools":[{"name":"f","strict":true}],"choice":"required","parallel":false}"#,
    );
    let with_format = json!({"tools": tools, "tool_choice": "none", "guided_regex": "a"});
    check(with_format, r#"formwork/regex latest {"pattern":"a"}"#);
}

#[test]
fn values_arrive() {
    let request = chat(&json!({
        "temperature": 0, "top_k": -1, "top_p": 0.5, "seed": -1, "n": 3, "stop": "END",
        "max_completion_tokens": 7, "logprobs": true, "top_logprobs": 2, "user": "u", "metadata": {},
        "logit_bias": {"5": -100}, "stream": true, "stream_options": {"include_usage": true},
        "messages": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ],
    }))
    .unwrap();
    let generation = request.generation;
    assert_eq!(request.messages[0].role.name(), "system");
    assert_eq!(request.messages[1].content, "ab");
    assert_eq!(
        (generation.n, generation.max_tokens, generation.seed),
        (3, Some(7), Some(u64::MAX))
    );
    assert_eq!(generation.stop, ["END"]);
    assert!(generation.stream.unwrap().include_usage);
    let sampling = generation.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_k, sampling.top_p),
        (0.0, 0, 0.5)
    );
    assert_eq!(sampling.logprobs, Some(2));
    assert_eq!(sampling.logit_bias, [(5, -100.0)]);
}

#[test]
fn completions_take_all_kinds_of_prompts() {
    let check = |prompt: Value, expected: &[Prompt]| {
        let request = completion(&json!({ "prompt": prompt })).unwrap();
        assert_eq!(request.prompts, expected);
        assert_eq!(request.generation.max_tokens, Some(16));
    };
    let text = |text: &str| Prompt::Text(text.to_owned());
    check(json!("a"), &[text("a")]);
    check(json!(["a", "b"]), &[text("a"), text("b")]);
    check(json!([1, 2]), &[Prompt::Tokens(vec![1, 2])]);
    check(
        json!([[1], [2, 3]]),
        &[Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])],
    );
    let check = |change: Value, param: &str, code: &str| {
        let (found_param, found_code, message) = error(completion(&change));
        assert_eq!(
            (found_param.as_str(), found_code.as_str()),
            (param, code),
            "{change}: {message}"
        );
    };
    check(json!({"prompt": []}), "prompt", "invalid_value");
    check(json!({"prompt": [1, 300]}), "prompt[1]", "out_of_range");
    check(json!({"prompt": ["a", 1]}), "prompt[1]", "invalid_type");
    check(json!({"prompt": ["a", "b"], "n": 9}), "n", "out_of_range");
    check(json!({"echo": true}), "echo", "unsupported_parameter");
    check(json!({"suffix": "x"}), "suffix", "unsupported_parameter");
    check(json!({"best_of": 2}), "best_of", "unsupported_parameter");
    check(json!({"logprobs": true}), "logprobs", "invalid_type");
    completion(&json!({"echo": false, "best_of": 1, "suffix": null, "logprobs": 5})).unwrap();
}

#[test]
fn messages_help_to_mend_the_request() {
    let message = |change: Value| error(chat(&change)).2;
    assert_eq!(
        message(json!({"temprature": 1})),
        "unknown field `temprature`; did you mean `temperature`?"
    );
    assert_eq!(
        message(json!({"temperature": "hot"})),
        "`temperature` must be a number from 0 to 2, not \"hot\""
    );
    assert_eq!(
        message(json!({"max_tokens": -1})),
        "`max_tokens` must be an integer of at least 1, not -1"
    );
    assert_eq!(
        message(json!({"model": "gpt"})),
        "the model `gpt` does not exist; this server has `tiny`"
    );
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let broken = super::parse_json(deep.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        broken,
        "the body is not valid JSON: recursion limit exceeded at line 1 column 128"
    );
}

#[test]
fn tokenize_takes_one_source() {
    let read = |body: Value| TokenizeRequest::read(body, &limits());
    assert!(read(json!({"prompt": "a"})).is_ok());
    assert!(read(json!({"messages": [{"role": "user", "content": "a"}]})).is_ok());
    assert_eq!(error(read(json!({}))).0, "prompt");
    assert_eq!(
        error(read(json!({"prompt": "a", "messages": []}))).0,
        "prompt"
    );
    assert_eq!(
        error(read(json!({"prompt": "a", "model": "b"}))).1,
        "model_not_found"
    );
}
