//! Error shapes: what is wrong comes back by name, with the right status.

use serde_json::{Value, json};

use crate::house::{House, MODEL};

#[test]
fn wrong_requests_get_their_status_and_name_the_field() {
    let house = House::new();
    let check = |change: Value, expected: (u16, &str, &str)| {
        let (status, code, param) = house.chat(change.clone()).error();
        assert_eq!(
            (status, code.as_str(), param.as_str()),
            expected,
            "{change}"
        );
    };
    check(
        json!({"temprature": 1}),
        (400, "unknown_field", "temprature"),
    );
    check(
        json!({"messages": [{"role": "user", "content": "a", "x": 1}]}),
        (400, "unknown_field", "messages[0].x"),
    );
    check(
        json!({"temperature": 3}),
        (400, "out_of_range", "temperature"),
    );
    check(json!({"model": "gpt-4"}), (404, "model_not_found", "model"));
    check(
        json!({"plugin": {"name": "acme/none"}}),
        (404, "plugin_not_found", "plugin"),
    );
    check(
        json!({"model": "tiny:acme/none"}),
        (404, "plugin_not_found", "model"),
    );
    check(
        json!({"max_tokens": 100_000}),
        (400, "context_length_exceeded", "max_tokens"),
    );
    let long = "x".repeat(5000);
    check(
        json!({"messages": [{"role": "user", "content": long}]}),
        (400, "context_length_exceeded", "messages"),
    );
}

#[test]
fn an_error_has_the_shape_that_clients_expect() {
    let house = House::new();
    let reply = house.chat(json!({"top_p": 2}));
    let expected = json!({"error": {
        "message": "`top_p` must be a number from 0 to 1, not 2",
        "type": "invalid_request_error",
        "param": "top_p",
        "code": "out_of_range",
    }});
    assert_eq!(reply.json(), expected);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-request-id").map(str::len), Some(32));
}

#[test]
fn bodies_are_of_the_right_kind_and_size() {
    let house = House::with(|config| config.limits.max_body_bytes = 1000);
    let post = |kind: &str, body: &[u8]| {
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-type: {kind}");
        let (status, code, _) = house.raw(&head, body).error();
        (status, code)
    };
    assert_eq!(
        post("application/json", b"{\"a\":\n 1,}"),
        (400, "invalid_json".to_owned())
    );
    assert_eq!(
        post("application/json", b"[]"),
        (400, "invalid_value".to_owned())
    );
    let untyped = house.raw("POST /v1/completions HTTP/1.1", b"{}");
    assert_eq!(untyped.error().0, 415);
    assert_eq!(
        post("text/plain", b"{}"),
        (415, "unsupported_media_type".to_owned())
    );
    assert_eq!(
        post("application/json", &[b' '; 1001]),
        (413, "body_too_large".to_owned())
    );
    let reply = house.raw(
        "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json",
        b"{\"a\":\n 1,}",
    );
    assert!(reply.text.contains("line 2 column 4"), "{}", reply.text);
    // Without an announced length the body is cut off while it comes in.
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("3e9\r\n{}\r\n0\r\n\r\n", " ".repeat(1001));
    let reply = crate::house::read(house.send(format!("{head}{chunk}").as_bytes()));
    assert_eq!(reply.error().0, 413);
}

#[test]
fn what_is_not_there_is_not_found() {
    let house = House::new();
    assert_eq!(house.get("/v2/chat").error().0, 404);
    assert_eq!(house.get("/v1/chat/completions").error().0, 405);
    assert_eq!(house.get("/v1/models/other").error().0, 404);
    assert_eq!(
        house.get(&format!("/v1/models/{MODEL}")).json()["id"],
        MODEL
    );
    let by_plugin = house.get("/v1/models/tiny:acme/ticket@1");
    assert_eq!(by_plugin.json()["id"], "tiny:acme/ticket@1");
}
