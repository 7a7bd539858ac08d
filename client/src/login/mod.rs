//! Logging in.

mod gsi;
mod identity;

use gridhaul_protocol::command::{Command, Password, Text};

pub use gsi::ExpectedServer;
pub use identity::{Identity, IdentityError, IdentityPlaces};

use crate::control::{Control, ControlError, accepted};
use crate::location::Server;

/// How to log in.
#[derive(Debug, Clone)]
pub enum Login {
    /// With a certificate.
    Certificate {
        /// Who the user is.
        identity: Identity,
        /// Who the server must be.
        expected: ExpectedServer,
    },
    /// With a name and a password.
    Password {
        /// The name.
        user: Text,
        /// The password.
        password: Password,
    },
    /// Without an account (RFC 1635).
    Anonymous,
}

impl Login {
    /// Who the user is, where a certificate says it.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Certificate { identity, .. } => Some(identity),
            Self::Password { .. } | Self::Anonymous => None,
        }
    }
}

/// Logs in.
///
/// # Errors
///
/// When the server refuses.
pub(crate) async fn log_in(
    control: &mut Control,
    server: &Server,
    login: &Login,
) -> Result<(), ControlError> {
    let (user, password) = match login {
        Login::Certificate { identity, expected } => {
            gsi::authenticate(control, server, identity, expected).await?;
            // The name stands for the account of the grid-mapfile; the password has no meaning.
            let user = server.user.as_deref().unwrap_or(":globus-mapping:");
            (Text::new(user), Password::new("dummy"))
        }
        Login::Password { user, password } => (Some(user.clone()), Some(password.clone())),
        Login::Anonymous => (Text::new("anonymous"), Password::new("gridhaul@")),
    };
    let (Some(user), Some(password)) = (user, password) else {
        return Err(ControlError::Unsendable("the name of the user"));
    };
    let reply = accepted("USER", control.ask(&Command::User(user)).await?)?;
    if reply.is_intermediate() {
        control.must(&Command::Pass(password)).await?;
    }
    Ok(())
}
