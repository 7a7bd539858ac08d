//! Logging in.

mod error;
mod gsi;
mod identity;
mod places;
mod roots;

use gridhaul_protocol::command::{Command, Password, Text};
use gridhaul_security::tls::NamedServer;

pub use error::IdentityError;
pub use gsi::ExpectedServer;
pub use identity::{Identity, IdentityPlaces};
pub(crate) use places::Environment;
pub use roots::roots;

use crate::control::{Control, ControlError, SshSettings, accepted};
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
    /// In TLS, with a certificate of the server only (RFC 4217).
    Tls {
        /// Who the server must be.
        server: NamedServer,
        /// As whom.
        account: Account,
    },
    /// In the clear.
    Clear(Account),
    /// As the user whom ssh has authenticated.
    Ssh(SshSettings),
}

/// As whom to log in without a certificate.
#[derive(Debug, Clone)]
pub enum Account {
    /// With a name and a password.
    User {
        /// The name.
        name: Text,
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
            Self::Tls { .. } | Self::Clear(_) | Self::Ssh(_) => None,
        }
    }

    /// Whether the session is in TLS with a certificate of the server only.
    pub(crate) fn has_tls(&self) -> bool {
        matches!(self, Self::Tls { .. })
    }
}

impl Account {
    fn credentials(&self) -> (Option<Text>, Option<Password>) {
        match self {
            Self::User { name, password } => (Some(name.clone()), Some(password.clone())),
            Self::Anonymous => (Text::new("anonymous"), Password::new("gridhaul@")),
        }
    }
}

/// Logs in. Returns the channel with its protection.
///
/// # Errors
///
/// When the server refuses, or is another one.
pub(crate) async fn log_in(
    mut control: Control,
    server: &Server,
    login: &Login,
) -> Result<Control, ControlError> {
    let (user, password) = match login {
        Login::Certificate { identity, expected } => {
            gsi::authenticate(&mut control, server, identity, expected).await?;
            // The name stands for the account of the grid-mapfile; the password has no meaning.
            let user = server.user.as_deref().unwrap_or(":globus-mapping:");
            (Text::new(user), Password::new("dummy"))
        }
        Login::Tls { server, account } => {
            control = control.secure(server).await?;
            account.credentials()
        }
        Login::Clear(account) => account.credentials(),
        // The server accepts any name and password.
        Login::Ssh(_) => Account::Anonymous.credentials(),
    };
    let (Some(user), Some(password)) = (user, password) else {
        return Err(ControlError::Unsendable("the name of the user"));
    };
    let reply = accepted("USER", control.ask(&Command::User(user)).await?)?;
    if reply.is_intermediate() {
        control.must(&Command::Pass(password)).await?;
    }
    Ok(control)
}
