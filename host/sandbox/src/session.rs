//! One guest session: one sequence's walk through a plugin.

use crate::answer::{self, Bounds};
use crate::bindings::exports::formwork::plugin::decoding as wit;
use crate::bindings::{Format, FormatPre};
use crate::failure::truncate;
use crate::guest::Guest;
use crate::limits::Deadline;
use crate::pool::{Permit, ticks};
use crate::sandbox::House;
use crate::{
    Action, GuestError, LogLine, MAX_MESSAGE_BYTES, Observed, OpenRequest, Value, Verdict,
};
use std::sync::Arc;
use wasmtime::component::ResourceAny;
use wasmtime::{Store, Trap, UpdateDeadline};

/// One sequence's walk through a plugin: a pure function of the plugin, the request, the vocabulary and
/// what it was told. Dropping it gives its place in the pool back.
pub struct Session {
    run: Run,
    session: ResourceAny,
    request_id: String,
}

impl Session {
    pub(crate) fn open(mut run: Run, request: &OpenRequest) -> Result<Self, GuestError> {
        let deadline = run.house.limits.open_deadline();
        let wit_request = wit::Request {
            params: request.params.clone(),
            prompt: request.prompt.to_vec(),
            max_tokens: request.max_tokens,
        };
        let session = run
            .call(deadline, |format, store| {
                let guest = format.formwork_plugin_decoding();
                guest.session().call_open(store, &wit_request)
            })?
            .map_err(|failure| GuestError::Failure(failure.into()))?;
        Ok(Self {
            run,
            session,
            request_id: request.request_id.clone(),
        })
    }

    /// Tells the guest what happened and asks what comes next. At least one action; a `Sample` or
    /// `Finish` only at the end.
    ///
    /// # Errors
    /// [`GuestError::Failure`] when the guest gives up; after any other error the session is closed.
    pub fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        let limits = &self.run.house.limits;
        let deadline = match observed {
            Observed::Started => limits.first_call_deadline(),
            _ => limits.call_deadline(),
        };
        let session = self.session;
        let observed = answer::observed(observed);
        let actions = self
            .run
            .call(deadline, |format, store| {
                let guest = format.formwork_plugin_decoding();
                guest.session().call_plan(store, session, &observed)
            })?
            .map_err(|failure| GuestError::Failure(failure.into()))?;
        let bounds = self.bounds();
        let taken = answer::actions(actions, &mut self.run.store.data_mut().table, bounds);
        self.run.close_unless(taken)
    }

    /// Asks the guest's opinion of a field's value.
    ///
    /// # Errors
    /// After any error the session is closed.
    pub fn check(&mut self, value: &Value) -> Result<Verdict, GuestError> {
        let (session, deadline) = (self.session, self.run.house.limits.call_deadline());
        let length = value.bytes.len();
        let value = answer::value(value.clone());
        let verdict = self.run.call(deadline, |format, store| {
            let guest = format.formwork_plugin_decoding();
            guest.session().call_check(store, session, &value)
        })?;
        let bounds = self.bounds();
        self.run
            .close_unless(answer::verdict(verdict, length, bounds))
    }

    /// The log lines written since the last call of this.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.run.store.data_mut().log.lines)
    }

    /// The request that the session was opened for.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    fn bounds(&self) -> Bounds {
        let limits = &self.run.house.limits;
        Bounds {
            actions: limits.actions,
            text_bytes: limits.text_bytes,
            attempts: limits.attempts,
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// An instance of a component with its store.
pub(crate) struct Run {
    format: Format,
    store: Store<Guest>,
    house: Arc<House>,
    closed: bool,
    /// Given back after the store: fields are dropped in order.
    _permit: Permit,
}

impl Run {
    pub(crate) fn start(
        house: &Arc<House>,
        pre: &FormatPre<Guest>,
        permit: Permit,
        deadline: Deadline,
    ) -> Result<Self, GuestError> {
        let guest = Guest::new(house.grammars.clone(), &house.limits);
        let mut store = Store::new(&house.engine, guest);
        store.data_mut().begin(deadline);
        store.limiter(|guest| &mut guest.memory);
        store.epoch_deadline_callback(|mut store| {
            Ok(match store.data_mut().extension() {
                Some(waited) => UpdateDeadline::Continue(ticks(waited)),
                None => UpdateDeadline::Interrupt,
            })
        });
        store.set_hostcall_fuel(house.limits.transfer_bytes);
        store.set_epoch_deadline(ticks(deadline.limit));
        match pre.instantiate(&mut store) {
            Ok(format) => Ok(Self {
                format,
                store,
                house: house.clone(),
                closed: false,
                _permit: permit,
            }),
            Err(error) => Err(explain(&error, &mut store, deadline)),
        }
    }

    /// Calls into the guest under a deadline.
    pub(crate) fn call<T>(
        &mut self,
        deadline: Deadline,
        call: impl FnOnce(&Format, &mut Store<Guest>) -> wasmtime::Result<T>,
    ) -> Result<T, GuestError> {
        if self.closed {
            return Err(GuestError::Closed);
        }
        self.store.set_epoch_deadline(ticks(deadline.limit));
        self.store.data_mut().begin(deadline);
        // Closed while it runs, so that a panic on the way leaves it closed.
        self.closed = true;
        let result = call(&self.format, &mut self.store);
        self.store.data_mut().log.call += 1;
        match result {
            Ok(value) => {
                self.closed = false;
                Ok(value)
            }
            Err(error) => Err(explain(&error, &mut self.store, deadline)),
        }
    }

    fn close_unless<T>(&mut self, answer: Result<T, String>) -> Result<T, GuestError> {
        answer.map_err(|reason| {
            self.closed = true;
            GuestError::Invalid(reason)
        })
    }
}

/// What a failed call is called.
fn explain(error: &wasmtime::Error, store: &mut Store<Guest>, deadline: Deadline) -> GuestError {
    let guest = store.data_mut();
    if let Some(failure) = guest.failure.take() {
        return GuestError::Failure(failure);
    }
    if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
        return GuestError::Deadline {
            bound: deadline.bound,
            limit: deadline.limit,
        };
    }
    if let Some((bound, limit)) = guest.memory.denied {
        return GuestError::Memory { bound, limit };
    }
    let mut message = format!("{error:#}");
    truncate(&mut message, MAX_MESSAGE_BYTES);
    GuestError::Trap { message }
}
