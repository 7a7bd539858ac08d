//! Why a login was refused: for the administrator, and for the client.

use crate::session::security::without_advice;

/// A refused login. Strangers read the reply, so that it names nothing of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// For the log.
    pub(crate) reason: String,
    /// After `Login incorrect. : `; empty without a reason for the client.
    pub(crate) reply: String,
}

impl Refusal {
    /// A wrong user name or password.
    pub(super) fn wrong_password() -> Self {
        Self {
            reason: "wrong user name or password".to_owned(),
            reply: String::new(),
        }
    }
}

/// A reason that the client may read, except the advice for administrators at its end.
impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self {
            reply: without_advice(&reason).to_owned(),
            reason,
        }
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}
