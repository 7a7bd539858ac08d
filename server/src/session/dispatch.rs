//! Carries out commands: passes each group to its part.

use gridhaul_protocol::command::{Command, Text};
use gridhaul_protocol::help;
use gridhaul_protocol::negotiated::{Mechanism, Setting};
use gridhaul_protocol::reply::Reply;

use super::call::Call;
use super::control::{Fault, Request};
use super::end::End;
use super::features::{Conditions, features};
use super::group::{Group, ServerCommand, SessionCommand, UserGroup};
use super::login::LoginCommand;
use super::parts::Session;
use super::replies;
use super::security::SecurityCommand;
use crate::telemetry::Event;

impl Session {
    /// Carries out one command, and sends its replies.
    pub(super) async fn execute(&mut self, request: Request) -> Result<(), End> {
        let reply = match request.content {
            Ok(command) => self.execute_command(command, request.aborted).await?,
            Err(fault) => Some(self.refuse_line(&fault)?),
        };
        if let Some(reply) = reply {
            self.send(&reply);
        }
        Ok(())
    }

    /// Returns the last reply, unless it was sent already.
    async fn execute_command(
        &mut self,
        command: Command,
        aborted: bool,
    ) -> Result<Option<Reply>, End> {
        self.context.publish(&Event::Command {
            session: self.context.id,
            command: &command,
        });
        self.negotiated.observe(&command);
        self.namespace.observe(&command);
        let attempt = self.note_attempt(&command);
        let done = self.carry_out(Group::from(command), aborted).await;
        self.record(attempt.as_ref(), &done);
        done
    }

    /// As [`Session::execute_command`].
    async fn carry_out(&mut self, group: Group, aborted: bool) -> Result<Option<Reply>, End> {
        if aborted && group.takes_long() {
            return Ok(Some(replies::aborted_early()));
        }
        if self.must_authenticate() && !group.precedes_authentication() {
            let text = "Must perform GSSAPI authentication.";
            return Ok(Some(Reply::new(530, text)));
        }
        match group {
            Group::Session(command) => self.execute_for_session(command).map(Some),
            Group::Login(command) => self.log_in(command).await.map(Some),
            Group::Security(command) => self.secure(command).await,
            Group::User(command) => self.execute_for_user(command).await,
        }
    }

    fn execute_for_session(&mut self, command: SessionCommand) -> Result<Reply, End> {
        Ok(match command {
            SessionCommand::Quit => return Err(End::Quit),
            SessionCommand::Rein => self.reinitialize()?,
            SessionCommand::Noop => replies::noop(),
            SessionCommand::Feat => self.features(),
            SessionCommand::Help(topic) => help::reply(topic.as_ref().map(Text::as_str)),
        })
    }

    async fn log_in(&mut self, command: LoginCommand) -> Result<Reply, End> {
        let (mut call, security, login) = self.before_login();
        login.execute(&mut call, security, command).await
    }

    async fn secure(&mut self, command: SecurityCommand) -> Result<Option<Reply>, End> {
        let (mut call, security, login) = self.before_login();
        let is_logged_in = login.is_done();
        let mechanism = match command {
            SecurityCommand::Auth(mechanism) => {
                let authenticated = security.authenticate(&mut call, &mechanism, is_logged_in);
                authenticated.await?
            }
            SecurityCommand::Adat(token) => {
                let taken = security.take_token(&mut call, &token, is_logged_in);
                taken.await?
            }
            SecurityCommand::Wrapped => return Ok(Some(security.refuse())),
            SecurityCommand::ClearChannel => return Ok(Some(security.refuse_clear_channel())),
            SecurityCommand::DataProtection(setting) if is_logged_in => {
                let setting = UserGroup::Setting(Setting::Protection(setting));
                return self.execute_for_user(setting).await;
            }
            SecurityCommand::DataProtection(setting) => {
                let reply = self.security.agree(&mut self.negotiated, setting);
                return Ok(Some(reply));
            }
        };
        if let Some(mechanism) = mechanism {
            self.begin_protected(mechanism);
        }
        Ok(None)
    }

    /// RFC 2228 3: what was negotiated in clear does not count any more.
    fn begin_protected(&mut self, mechanism: Mechanism) {
        self.login.reset();
        self.negotiated.authenticated(mechanism);
    }

