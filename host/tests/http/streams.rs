//! Streams: framing, pieces, what a client that leaves leaves behind.

use std::io::Read;

use serde_json::{Value, json};

use crate::house::{House, Reply, chat_body};

/// The text of one choice over all events.
fn text(events: &[Value], index: u64) -> String {
    let choices = events
        .iter()
        .flat_map(|event| event["choices"].as_array().unwrap());
    let own = choices.filter(|choice| choice["index"] == index);
    let text = own.map(|choice| choice["delta"]["content"].as_str().unwrap_or_default());
    text.collect()
}

fn whole(reply: &Reply, index: usize) -> String {
    let answer = reply.json();
    answer["choices"][index]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_stream_brings_the_same_text_in_pieces() {
    let house = House::new();
    let options = json!({"n": 2, "ignore_eos": true, "max_tokens": 60});
    let expected = house.chat(options.clone());
    let mut streamed = options;
    streamed["stream"] = json!(true);
    let reply = house.chat(streamed);
    assert_eq!(
        reply.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let (events, done) = reply.events();
    assert!(done);
    for index in 0..2 {
        assert_eq!(text(&events, index), whole(&expected, index as usize));
        let own = |event: &&Value| event["choices"][0]["index"] == index;
        let own: Vec<&Value> = events.iter().filter(own).collect();
        assert_eq!(
            own[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        let reasons = own
            .iter()
            .map(|event| &event["choices"][0]["finish_reason"]);
        let reasons: Vec<&Value> = reasons.filter(|reason| !reason.is_null()).collect();
        assert_eq!(reasons, ["length"]);
    }
    let first = &events[0];
    for event in &events {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!(event["id"], first["id"]);
        assert_eq!(event.get("usage"), None, "nobody asked for it");
    }
    let last = events.last().unwrap();
    assert_eq!(last["formwork"]["usage"]["sampled"], 120);
}

#[test]
fn usage_comes_last_when_asked_for() {
    let house = House::new();
    let options = json!({"include_usage": true});
    let reply = house.chat(json!({"stream": true, "stream_options": options}));
    let (events, done) = reply.events();
    assert!(done);
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], 24);
    assert!(last["formwork"].is_object());
    for event in others {
        assert_eq!(event["usage"], Value::Null);
        assert!(event.as_object().unwrap().contains_key("usage"));
    }
}

#[test]
fn completions_stream_too() {
    let house = House::new();
    let expected = house.complete(json!({"logprobs": 0})).json();
    let reply = house.complete(json!({"logprobs": 0, "stream": true}));
    let (events, done) = reply.events();
    assert!(done);
    let join = |name: &str| {
        let pieces = events
            .iter()
            .map(|event| &event["choices"][0]["logprobs"][name]);
        let pieces = pieces.flat_map(|piece| piece.as_array().cloned().unwrap_or_default());
        Value::Array(pieces.collect())
    };
    for name in ["tokens", "token_logprobs", "text_offset"] {
        assert_eq!(
            join(name),
            expected["choices"][0]["logprobs"][name],
            "{name}"
        );
    }
    let text: String = events
        .iter()
        .map(|event| event["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(text, expected["choices"][0]["text"].as_str().unwrap());
}

#[test]
fn stop_strings_are_held_back_from_streams() {
    let house = House::new();
    let body = json!({
        "max_tokens": 40, "ignore_eos": true, "logit_bias": {"97": 30, "98": 30, "99": 30},
    });
    let all = whole(&house.chat(body.clone()), 0);
    let stop = &all[20..24];
    let mut stopped = body;
    stopped["stop"] = json!(stop);
    stopped["stream"] = json!(true);
    let (events, done) = house.chat(stopped).events();
    assert!(done);
    assert_eq!(text(&events, 0), all[..all.find(stop).unwrap()]);
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], "stop");
}

fn post(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

#[test]
fn a_client_that_leaves_frees_its_blocks() {
    let house = House::new();
    let finished = || house.app.engine.stats().sequences_finished;
    for stream in [true, false] {
        let before = finished();
        let options = json!({"stream": stream, "ignore_eos": true, "max_tokens": 4000});
        let mut connection = house.send(&post(&chat_body(options)));
        if stream {
            let mut some = [0; 512];
            assert!(connection.read(&mut some).unwrap() > 0);
        }
        house.wait("a running sequence", |house| {
            house.app.engine.stats().blocks_leased > 0
        });
        drop(connection);
        house.settle();
        let computed = house.app.engine.stats().tokens_sampled;
        assert!(computed < 7000, "{computed} tokens: it ran on to the end");
        assert_eq!(finished(), before + 1);
    }
}

#[test]
fn clients_that_leave_at_any_moment_leave_nothing() {
    let house = House::new();
    let bytes = post(&chat_body(
        json!({"stream": true, "ignore_eos": true, "max_tokens": 200, "n": 2}),
    ));
    for round in 0..200 {
        // Cut within the request, right after it, or a little later.
        let sent = if round % 4 == 0 {
            round % bytes.len()
        } else {
            bytes.len()
        };
        let connection = house.send(&bytes[..sent]);
        std::thread::sleep(std::time::Duration::from_micros(round as u64 % 7 * 300));
        drop(connection);
    }
    house.wait("connections to close", |house| {
        let text = house.app.metrics.encode().unwrap();
        text.contains("formwork_connections 0\n")
    });
    house.settle();
    let stats = house.app.engine.stats();
    assert_eq!(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
    assert_eq!(house.chat(json!({})).status, 200);
}
