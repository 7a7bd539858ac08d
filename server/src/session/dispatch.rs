//! Which command does what, and which ones a client may send before it has logged in.

use std::net::SocketAddr;

use gridhaul_protocol::address::StripeAddresses;
use gridhaul_protocol::command::{Command, RdmaCommand, SiteCommand, Text};
use gridhaul_protocol::help;
use gridhaul_protocol::negotiated::PassiveRequest;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;

use super::authenticate::Protection;
use super::control::{Control, Fault, Request};
use super::features::{Told, features};
use super::order::Motion;
use super::{End, Session, User, names};
use crate::telemetry::Event;

impl Session {
    /// Carries out one command, and sends its replies.
    pub(super) async fn execute(
        &mut self,
        control: &mut Control,
        request: Request,
    ) -> Result<(), End> {
        let reply = match request.content {
            Ok(command) => {
                let event = Event::Command {
                    session: self.id,
                    command: &command,
                };
                self.shared.journal.publish(&event);
                self.negotiated.observe(&command);
                if !matches!(command, Command::Rnto(_) | Command::Noop) {
                    self.rename_refusal = None;
                }
                let user = self.login.user().cloned();
                match (user, command) {
                    (_, command) if request.aborted && takes_long(&command) => {
                        Reply::new(426, "Aborted before it began.")
                    }
                    // They change what the next reply goes through, and send their own.
                    (_, Command::Auth(mechanism)) => {
                        return self.authenticate(control, &mechanism).await;
                    }
                    (_, Command::Adat(token)) => return self.take_token(control, &token).await,
                    (Some(user), Command::Mlsc(path)) => {
                        return self.list_on_control(control, &user, path.as_ref()).await;
                    }
                    (Some(user), command) => self.execute_as(control, &user, command).await?,
                    (None, command) => self.execute_before_login(control, command).await?,
                }
            }
            Err(Fault::Line(error)) => {
                self.sent_garbage |= self.login.user().is_none();
                Reply::new(500, format!("Invalid command: {error}."))
            }
            Err(Fault::Command(error)) => error.reply(),
            // RFC 2228 3.
            Err(fault @ Fault::Unprotected) => {
                self.report_unprotected(&fault);
                Reply::new(533, fault.to_string())
            }
            Err(fault @ Fault::Token(_)) => {
                self.report_unprotected(&fault);
                return Err(End::Broken(fault.to_string()));
            }
        };
        self.send(control, &reply);
        Ok(())
    }

    fn report_unprotected(&self, fault: &Fault) {
        self.shared.journal.publish(&Event::ProtectionBroken {
            session: self.id,
            peer: self.peer,
            identity: self.identity(),
            reason: &fault.to_string(),
        });
    }

    async fn execute_before_login(
        &mut self,
        control: &mut Control,
        command: Command,
    ) -> Result<Reply, End> {
        Ok(match command {
            Command::Quit => return Err(End::Quit),
            Command::Rein => self.reinitialize()?,
            _ if self.must_authenticate() => Reply::new(530, "Must perform GSSAPI authentication."),
            Command::Acct(_) => superfluous(),
            Command::User(name) => self.name(&name),
            Command::Pass(password) => self.password(control, &password).await?,
            Command::Help(topic) | Command::Site(SiteCommand::Help(topic)) => {
                help::reply(text(&topic))
            }
            Command::Feat => self.features(),
            Command::Noop => noop(),
            Command::Pbsz(_) | Command::Prot(_) if self.is_protected() => self.agree(&command),
            command if belongs_to_security(&command) => self.refuse_security(&command),
            _ => please_log_in(),
        })
    }

    /// What data channels will have, if this is a part of it that may be agreed on before login.
    fn agree(&mut self, command: &Command) -> Reply {
        /// A client says each of them once; more are not carried over to the process that serves it.
        const MOST: usize = 16;

        let Some(settled) = self.negotiated.settle(command) else {
            return please_log_in();
        };
        if self.agreed.len() < MOST {
            self.agreed.push(command.to_string());
        }
        settled.reply
    }

    /// Whether there is no way to log in but GSI, and the client has not begun with it.
    fn must_authenticate(&self) -> bool {
        let config = &self.settings.config;
        let without_gsi =
            config.anonymous.is_some() || config.passwords.is_some() || self.local_user.is_some();
        config.security.gsi.is_some() && !without_gsi && !self.is_protected()
    }

    fn is_protected(&self) -> bool {
        matches!(self.protection, Protection::Gsi(_) | Protection::Tls)
    }

    fn refuse_security(&self, command: &Command) -> Reply {
        match (command, self.is_protected()) {
            // On a clear channel a command may come from an attacker on the path (RFC 2228 3).
            (Command::Ccc, true) => Reply::new(533, "The control channel stays protected."),
            (_, true) => Reply::new(503, "Commands are protected already."),
            (_, false) => Reply::new(503, "There is no security context: send AUTH first."),
        }
    }

    fn features(&self) -> Reply {
        let security = &self.settings.config.security;
        features(&Told {
            logged_in: self.login.user().is_some(),
            has_dcau: !matches!(self.protection, Protection::Tls),
            offers_gsi: security.gsi.is_some() && !self.is_protected(),
            offers_tls: security.tls && !self.is_protected(),
            has_tls: security.tls && !matches!(self.protection, Protection::Gsi(_)),
            has_rdma: self.may_use_rdma(),
            facts: self.negotiated.settings().facts,
        })
    }

