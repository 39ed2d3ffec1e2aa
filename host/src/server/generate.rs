//! `POST /v1/chat/completions` and `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::body;
use super::guard::RequestId;
use crate::admission::{ChatPrompt, Encoded, admit, text_prompt};
use crate::api::{ChatRequest, CompletionRequest, Generation};
use crate::app::{App, unix_time};
use crate::errors::ApiError;
use crate::relay::{Api, EventStream, Run, Wire, complete};

pub(super) async fn chat(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = RequestId::of(&request);
    let body = body::json(request, &app.limits).await?;
    let ChatRequest {
        messages,
        tools,
        template_variables,
        generation,
    } = ChatRequest::read(body, &app.limits)?;
    let prompts = move |app: &App| {
        let prompt = ChatPrompt {
            messages: &messages,
            tools: tools.as_ref(),
            add_generation_prompt: true,
            variables: &template_variables,
            max_context: app.limits.max_context,
            thinks_by_itself: app.thinks_by_itself,
        };
        Ok(vec![prompt.encode(&app.model, &app.specials)?])
    };
    generate(&app, Api::Chat, &id, generation, prompts).await
}

pub(super) async fn completions(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = RequestId::of(&request);
    let body = body::json(request, &app.limits).await?;
    let CompletionRequest {
        prompts,
        generation,
    } = CompletionRequest::read(body, &app.limits)?;
    let prompts = move |app: &App| {
        let tokenizer = app.model.tokenizer();
        prompts
            .iter()
            .map(|prompt| text_prompt(tokenizer, prompt))
            .collect()
    };
    generate(&app, Api::Completion, &id, generation, prompts).await
}

async fn generate<F>(
    app: &Arc<App>,
    api: Api,
    id: &RequestId,
    generation: Generation,
    prompts: F,
) -> Result<Response, ApiError>
where
    F: FnOnce(&App) -> Result<Vec<Encoded>, ApiError> + Send + 'static,
{
    let in_flight = app.enter()?;
    let admitted = admit(app, id.to_string(), generation.clone(), prompts).await?;
    let mut run = Run::submit(app, admitted, &generation, in_flight)?;
    let wire = Wire {
        api,
        id: match api {
            Api::Chat => format!("chatcmpl-{id}"),
            Api::Completion => format!("cmpl-{id}"),
        },
        created: unix_time(),
        model: generation.model,
        fingerprint: app.fingerprint.clone(),
        logprobs: generation.sampling.logprobs.is_some(),
        vocabulary: Arc::clone(&app.vocabulary),
    };
    match generation.stream {
        Some(options) => {
            run.look_ahead().await?;
            Ok(EventStream::new(wire, run, options).into_response())
        }
        None => {
            let answer = complete(&wire, run).await?;
            let headers = [(header::CONTENT_TYPE, "application/json")];
            Ok((headers, answer.to_string()).into_response())
        }
    }
}
