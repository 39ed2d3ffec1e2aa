//! From a valid request to sequences that the engine can run: the prompt in tokens, the plugin pinned to
//! a digest, its params checked, one session per answer.

mod conversation;
mod date;
mod format;
mod prompt;
mod reasoning;

pub use format::{PinnedFormat, Validators};
pub use prompt::{ChatPrompt, Encoded, Specials, text_prompt};
pub use reasoning::{Thinking, thinks_by_itself};

use std::sync::Arc;

use formwork_engine::{Constraint, Request, TokenId};
use formwork_sandbox::OpenRequest;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::api::Generation;
use crate::app::App;
use crate::constrain::{Guided, Planner, Reports, Setting};
use crate::errors::ApiError;
use crate::relay::{ChannelSink, Tagged};
use format::Metered;
use reasoning::Reasoned;

/// What is ready to be submitted.
pub struct Admitted {
    /// One per answer, in the order of the answers: those of the first prompt first.
    pub requests: Vec<Request>,
    /// The same answers, as the relay follows them.
    pub answers: Vec<Answer>,
    /// Where the engine tells about all of them.
    pub events: UnboundedReceiver<Tagged>,
    /// The plugin, in use for as long as this lives.
    pub format: Option<PinnedFormat>,
}

/// One answer to come.
pub struct Answer {
    /// Which of the request's prompts it continues.
    pub prompt: usize,
    /// The constraint's notes, if there is one.
    pub reports: Option<Arc<Reports>>,
    /// Whether reasoning comes first.
    pub thinking: Thinking,
}

/// Prepares the sequences of one request on a thread where blocking is allowed. `prompts` makes the
/// tokens.
///
/// # Errors
/// 400 for a prompt that is too long or params that the plugin does not take, 404 for an unknown plugin,
/// 422 and 502 for what its session says, 503 when no session is free.
pub async fn admit<F>(
    app: &Arc<App>,
    id: String,
    generation: Generation,
    prompts: F,
) -> Result<Admitted, ApiError>
where
    F: FnOnce(&App) -> Result<Vec<Encoded>, ApiError> + Send + 'static,
{
    app.blocking(move |app| {
        let prompts = prompts(app)?;
        prepare(app, &id, &generation, prompts)
    })
    .await
}

fn prepare(
    app: &App,
    id: &str,
    generation: &Generation,
    prompts: Vec<Encoded>,
) -> Result<Admitted, ApiError> {
    let format = match &generation.format {
        Some(choice) => Some(PinnedFormat::resolve(app, choice)?),
        None => None,
    };
    let seed = match generation.seed {
        Some(seed) => seed,
        None => getrandom::u64().map_err(ApiError::internal)?,
    };
    let (sender, events) = unbounded_channel();
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    for (index, Encoded { tokens, thinking }) in prompts.into_iter().enumerate() {
        let max_tokens = max_tokens(app, generation, tokens.len())?;
        let prompt: Arc<[TokenId]> = tokens.into();
        for copy in 0..generation.n {
            let mut sampling = generation.sampling.clone();
            sampling.seed = seed.wrapping_add(copy as u64);
            let open = OpenRequest {
                params: String::new(),
                prompt: Arc::clone(&prompt),
                max_tokens: u32::try_from(max_tokens).unwrap_or(u32::MAX),
                request_id: id.to_owned(),
            };
            let aims = Aims {
                temperature: sampling.temperature,
                thinking,
            };
            let guided = format.as_ref();
            let guided = guided.map(|format| constraint(app, format, open, aims));
            let (constraint, reports) = guided.transpose()?.unzip();
            requests.push(Request {
                prompt: prompt.to_vec(),
                max_tokens,
                sampling,
                end: end_tokens(app, generation),
                constraint,
                sink: Box::new(ChannelSink::new(answers.len(), sender.clone())),
                priority: 0,
            });
            answers.push(Answer {
                prompt: index,
                reports,
                thinking,
            });
        }
    }
    Ok(Admitted {
        requests,
        answers,
        events,
        format,
    })
}

/// What a constraint needs to know of its request.
struct Aims {
    temperature: f32,
    thinking: Thinking,
}

fn constraint(
    app: &App,
    format: &PinnedFormat,
    open: OpenRequest,
    aims: Aims,
) -> Result<(Box<dyn Constraint>, Arc<Reports>), ApiError> {
    let most = open.max_tokens;
    let session = format.open(app, open)?;
    let reports = Reports::new();
    let setting = Setting {
        vocabulary: app.vocabulary.as_ref().clone(),
        temperature: aims.temperature,
        max_tokens: most as usize,
        on_late: format.on_late(),
        reports: Arc::clone(&reports),
    };
    let planner = Metered::new(session, Arc::clone(&app.metrics), format.reference.clone());
    let planner: Box<dyn Planner> = match aims.thinking {
        Thinking::No => Box::new(planner),
        thinking => {
            let reasoned = Reasoned::new(planner, &app.grammars, thinking, most);
            Box::new(reasoned.map_err(ApiError::internal)?)
        }
    };
    Ok((Box::new(Guided::new(planner, setting)), reports))
}

fn end_tokens(app: &App, generation: &Generation) -> Vec<TokenId> {
    if generation.ignore_eos {
        return Vec::new();
    }
    app.model.tokenizer().end_tokens().to_vec()
}

/// How many tokens an answer may have after a prompt of `prompt` tokens.
fn max_tokens(app: &App, generation: &Generation, prompt: usize) -> Result<usize, ApiError> {
    let context = app.limits.max_context;
    let room = context.saturating_sub(prompt);
    let too_long = |param, message: String| {
        Err(ApiError::invalid(param, message).code("context_length_exceeded"))
    };
    if room == 0 {
        let message = format!(
            "the prompt has {prompt} tokens and the context holds {context}: no room for an answer"
        );
        return too_long(generation.prompt_field, message);
    }
    match generation.max_tokens {
        None => Ok(app.limits.default_max_tokens.min(room)),
        Some(wanted) if wanted <= room => Ok(wanted),
        Some(wanted) => {
            let message = format!(
                "`max_tokens` is {wanted}, but after a prompt of {prompt} tokens the context of \
                 {context} has room for {room}"
            );
            too_long("max_tokens", message)
        }
    }
}
