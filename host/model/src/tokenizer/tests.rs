use super::*;

const PIECES: [(&str, f32); 9] = [
    ("▁", -5.0),
    ("a", -6.0),
    ("b", -7.0),
    ("▁a", -1.0),
    ("ab", -2.0),
    ("▁ab", -3.0),
    ("é", -8.0),
    ("▁b", -0.5),
    ("aa", -4.0),
];

/// `<unk> <s> </s>`, the 256 bytes, then the pieces.
fn sentence_piece() -> Tokenizer {
    let mut vocabulary = GgufVocabulary {
        model: "llama".into(),
        bos: Some(1),
        end: vec![2],
        ..GgufVocabulary::default()
    };
    let mut add = |text: String, kind, score| {
        vocabulary.tokens.push(text);
        vocabulary.types.push(kind);
        vocabulary.scores.push(score);
    };
    add("<unk>".into(), TokenType::Unknown, 0.0);
    add("<s>".into(), TokenType::Control, 0.0);
    add("</s>".into(), TokenType::Control, 0.0);
    for byte in 0..=255u8 {
        add(format!("<0x{byte:02X}>"), TokenType::Byte, 0.0);
    }
    for (text, score) in PIECES {
        add(text.into(), TokenType::Normal, score);
    }
    vocabulary.build().expect("the vocabulary is complete")
}

fn pieces(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Vec<String> {
    let bytes = tokens.iter().filter_map(|&token| tokenizer.bytes(token));
    bytes
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

#[test]
fn sentence_piece_joins_the_best_scored_pair_first() {
    let tokenizer = sentence_piece();
    for (text, want) in [
        ("ab", &[" ab"][..]),
        ("a ab", &[" a", " ab"]),
        ("aab", &[" a", "ab"]),
        ("b", &[" b"]),
    ] {
        let tokens = tokenizer.encode(text, SpecialTokens::AsText);
        assert_eq!(pieces(&tokenizer, &tokens), want, "{text}");
    }
    assert!(tokenizer.add_bos());
}

#[test]
fn sentence_piece_bytes_have_no_space_in_front_and_come_back() {
    let tokenizer = sentence_piece();
    for bytes in [
        &b"ab"[..],
        b"  b",
        "é北".as_bytes(),
        b"\xff\x00a",
        b"<0x41></s>",
        "a▁ b▁▁".as_bytes(),
        b"",
    ] {
        let tokens = tokenizer.encode_bytes(bytes);
        assert_eq!(tokenizer.decode(&tokens), bytes);
        assert!(tokens.iter().all(|&token| !tokenizer.is_special(token)));
        assert_eq!(tokenizer.tok_env().tokenize_bytes(bytes), tokens);
    }
    let tokens = tokenizer.encode("<s>", SpecialTokens::Parse);
    assert_eq!(tokens, [1]);
}

/// Makes one mistake.
type Spoil = fn(&mut GgufVocabulary);

#[test]
fn what_is_wrong_with_a_vocabulary_is_named() {
    let bytes: Vec<String> = (0..=255).map(byte_text).collect();
    let base = || GgufVocabulary {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        tokens: bytes.clone(),
        types: vec![TokenType::Normal; 256],
        end: vec![0],
        ..GgufVocabulary::default()
    };
    let broken: [(&str, Spoil); 6] = [
        ("tokenizer.ggml.model", |v| v.model = "bert".into()),
        ("tokenizer.ggml.pre", |v| v.pre = "unheard-of".into()),
        ("256 tokens have 1 types", |v| v.types.truncate(1)),
        ("no two parts", |v| v.merges = vec!["ab".into()]),
        ("no end token", |v| v.end.clear()),
        ("outside the vocabulary", |v| v.bos = Some(256)),
    ];
    for (want, spoil) in broken {
        let mut vocabulary = base();
        spoil(&mut vocabulary);
        let error = vocabulary.build().err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| error.contains(want)),
            "{error:?} lacks {want}"
        );
    }
    assert!(base().build().is_ok());
}

#[test]
fn every_known_pre_tokenizer_keeps_every_byte() {
    for name in [
        "gpt-2",
        "smollm",
        "starcoder",
        "refact",
        "command-r",
        "llama-bpe",
        "qwen2",
        "default",
        "deepseek-r1-qwen",
        "tekken",
    ] {
        let tokenizer = GgufVocabulary {
            model: "gpt2".into(),
            pre: name.into(),
            tokens: (0..=255).map(byte_text).collect(),
            types: vec![TokenType::Normal; 256],
            end: vec![0],
            ..GgufVocabulary::default()
        }
        .build()
        .expect("the vocabulary is complete");
        for text in [
            "It's 12345 o'clock;\n\n  naïve “test” ++ 北京\t",
            "",
            "\r\n \u{0}",
        ] {
            let tokens = tokenizer.encode(text, SpecialTokens::AsText);
            assert_eq!(tokenizer.decode(&tokens), text.as_bytes(), "{name}");
        }
    }
}
