//! An admitted plugin.

use crate::bindings::FormatPre;
use crate::bindings::exports::formwork::plugin::plugin as wit;
use crate::guest::Guest;
use crate::pool::Needs;
use crate::sandbox::House;
use crate::session::Run;
use crate::{GuestError, Session, TokenId};
use std::sync::Arc;

/// A plugin that was admitted: compiled, tried out, ready to open sessions. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    inner: Arc<Inner>,
}

struct Inner {
    house: Arc<House>,
    pre: FormatPre<Guest>,
    facts: Facts,
}

/// What is known of a plugin.
pub(crate) struct Facts {
    pub(crate) digest: String,
    pub(crate) size: usize,
    pub(crate) description: Description,
    pub(crate) needs: Needs,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// JSON Schema of [`OpenRequest::params`].
    pub params: serde_json::Value,
    /// What to do with a row whose plugin missed the step deadline.
    pub on_late: LatePolicy,
}

/// What to do with a row whose plugin missed the step deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatePolicy {
    /// It sits the step out.
    Hold,
    /// It fails.
    Fail,
}

impl From<wit::LatePolicy> for LatePolicy {
    fn from(policy: wit::LatePolicy) -> Self {
        match policy {
            wit::LatePolicy::Hold => Self::Hold,
            wit::LatePolicy::Fail => Self::Fail,
        }
    }
}

/// What a session is opened with.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// JSON, valid under [`Description::params`]; the caller has checked it.
    pub params: String,
    /// The prompt as the model sees it.
    pub prompt: Arc<[TokenId]>,
    /// Most tokens of the output.
    pub max_tokens: u32,
    /// Names the request in logs; the guest does not see it.
    pub request_id: String,
}

impl Plugin {
    pub(crate) fn new(house: Arc<House>, pre: FormatPre<Guest>, facts: Facts) -> Self {
        Self {
            inner: Arc::new(Inner { house, pre, facts }),
        }
    }

    /// SHA-256 of the component's bytes, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.inner.facts.digest
    }

    /// Bytes of the component.
    pub fn size(&self) -> usize {
        self.inner.facts.size
    }

    /// What the plugin says of itself.
    pub fn description(&self) -> &Description {
        &self.inner.facts.description
    }

    /// Opens a session for one output: an instance from the pool, and the guest's `open`.
    ///
    /// # Errors
    /// [`GuestError::Busy`] when the pool is full, [`GuestError::Failure`] when the guest turns the
    /// request down, and whatever else can befall a call.
    pub fn open(&self, request: &OpenRequest) -> Result<Session, GuestError> {
        let house = &self.inner.house;
        let permit = house.capacity.take(self.inner.facts.needs)?;
        let run = Run::start(house, &self.inner.pre, permit, house.limits.open_deadline())?;
        Session::open(run, request)
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("digest", &self.digest())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