    async fn execute_for_user(&mut self, command: UserGroup) -> Result<Option<Reply>, End> {
        let Some(user) = self.login.user_mut() else {
            return Ok(Some(replies::login_required()));
        };
        let mut call = Call {
            context: &mut self.context,
            control: &mut self.control,
            negotiated: &mut self.negotiated,
            user,
        };
        let call = &mut call;
        Ok(Some(match command {
            UserGroup::Setting(setting) => set(call, setting),
            UserGroup::Server(command) => answer(call, command),
            UserGroup::DataPort(command) => match self.data_port.execute(call, command).await {
                Ok(reply) | Err(reply) => reply,
            },
            UserGroup::Transfer(command) => {
                let reply = self.transfers.execute(call, &self.data_port, command);
                reply.await?
            }
            UserGroup::Namespace(command) => self.namespace.execute(call, command).await?,
            UserGroup::Query(command) => return command.execute(call).await,
            UserGroup::Foreign(command) => command.reply(),
        }))
    }

    /// The reply to a line that is not a command.
    fn refuse_line(&mut self, fault: &Fault) -> Result<Reply, End> {
        match fault {
            Fault::Line(error) => {
                if !self.login.is_done() {
                    self.conduct.note_garbage();
                }
                Ok(Reply::new(500, format!("Invalid command: {error}.")))
            }
            Fault::Command(error) => Ok(error.reply()),
            // RFC 2228 3.
            Fault::Unprotected => {
                self.report_unprotected(fault);
                Ok(Reply::new(533, fault.to_string()))
            }
            Fault::Token(_) => {
                self.report_unprotected(fault);
                Err(End::Broken(fault.to_string()))
            }
        }
    }

    fn report_unprotected(&self, fault: &Fault) {
        self.context.publish(&Event::ProtectionBroken {
            session: self.context.id,
            peer: self.context.peer,
            identity: self.security.identity(),
            reason: &fault.to_string(),
        });
    }

    /// Whether GSI is the only way to log in, and the client has not authenticated.
    fn must_authenticate(&self) -> bool {
        let config = self.context.config();
        let without_gsi =
            config.anonymous.is_some() || config.passwords.is_some() || self.login.has_local_user();
        config.security.gsi.is_some()
            && !without_gsi
            && !self.security.is_protected()
            && !self.login.is_done()
    }

    fn features(&self) -> Reply {
        let security = &self.context.config().security;
        let is_protected = self.security.is_protected();
        let is_gsi = self.security.initiator().is_some();
        let is_anonymous = self.login.is_anonymous(&self.security);
        features(&Conditions {
            logged_in: self.login.is_done(),
            has_dcau: !self.security.is_tls(),
            offers_gsi: security.gsi.is_some() && !is_protected,
            offers_tls: security.tls && !is_protected,
            has_tls: security.tls && !is_gsi,
            has_rdma: self.data_port.may_use_rdma(&self.context, is_anonymous),
            facts: self.negotiated.settings().facts,
        })
    }
}

/// A command that only changes what was negotiated.
fn set(call: &mut Call<'_>, setting: Setting) -> Reply {
    let settled = call.negotiated.settle(setting);
    call.user.settle(settled.channels);
    settled.reply
}

fn answer(call: &Call<'_>, command: ServerCommand) -> Reply {
    match command {
        // The command before it has ended already.
        ServerCommand::Abor => Reply::new(226, "Abort successful"),
        ServerCommand::Syst => Reply::new(215, "UNIX Type: L8"),
        ServerCommand::Lang(language) => lang(language.as_ref().map(Text::as_str)),
        ServerCommand::Status => Reply::new(212, "GridFTP server status."),
        ServerCommand::Whoami => Reply::new(200, &call.user.name),
        ServerCommand::Version => Reply::new(200, crate::version::VERSION),
        ServerCommand::ClientInfo(info) => {
            call.context.publish(&Event::ClientInfo {
                session: call.context.id,
                info: info.as_str(),
            });
            replies::ok()
        }
    }
}

/// RFC 2640 4.1.
fn lang(language: Option<&str>) -> Reply {
    match language {
        None => Reply::new(200, "lang set to EN."),
        Some(language) if language.eq_ignore_ascii_case("EN") => Reply::new(200, "lang set to EN."),
        Some(_) => Reply::new(504, "Language not supported; replies are in EN."),
    }
}
