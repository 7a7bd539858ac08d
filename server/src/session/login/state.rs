//! How far a client is with logging in.

use std::time::Duration;

use gridhaul_protocol::command::{Password, Text};
use gridhaul_protocol::reply::Reply;

use super::admission::{Admitted, admit_by_certificate, admit_by_password, admit_local_user};
use super::attach::attach;
use super::refusal::Refusal;
use crate::admission::Misconduct;
use crate::passwords::Unverified;
use crate::session::call::LoginCall;
use crate::session::context::Context;
use crate::session::end::{Arrival, End};
use crate::session::replies;
use crate::session::security::ControlSecurity;
use crate::session::user::{LocalUser, User};
use crate::telemetry::Event;

/// A command that logs a client in.
#[derive(Debug)]
pub(crate) enum LoginCommand {
    /// `USER`.
    User(Text),
    /// `PASS`.
    Pass(Password),
    /// `ACCT`.
    Acct,
}

/// The login of a session.
#[derive(Debug, Default)]
pub(crate) struct Login {
    state: State,
    /// The user, if the program that started the session has authenticated it: sshd. Any name and password will do.
    local_user: Option<LocalUser>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    LoggedOut,
    /// `USER` was sent.
    Named(String),
    LoggedIn(Box<User>),
}

impl Login {
    pub(crate) fn of_local_user(user: LocalUser) -> Self {
        Self {
            state: State::LoggedOut,
            local_user: Some(user),
        }
    }

    pub(crate) fn user(&self) -> Option<&User> {
        match &self.state {
            State::LoggedIn(user) => Some(user),
            State::LoggedOut | State::Named(_) => None,
        }
    }

    pub(crate) fn user_mut(&mut self) -> Option<&mut User> {
        match &mut self.state {
            State::LoggedIn(user) => Some(user),
            State::LoggedOut | State::Named(_) => None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.user().is_some()
    }

    pub(crate) fn has_local_user(&self) -> bool {
        self.local_user.is_some()
    }

    /// Whether the client has proved no identity, at least so far.
    pub(crate) fn is_anonymous(&self, security: &ControlSecurity) -> bool {
        match self.user() {
            Some(user) => user.is_anonymous,
            None => security.initiator().is_none() && self.local_user.is_none(),
        }
    }

    /// Back to the state before `USER`.
    pub(crate) fn reset(&mut self) {
        self.state = State::LoggedOut;
    }

    pub(crate) async fn execute(
        &mut self,
        call: &mut LoginCall<'_>,
        security: &ControlSecurity,
        command: LoginCommand,
    ) -> Result<Reply, End> {
        match command {
            LoginCommand::User(name) => Ok(self.name(&name)),
            LoginCommand::Pass(password) => self.password(call, security, &password).await,
            // RFC 959 5.4.
            LoginCommand::Acct => {
                let text = "ACCT is not needed: the user name says it all.";
                Ok(Reply::new(202, text))
            }
        }
    }

    fn name(&mut self, name: &Text) -> Reply {
        if self.is_done() {
            return already_logged_in();
        }
        self.state = State::Named(name.as_str().to_owned());
        Reply::new(331, format!("Password required for {name}."))
    }

    async fn password(
        &mut self,
        call: &mut LoginCall<'_>,
        security: &ControlSecurity,
        password: &Password,
    ) -> Result<Reply, End> {
        let name = match std::mem::take(&mut self.state) {
            State::Named(name) => name,
            done @ State::LoggedIn(_) => {
                self.state = done;
                return Ok(already_logged_in());
            }
            State::LoggedOut => return Ok(Reply::new(503, "Login with USER first.")),
        };
        let context = call.context;
        let admitted = match (security.initiator(), &self.local_user) {
            (Some(initiator), _) => {
                let admitted = admit_by_certificate(context, initiator, &name).await;
                admitted.map_err(Refusal::from)
            }
            (None, Some(user)) => Ok(admit_local_user(context, user.clone())),
            (None, None) => match admit_by_password(context, &name, password).await {
                Err(reason @ (Unverified::OverBudget(_) | Unverified::Refused(_))) => {
                    return Err(turn_away(call, &name, &reason));
                }
                Err(Unverified::Wrong) => {
                    let has_anonymous = context.config().anonymous.is_some();
                    Err(Refusal::wrong_password(&name, has_anonymous))
                }
                Ok(admitted) => Ok(admitted),
            },
        };
        let refusal = match admitted {
            Ok(admitted) if context.shared.link.get().is_some() => {
                let is_anonymous = admitted.is_anonymous;
                call.conduct.log_in(!is_anonymous)?;
                return Err(End::HandedOver(Arrival { name, is_anonymous }));
            }
            Ok(admitted) => {
                let proved = !admitted.is_anonymous;
                match self.log_in(context, security, admitted).await {
                    Ok(reply) => {
                        call.conduct.log_in(proved)?;
                        return Ok(reply);
                    }
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => refusal,
        };
        self.refuse(call, security, &name, &refusal).await
    }

    /// Logs the client in, once its files are open. Returns the reply, or why they cannot be opened.
    pub(crate) async fn log_in(
        &mut self,
        context: &Context,
        security: &ControlSecurity,
        admitted: Admitted,
    ) -> Result<Reply, Refusal> {
        let user = attach(context, security, admitted).await?;
        let reply = Reply::new(230, format!("User {} logged in.", user.name));
        self.state = State::LoggedIn(Box::new(user));
        Ok(reply)
    }

    /// The reply to a login that was refused.
    pub(crate) async fn refuse(
        &self,
        call: &mut LoginCall<'_>,
        security: &ControlSecurity,
        name: &str,
        refusal: &Refusal,
    ) -> Result<Reply, End> {
        /// Slows down password guessing. The session holds only its connection during this time, which has not logged in
        /// and can be displaced.
        const DELAY: Duration = Duration::from_secs(1);

        let identity = security.identity();
        publish_failure(call, name, identity, &refusal.reason);
        call.conduct.count_failure();
        call.conduct.penalize(Misconduct::Refused);
        let reply = if identity.is_some() {
            replies::not_mapped(&refusal.reply)
        } else {
            tokio::time::sleep(DELAY).await;
            replies::login_incorrect(&refusal.reply)
        };
        if let Err(end) = call.check_failures() {
            call.send(&reply);
            return Err(end);
        }
        Ok(reply)
    }
}

/// Ends the session of a client whose password was not checked, so that the attempt costs no more than this.
fn turn_away(call: &LoginCall<'_>, name: &str, reason: &Unverified) -> End {
    if matches!(reason, Unverified::OverBudget(_)) {
        call.conduct.penalize(Misconduct::Refused);
    }
    let reason = reason.to_string();
    publish_failure(call, name, None, &reason);
    End::TryLater(reason)
}

fn publish_failure(call: &LoginCall<'_>, user: &str, identity: Option<&str>, reason: &str) {
    call.context.publish(&Event::LoginFailed {
        session: call.context.id,
        peer: call.context.peer,
        user,
        identity,
        reason,
    });
}

fn already_logged_in() -> Reply {
    Reply::new(503, "You are already logged in.")
}
