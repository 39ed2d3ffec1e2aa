//! Slow clients, keys, the drain.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use formwork::app::{self, StartError};
use formwork::config::ServeConfig;
use serde_json::{Value, json};

use crate::house::{House, chat_body, read};

#[test]
fn slow_headers_and_bodies_are_cut_off() {
    let house = House::with(|config| {
        config.limits.header_timeout_ms = 200;
        config.limits.body_timeout_ms = 200;
    });
    let started = Instant::now();
    let mut slow = house.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(40));
        slow.write_all(b"x-drip: 1\r\n").unwrap();
    }
    let mut rest = Vec::new();
    // Either an end or a reset will do: the connection is gone.
    let _ = slow.read_to_end(&mut rest);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "dripping kept it open"
    );

    let reply = read(house.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    ));
    let (status, code, _) = reply.error();
    assert_eq!((status, code.as_str()), (408, "body_timeout"));
    assert_eq!(house.get("/health").status, 200);
}

#[test]
fn connections_are_bounded_and_come_back() {
    let house = House::with(|config| {
        config.limits.max_connections = 2;
        config.limits.header_timeout_ms = 300;
    });
    let idle = [house.send(b"GET"), house.send(b"GET")];
    // It waits for a place, which the header deadline of the idle ones gives it.
    assert_eq!(house.get("/health").status, 200);
    drop(idle);
}

#[test]
fn keys_guard_everything_but_health() {
    let key = "0123456789abcdef0123";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    std::fs::write(&file, format!("# keys\nalice:{key}\n")).unwrap();
    let house = House::with(|config| config.api_key_file = Some(file));
    for path in ["/health", "/ready"] {
        assert_eq!(house.get(path).status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/models", "/v1/plugins", "/nowhere"] {
        let reply = house.get(path);
        let (status, code, _) = reply.error();
        assert_eq!((status, code.as_str()), (401, "missing_api_key"), "{path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    let with = |key: &str| {
        let head = format!("GET /v1/models HTTP/1.1\r\nauthorization: Bearer {key}");
        house.raw(&head, b"").status
    };
    assert_eq!(with(key), 200);
    assert_eq!(with("0123456789abcdef0124"), 401);
}

#[test]
fn a_public_address_needs_keys_or_a_word() {
    let data = tempfile::tempdir().unwrap();
    let config = ServeConfig {
        host: Ipv4Addr::UNSPECIFIED.into(),
        port: 0,
        data_dir: data.path().to_owned(),
        ..ServeConfig::default()
    };
    let model = std::sync::Arc::new(formwork_model::Model::tiny(1));
    let refused = app::start(&config, model);
    assert!(matches!(refused, Err(StartError::PublicWithoutKeys(_))));
    let house = House::with(|config| {
        config.host = Ipv4Addr::UNSPECIFIED.into();
        config.insecure = true;
    });
    assert!(house.address.ip().is_unspecified());
}

/// A stream of 2,000 tokens, begun.
fn begun(house: &House) -> std::net::TcpStream {
    let body =
        chat_body(json!({"stream": true, "ignore_eos": true, "max_tokens": 2000})).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let stream = house.send((head + &body).as_bytes());
    house.wait("a running sequence", |house| {
        house.app.engine.stats().running > 0
    });
    stream
}

#[test]
fn a_drain_lets_running_requests_finish_and_takes_no_new_ones() {
    let mut house = House::new();
    let running = begun(&house);
    house.ask_to_stop();
    house.wait("the drain", |house| house.app.is_draining());
    let (status, code, _) = house.get("/ready").error();
    assert_eq!((status, code.as_str()), (503, "shutting_down"));
    assert_eq!(house.get("/health").status, 200);
    let refused = house.chat(json!({}));
    assert_eq!(refused.error().0, 503);
    assert!(refused.header("retry-after").is_some());
    let (events, done) = read(running).events();
    assert!(done, "the running stream came to its end");
    assert_eq!(
        events.last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
    house.join();
}

#[test]
fn a_drain_ends() {
    let mut house = House::with(|config| config.limits.drain_timeout_ms = 50);
    let running = begun(&house);
    let started = Instant::now();
    house.join();
    assert!(started.elapsed() < Duration::from_secs(5));
    let (events, done) = read(running).events();
    assert!(!done);
    let error: &Value = &events.last().unwrap()["error"];
    assert_eq!(error["code"], "shutting_down");
}

#[test]
fn web_pages_under_other_names_get_nothing() {
    let house = House::new();
    let ask = |host: &str| {
        let request =
            format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        read(house.send(request.as_bytes()))
    };
    for host in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:1",
        "127.1.2.3",
        "[::1]:8080",
    ] {
        assert_eq!(ask(host).status, 200, "{host}");
    }
    for host in [
        "rebound.example",
        "localhost.example:8080",
        "10.0.0.1",
        "x@y@z",
        "",
    ] {
        let (status, code, _) = ask(host).error();
        assert_eq!((status, code.as_str()), (403, "host_not_allowed"), "{host}");
    }
    let open = House::with(|config| config.insecure = true);
    let reply =
        open.send(b"GET /v1/models HTTP/1.1\r\nhost: any.example\r\nconnection: close\r\n\r\n");
    assert_eq!(read(reply).status, 200);
}

#[test]
fn who_does_not_read_is_cut_off() {
    let house = House::with(|config| config.limits.write_timeout_ms = 200);
    // More than the buffers of a connection hold: each token comes with the likeliest ones beside it.
    let body = chat_body(serde_json::json!({
        "stream": true, "ignore_eos": true, "max_tokens": 4000, "n": 8, "logprobs": true, "top_logprobs": 20,
    }));
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let connection = house.send((head + &body).as_bytes());
    house.wait("the connection to be cut off", |house| {
        house.app.engine.stats().steps > 0
            && house
                .app
                .metrics
                .encode()
                .unwrap()
                .contains("formwork_connections 0\n")
    });
    drop(connection);
}
