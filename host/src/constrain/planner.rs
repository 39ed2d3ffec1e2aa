//! A guest as the walk sees it, and its errors as the engine sees them.

use formwork_engine::{ConstraintError, FailureKind};
use formwork_sandbox::{Action, Failure, GuestError, LogLine, Observed, Session, Value, Verdict};

/// What a walk asks of a plugin. A trait, so that plans can be written down in tests.
pub trait Planner: Send {
    /// See [`Session::plan`].
    ///
    /// # Errors
    /// The guest's.
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError>;
    /// See [`Session::check`].
    ///
    /// # Errors
    /// The guest's.
    fn check(&mut self, value: &Value) -> Result<Verdict, GuestError>;
    /// See [`Session::take_log`].
    fn take_log(&mut self) -> Vec<LogLine>;
}

impl Planner for Session {
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        Session::plan(self, observed)
    }

    fn check(&mut self, value: &Value) -> Result<Verdict, GuestError> {
        Session::check(self, value)
    }

    fn take_log(&mut self) -> Vec<LogLine> {
        Session::take_log(self)
    }
}

pub(super) fn failure(failure: Failure) -> ConstraintError {
    use formwork_sandbox::FailureKind as Kind;
    let kind = match failure.kind {
        Kind::InvalidParams => FailureKind::InvalidParams,
        Kind::Unsatisfiable => FailureKind::Unsatisfiable,
        Kind::Exhausted => FailureKind::Exhausted,
        Kind::Internal => FailureKind::Internal,
    };
    ConstraintError {
        kind,
        message: failure.message,
    }
}

pub(super) fn guest_error(error: GuestError) -> ConstraintError {
    match error {
        GuestError::Failure(inner) => failure(inner),
        other => ConstraintError::internal(other.to_string()),
    }
}
