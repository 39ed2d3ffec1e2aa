//! Whole answers: both APIs, `n`, seeds, stop strings, log-probabilities, usage.

use serde_json::{Value, json};

use crate::house::{House, MODEL};

fn texts(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().unwrap();
    let text = |choice: &Value| {
        let text = choice.get("text").unwrap_or(&choice["message"]["content"]);
        text.as_str().unwrap().to_owned()
    };
    choices.iter().map(text).collect()
}

#[test]
fn a_chat_is_answered() {
    let house = House::new();
    let reply = house.chat(json!({"ignore_eos": true}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], MODEL);
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    assert!(
        answer["system_fingerprint"]
            .as_str()
            .unwrap()
            .starts_with("fw_")
    );
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["logprobs"], Value::Null);
    let usage = &answer["usage"];
    // <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n in a byte vocabulary.
    assert_eq!(usage["prompt_tokens"], 24);
    assert_eq!(usage["completion_tokens"], 8);
    assert_eq!(usage["total_tokens"], 32);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(answer["formwork"]["usage"]["sampled"], 8);
    assert_eq!(answer["formwork"].get("plugin"), None);
    let again = house.chat(json!({"ignore_eos": true})).json();
    assert_eq!(
        texts(&again),
        texts(&answer),
        "the same seed gives the same answer"
    );
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached, Some(16), "one full block of the prompt was kept");
}

#[test]
fn seeds_count_up_over_choices() {
    let house = House::new();
    let three = house.complete(json!({"n": 3, "seed": 5})).json();
    let three = texts(&three);
    for (index, text) in three.iter().enumerate() {
        let one = house.complete(json!({"seed": 5 + index})).json();
        assert_eq!(&texts(&one)[0], text, "choice {index}");
    }
    let free = || {
        texts(
            &house
                .complete(json!({"seed": null, "max_tokens": 24}))
                .json(),
        )
    };
    assert_ne!(free(), free(), "without a seed answers differ");
}

#[test]
fn every_prompt_gets_its_answers() {
    let house = House::new();
    let many = house
        .complete(json!({"prompt": ["Once", "Twice"], "n": 2, "temperature": 0}))
        .json();
    let choices = many["choices"].as_array().unwrap();
    let indices: Vec<u64> = choices
        .iter()
        .map(|c| c["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    let texts_of = |prompt: Value| {
        texts(
            &house
                .complete(json!({"prompt": prompt, "temperature": 0}))
                .json(),
        )
    };
    let (once, twice) = (texts_of(json!("Once")), texts_of(json!("Twice")));
    assert_eq!(
        texts(&many),
        [&once[0], &once[0], &twice[0], &twice[0]].map(String::clone)
    );
    // BOS and four letters, BOS and five: each prompt counts once.
    assert_eq!(many["usage"]["prompt_tokens"], 11);
    let ids = texts_of(json!([256, 79, 110, 99, 101]));
    assert_eq!(ids, once, "token ids are taken as they are");
}

#[test]
fn stop_strings_end_an_answer() {
    let house = House::new();
    let body =
        json!({"max_tokens": 40, "ignore_eos": true, "logit_bias": {"97": 30, "98": 30, "99": 30}});
    let whole = texts(&house.complete(body.clone()).json()).remove(0);
    let stop = &whole[10..13];
    let at = whole.find(stop).unwrap();
    let mut stopped = body;
    stopped["stop"] = json!(["never this", stop]);
    let answer = house.complete(stopped).json();
    assert_eq!(texts(&answer), [&whole[..at]]);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let spent = answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(
        spent as usize,
        at + 3,
        "a byte a token, the stop string's included"
    );
}

#[test]
fn log_probabilities_come_in_both_forms() {
    let house = House::new();
    let body =
        json!({"ignore_eos": true, "max_tokens": 3, "temperature": 0, "logit_bias": {"97": 50}});
    let mut chat = body.clone();
    chat["logprobs"] = json!(true);
    chat["top_logprobs"] = json!(2);
    let answer = house.chat(chat).json();
    let content = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(content.len(), 3);
    for entry in &content {
        assert_eq!(entry["token"], "a");
        assert_eq!(entry["bytes"], json!([97]));
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
    }
    let mut completion = body;
    completion["logprobs"] = json!(1);
    let answer = house.complete(completion).json();
    let logprobs = &answer["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["a", "a", "a"]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    assert_eq!(logprobs["token_logprobs"].as_array().unwrap().len(), 3);
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 1);
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let house = House::with(|config| {
        config.engine.max_rows = 1;
        config.engine.queue_limit = 2;
    });
    let reply = house.complete(json!({"n": 3}));
    let (status, code, _) = reply.error();
    assert_eq!((status, code.as_str()), (429, "queue_full"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(house.complete(json!({"n": 2})).status, 200, "n counts as n");
}
