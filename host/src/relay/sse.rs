//! Answers as server-sent events (WHATWG HTML, section 9.2), in OpenAI's form: one JSON object per event,
//! `[DONE]` at the end. An error is an event with an `error` object, and the last one. On request each field
//! of a plugin is an event `field` of its own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::{Run, Update, Wire};
use crate::api::StreamOptions;

/// A streamed answer.
pub struct EventStream {
    wire: Wire,
    run: Run,
    options: StreamOptions,
    opened: Vec<bool>,
    queue: VecDeque<Bytes>,
    over: bool,
}

impl EventStream {
    /// Streams `run`.
    pub fn new(wire: Wire, run: Run, options: StreamOptions) -> Self {
        Self {
            opened: vec![false; run.answers()],
            wire,
            run,
            options,
            queue: VecDeque::new(),
            over: false,
        }
    }

    fn send(&mut self, event: &Value) {
        self.queue.push_back(format!("data: {event}\n\n").into());
    }

    fn send_chunk(&mut self, mut chunk: Value) {
        if self.options.include_usage {
            chunk["usage"] = Value::Null;
        }
        self.send(&chunk);
    }

    /// Fields are told of once their text is out.
    fn send_fields(&mut self, update: &Update) {
        for field in &update.fields {
            let event = format!("event: field\ndata: {field}\n\n");
            self.queue.push_back(event.into());
        }
    }

    fn update(&mut self, update: &Update) {
        if !std::mem::replace(&mut self.opened[update.answer], true)
            && let Some(opening) = self.wire.opening(update.answer)
        {
            self.send_chunk(opening);
        }
        let mut chunks = self.wire.update(update);
        let complete = self.run.is_complete();
        // Without a chunk for the usage, the last chunk of the text brings what Formwork adds.
        let last = match complete && !self.options.include_usage {
            true => chunks.pop(),
            false => None,
        };
        for chunk in chunks {
            self.send_chunk(chunk);
        }
        if !complete {
            return self.send_fields(update);
        }
        if let Some(mut last) = last {
            last["formwork"] = self.run.formwork();
            self.send(&last);
            self.send_fields(update);
        } else {
            self.send_fields(update);
            let mut usage = self.wire.usage(&self.run);
            usage["formwork"] = self.run.formwork();
            self.send(&usage);
        }
        self.queue
            .push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.over = true;
    }
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            match ready!(self.run.poll_next(context)) {
                Some(Ok(update)) => self.update(&update),
                Some(Err(error)) => {
                    let event = json!(error.body());
                    self.send(&event);
                    self.over = true;
                }
                None => self.over = true,
            }
        }
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        // Proxies that buffer would hold the stream back.
        let unbuffered = [("x-accel-buffering", "no")];
        (headers, unbuffered, Body::new(self)).into_response()
    }
}
