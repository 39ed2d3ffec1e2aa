//! The exported side of the world, generic over the format.

use crate::driver::{self, Driver};
use crate::{
    FailureKind, Fallback, Format, LatePolicy, Observed, Request, RetryPolicy, Value, Verdict, log,
};
use bindings::exports::formwork::plugin::{decoding, plugin};
use bindings::formwork::plugin::types;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Once;

/// What wit-bindgen makes of the world.
#[allow(missing_docs, unsafe_code, unreachable_pub, clippy::all)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "format",
        pub_export_macro: true,
        runtime_path: "wit_bindgen::rt",
    });
}

/// The component of one format; see [`export!`](crate::export).
pub struct Component<T>(PhantomData<T>);

impl<T: Format> plugin::Guest for Component<T> {
    fn describe() -> plugin::Description {
        report_panics();
        plugin::Description {
            params: T::PARAMS.to_owned(),
            on_late: match T::ON_LATE {
                LatePolicy::Hold => plugin::LatePolicy::Hold,
                LatePolicy::Fail => plugin::LatePolicy::Fail,
            },
        }
    }
}

impl<T: Format> decoding::Guest for Component<T> {
    type Session = Session<T>;
}

/// One guest session.
pub struct Session<T>(RefCell<Driver<T>>);

impl<T: Format> decoding::GuestSession for Session<T> {
    fn open(request: decoding::Request) -> Result<decoding::Session, types::Failure> {
        report_panics();
        let about = Request {
            prompt: request.prompt,
            max_tokens: request.max_tokens,
        };
        let driver = Driver::<T>::open(&request.params, &about)?;
        Ok(decoding::Session::new(Session(RefCell::new(driver))))
    }

    fn plan(&self, observed: decoding::Observed) -> Result<Vec<decoding::Action>, types::Failure> {
        let seen = match observed {
            decoding::Observed::Started => Observed::Started,
            decoding::Observed::Sampled(token) => Observed::Sampled(token),
            decoding::Observed::Completed(values) => {
                Observed::Completed(values.into_iter().map(Value::from).collect())
            }
        };
        let actions = self.0.borrow_mut().plan(seen)?;
        Ok(actions.into_iter().map(decoding::Action::from).collect())
    }

    fn check(&self, value: decoding::Value) -> decoding::Verdict {
        match self.0.borrow_mut().check(&value.into()) {
            Verdict::Accept => decoding::Verdict::Accept,
            Verdict::Replace(bytes) => decoding::Verdict::Replace(bytes),
            Verdict::Retry(retry) => decoding::Verdict::Retry(decoding::Retry {
                reason: retry.reason,
                from: retry.from,
            }),
            Verdict::Fail(failure) => decoding::Verdict::Fail(failure.into()),
        }
    }
}

/// A panic becomes a trap; its message goes to the log first.
fn report_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| log::error(info.to_string())));
    });
}

impl From<decoding::Value> for Value {
    fn from(value: decoding::Value) -> Self {
        Self {
            field: value.field,
            bytes: value.bytes,
            attempts: value.attempts,
        }
    }
}

impl From<driver::Action> for decoding::Action {
    fn from(action: driver::Action) -> Self {
        match action {
            driver::Action::Sample { mask, temperature } => Self::Sample(decoding::Sampling {
                mask: mask.0.0,
                temperature,
            }),
            driver::Action::Write(bytes) => Self::Write(bytes),
            driver::Action::Field(walk) => Self::Field(decoding::Field {
                name: walk.name,
                matcher: walk.matcher.0.0,
                max_tokens: walk.max_tokens,
                temperature: walk.temperature,
                check: walk.check,
                retry: walk.retry.into(),
            }),
            driver::Action::Finish => Self::Finish,
        }
    }
}

impl From<RetryPolicy> for decoding::RetryPolicy {
    fn from(policy: RetryPolicy) -> Self {
        Self {
            attempts: policy.attempts,
            heat: policy.heat,
            hint: policy.hint,
            exhausted: match policy.exhausted {
                Fallback::Fail => decoding::Fallback::Fail,
                Fallback::Write(bytes) => decoding::Fallback::Write(bytes),
                Fallback::Accept => decoding::Fallback::Accept,
            },
        }
    }
}

impl From<crate::Failure> for types::Failure {
    fn from(failure: crate::Failure) -> Self {
        Self {
            kind: match failure.kind {
                FailureKind::InvalidParams => types::FailureKind::InvalidParams,
                FailureKind::Unsatisfiable => types::FailureKind::Unsatisfiable,
                FailureKind::Exhausted => types::FailureKind::Exhausted,
                FailureKind::Internal => types::FailureKind::Internal,
            },
            message: failure.message,
        }
    }
}

impl From<types::Failure> for crate::Failure {
    fn from(failure: types::Failure) -> Self {
        Self {
            kind: match failure.kind {
                types::FailureKind::InvalidParams => FailureKind::InvalidParams,
                types::FailureKind::Unsatisfiable => FailureKind::Unsatisfiable,
                types::FailureKind::Exhausted => FailureKind::Exhausted,
                types::FailureKind::Internal => FailureKind::Internal,
            },
            message: failure.message,
        }
    }
}
