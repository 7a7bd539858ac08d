//! `USER` and `PASS`.

use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::{Password, Text};
use gridhaul_protocol::path::RemotePath;
use gridhaul_protocol::reply::Reply;
use gridhaul_transfer::NodeAccount;

use super::control::Control;
use super::{End, Session, User};
use crate::events::Event;
use crate::passwords::Grant;

/// How far a client is with logging in.
#[derive(Debug)]
pub(super) enum Login {
    /// Not yet; so many passwords were wrong.
    Nobody { failures: u32 },
    /// A name was given.
    Named { name: String, failures: u32 },
    /// Done.
    Done(User),
}

impl Default for Login {
    fn default() -> Self {
        Self::Nobody { failures: 0 }
    }
}

impl Login {
    pub(super) fn user(&self) -> Option<&User> {
        match self {
            Self::Done(user) => Some(user),
            Self::Nobody { .. } | Self::Named { .. } => None,
        }
    }

    /// Of a client that has logged in.
    pub(super) fn change_directory(&mut self, directory: RemotePath) {
        if let Self::Done(user) = self {
            user.directory = directory;
        }
    }
}

impl Session {
    /// `USER`.
    pub(super) fn name(&mut self, name: &Text) -> Reply {
        let failures = match self.login {
            Login::Done(_) => return already_logged_in(),
            Login::Nobody { failures } | Login::Named { failures, .. } => failures,
        };
        let reply = Reply::new(331, format!("Password required for {name}."));
        self.login = Login::Named {
            name: name.as_str().to_owned(),
            failures,
        };
        reply
    }

    /// `PASS`.
    pub(super) async fn password(
        &mut self,
        control: &mut Control,
        password: &Password,
    ) -> Result<Reply, End> {
        let (name, failures) = match std::mem::take(&mut self.login) {
            Login::Named { name, failures } => (name, failures),
            done @ Login::Done(_) => {
                self.login = done;
                return Ok(already_logged_in());
            }
            nobody @ Login::Nobody { .. } => {
                self.login = nobody;
                return Ok(Reply::new(503, "Login with USER first."));
            }
        };
        let reason = match self.grant(&name, password).await {
            Some(grant) => match self.attach(&name, grant).await {
                Ok(user) => {
                    self.login = Login::Done(user);
                    return Ok(Reply::new(230, format!("User {name} logged in.")));
                }
                Err(reason) => reason,
            },
            // The same words for a wrong name and a wrong password.
            None => "Access denied by configuration.".to_owned(),
        };
        self.refuse(control, &name, failures + 1, &reason).await
    }

    /// What the client may use under this name with this password.
    async fn grant(&self, name: &str, password: &Password) -> Option<Grant> {
        let config = &self.settings.config;
        let passwords = &self.settings.passwords;
        if let Some(anonymous) = &config.anonymous
            && !passwords.has(name)
            && anonymous
                .names
                .iter()
                .any(|allowed| allowed == name || allowed == "*")
        {
            return Some(Grant {
                root: None,
                read_only: !anonymous.write,
            });
        }
        config.passwords.as_ref()?;
        let password = password.as_bytes().to_vec();
        self.shared
            .verifier
            .verify(Arc::clone(passwords), name.to_owned(), password)
            .await
    }

    /// Opens the files that the user may use.
    async fn attach(&self, name: &str, grant: Grant) -> Result<User, String> {
        let config = &self.settings.config;
        let account = NodeAccount {
            name: name.to_owned(),
            account: None,
            root: grant.root.unwrap_or_else(|| config.root.clone()),
            read_only: grant.read_only,
            admission: config.data.admission(self.peer),
        };
        let read_only = account.read_only;
        let node = Arc::clone(&self.shared.node);
        let attached = tokio::task::spawn_blocking(move || node.attach(&account)).await;
        let node = attached
            .map_err(|_| "The server failed.".to_owned())?
            .map_err(|error| error.to_string())?;
        self.shared.journal.publish(&Event::LoggedIn {
            session: self.id,
            user: name,
            read_only,
        });
        Ok(User {
            name: name.to_owned(),
            node,
            directory: RemotePath::root(),
        })
    }

    async fn refuse(
        &mut self,
        control: &mut Control,
        name: &str,
        failures: u32,
        reason: &str,
    ) -> Result<Reply, End> {
        /// Whoever guesses passwords has to wait.
        const DELAY: Duration = Duration::from_secs(1);

        self.shared.journal.publish(&Event::LoginFailed {
            session: self.id,
            peer: self.peer,
            user: name,
            reason,
        });
        self.login = Login::Nobody { failures };
        tokio::time::sleep(DELAY).await;
        let reply = Reply::new(530, format!("Login incorrect. : {reason}"));
        if failures >= self.settings.config.limits.login_attempts {
            self.send(control, &reply);
            return Err(End::WrongLogins);
        }
        Ok(reply)
    }
}

fn already_logged_in() -> Reply {
    Reply::new(503, "You are already logged in.")
}
