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
    /// A wrong user name or password. The log says whether it is the name of anonymous users where there are none.
    pub(super) fn wrong_password(name: &str, has_anonymous: bool) -> Self {
        let reason = match name {
            "anonymous" | "ftp" if !has_anonymous => {
                "wrong user name or password: there are no anonymous users, because the setting anonymous is off"
            }
            _ => "wrong user name or password",
        };
        Self {
            reason: reason.to_owned(),
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