    async fn execute_as(
        &mut self,
        control: &mut Control,
        user: &User,
        command: Command,
    ) -> Result<Reply, End> {
        if let Some(settled) = self.negotiated.settle(&command) {
            user.settle(settled.channels);
            return Ok(settled.reply);
        }
        if let Some(reply) = answer(user, &command) {
            return Ok(reply);
        }
        if let Some(request) = PassiveRequest::of(&command) {
            return Ok(self.passive(user, request).await);
        }
        if let Some((verb, motion)) = Motion::of(&command) {
            if verb.needs_rdma()
                && let Err(refusal) = self.check_rdma_port(verb)
            {
                return Ok(refusal);
            }
            return self.move_data(control, user, verb, motion).await;
        }
        match command {
            Command::Port(peer) => Ok(self.active(user, &one(peer.into())).await),
            Command::Eprt(peer) => Ok(self.active(user, &one(peer)).await),
            Command::Spor(peers) => Ok(self.active(user, &peers).await),
            Command::Rdma(RdmaCommand::Address { peer, buffer }) => {
                Ok(self.active_by_rdma(user, peer, buffer).await)
            }
            Command::Dcsc(context) => Ok(self.set_channel_credential(user, &context)),
            Command::Scks {
                algorithm,
                checksum,
            } => Ok(self.expect_checksum(&algorithm, &checksum)),
            Command::Feat => Ok(self.features()),
            Command::User(name) => Ok(self.name(&name)),
            Command::Pass(password) => self.password(control, &password).await,
            Command::Acct(_) => Ok(superfluous()),
            Command::Rein => self.reinitialize(),
            Command::Quit => Err(End::Quit),
            Command::Site(command) => self.site(control, user, command).await,
            command if belongs_to_security(&command) => Ok(self.refuse_security(&command)),
            command => self.execute_on_name(control, user, command).await,
        }
    }

    async fn execute_on_name(
        &mut self,
        control: &mut Control,
        user: &User,
        command: Command,
    ) -> Result<Reply, End> {
        match command {
            Command::Cwd(path) => self.change_directory(control, user, &path).await,
            Command::Cdup => {
                let parent = PathArgument::new("..").expect("two dots are a path");
                self.change_directory(control, user, &parent).await
            }
            Command::Mkd(path) => self.make_directory(control, user, &path).await,
            Command::Rmd(path) => self.remove_directory(control, user, &path).await,
            Command::Dele(path) => self.remove_file(control, user, &path).await,
            Command::Rnfr(path) => self.rename_from(control, user, &path).await,
            Command::Rnto(path) => self.rename_to(control, user, &path).await,
            Command::Mfmt { modified, path } => {
                let done = names::modified(modified, &path);
                self.set_modified(control, user, modified, &path, done)
                    .await
            }
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => {
                self.checksum(control, user, &algorithm, (offset, length), &path)
                    .await
            }
            Command::Size(path) => match self.negotiated.check_size() {
                Ok(()) => self.size(control, user, &path).await,
                Err(refusal) => Ok(refusal.reply()),
            },
            Command::Mdtm(path) => self.modified(control, user, &path).await,
            Command::Stat(Some(path)) => self.stat(control, user, &path).await,
            Command::Mlst(path) => self.facts(control, user, path).await,
            _ => Ok(Reply::new(502, "Command not implemented.")),
        }
    }
}

/// The commands whose answer is always the same, or depends on the user only.
fn answer(user: &User, command: &Command) -> Option<Reply> {
    Some(match command {
        Command::Pwd => {
            let directory = user.directory.quoted();
            Reply::new(257, [&directory, &b" is current directory."[..]].concat())
        }
        // What it was to stop is over.
        Command::Abor => Reply::new(226, "Abort successful"),
        Command::Help(topic) => help::reply(text(topic)),
        Command::Syst => Reply::new(215, "UNIX Type: L8"),
        Command::Noop => noop(),
        Command::Lang(language) => lang(text(language)),
        Command::Stat(None) => Reply::new(212, "GridFTP server status."),
        _ => return None,
    })
}

/// Whether ABOR ends a command that waits: one that would take long.
fn takes_long(command: &Command) -> bool {
    Motion::of(command).is_some() || matches!(command, Command::Mlsc(_) | Command::Cksm { .. })
}

pub(super) fn one(peer: SocketAddr) -> StripeAddresses {
    StripeAddresses::new(vec![peer]).expect("one address is enough")
}

pub(super) fn noop() -> Reply {
    Reply::new(200, "NOOP command successful.")
}

/// RFC 959 5.4: the answer to `ACCT` where the name of the user is enough.
fn superfluous() -> Reply {
    Reply::new(202, "ACCT is not needed: the user name says it all.")
}

fn please_log_in() -> Reply {
    Reply::new(530, "Please login with USER and PASS.")
}

/// Commands that mean something only while, or after, a channel is protected.
fn belongs_to_security(command: &Command) -> bool {
    matches!(
        command,
        Command::Enc(_)
            | Command::Mic(_)
            | Command::Conf(_)
            | Command::Ccc
            | Command::Pbsz(_)
            | Command::Prot(_)
    )
}

/// RFC 2640 4.1.
fn lang(language: Option<&str>) -> Reply {
    match language {
        None => Reply::new(200, "lang set to EN."),
        Some(language) if language.eq_ignore_ascii_case("EN") => Reply::new(200, "lang set to EN."),
        Some(_) => Reply::new(504, "Language not supported; replies are in EN."),
    }
}

fn text(text: &Option<Text>) -> Option<&str> {
    text.as_ref().map(Text::as_str)
}
