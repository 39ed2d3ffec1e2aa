//! `POST /tokenize` and `POST /detokenize`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use formwork_engine::TokenId;
use formwork_model::{SpecialTokens, Tokenizer};
use serde_json::{Value, json};

use super::body;
use super::ops::Json;
use crate::admission::ChatPrompt;
use crate::api::{DetokenizeRequest, TokenizeRequest, TokenizeText};
use crate::app::App;
use crate::errors::ApiError;

pub(super) async fn tokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::json(request, &app.limits).await?;
    let request = TokenizeRequest::read(body, &app.limits)?;
    let answer = app.blocking(move |app| tokenized(app, &request)).await?;
    Ok(Json(answer).into_response())
}

fn tokenized(app: &App, request: &TokenizeRequest) -> Result<Value, ApiError> {
    let tokenizer = app.model.tokenizer();
    let tokens = match &request.text {
        TokenizeText::Prompt {
            text,
            add_special_tokens,
        } => {
            let wants_bos = *add_special_tokens && tokenizer.add_bos();
            let bos = tokenizer.bos().filter(|_| wants_bos);
            let mut tokens: Vec<TokenId> = bos.into_iter().collect();
            tokens.extend(tokenizer.encode(text, SpecialTokens::Parse));
            tokens
        }
        TokenizeText::Messages {
            messages,
            add_generation_prompt,
            template_variables,
        } => {
            let prompt = ChatPrompt {
                messages,
                tools: None,
                add_generation_prompt: *add_generation_prompt,
                variables: template_variables,
                max_context: app.limits.max_context,
                thinks_by_itself: app.thinks_by_itself,
            };
            prompt.encode(&app.model, &app.specials)?.tokens
        }
    };
    let mut answer = json!({
        "count": tokens.len(),
        "max_model_len": app.limits.max_context,
        "tokens": tokens,
    });
    if request.return_token_strs {
        answer["token_strs"] = tokens
            .iter()
            .map(|&token| text(tokenizer, &[token]))
            .collect();
    }
    Ok(answer)
}

pub(super) async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::json(request, &app.limits).await?;
    let request = DetokenizeRequest::read(body, &app.limits)?;
    let prompt = text(app.model.tokenizer(), &request.tokens);
    Ok(Json(json!({ "prompt": prompt })).into_response())
}

/// The text of tokens, special ones spelled out; what is not UTF-8 becomes U+FFFD.
fn text(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let bytes = tokens.iter().filter_map(|&token| tokenizer.bytes(token));
    let bytes: Vec<u8> = bytes.flatten().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
