//! Which command does what, and which ones a client may send before it has logged in.

use std::net::SocketAddr;

use gridhaul_protocol::address::StripeAddresses;
use gridhaul_protocol::command::{
    Command, DataChannelAuthentication, ProtectionLevel, SiteCommand, Text,
};
use gridhaul_protocol::help;
use gridhaul_protocol::negotiated::PassiveRequest;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;

use super::control::{Control, Fault, Request};
use super::features::features;
use super::names::ok;
use super::{End, Session, User};
use crate::events::Event;

impl Session {
    /// Carries out one command, and sends its replies.
    pub(super) async fn execute(
        &mut self,
        control: &mut Control,
        request: Request,
    ) -> Result<(), End> {
        let command = match request.content {
            Ok(command) => command,
            Err(Fault::Line(error)) => {
                self.send(
                    control,
                    &Reply::new(500, format!("Invalid command: {error}.")),
                );
                return Ok(());
            }
            Err(Fault::Command(error)) => {
                self.send(control, &error.reply());
                return Ok(());
            }
        };
        self.shared.journal.publish(&Event::Command {
            session: self.id,
            command: &command,
        });
        self.negotiated.observe(&command);
        if request.aborted && takes_long(&command) {
            self.send(control, &Reply::new(426, "Aborted before it began."));
            return Ok(());
        }
        match self.login.user().cloned() {
            Some(user) => self.execute_as(control, &user, command).await,
            None => self.execute_before_login(control, command).await,
        }
    }

    async fn execute_before_login(
        &mut self,
        control: &mut Control,
        command: Command,
    ) -> Result<(), End> {
        let reply = match command {
            Command::User(name) => self.name(&name),
            Command::Pass(password) => return self.password(control, &password).await,
            Command::Quit => return self.quit(control, 211),
            Command::Help(topic) | Command::Site(SiteCommand::Help(topic)) => {
                help::reply(text(&topic))
            }
            Command::Feat => features(false, self.negotiated.settings().facts),
            Command::Noop => noop(),
            Command::Auth(_) => no_security(),
            _ => Reply::new(530, "Please login with USER and PASS."),
        };
        self.send(control, &reply);
        Ok(())
    }

    async fn execute_as(
        &mut self,
        control: &mut Control,
        user: &User,
        command: Command,
    ) -> Result<(), End> {
        let reply = match command {
            Command::Cwd(path) => return self.change_directory(control, user, &path).await,
            Command::Cdup => {
                let parent = PathArgument::new("..").expect("two dots are a path");
                return self.change_directory(control, user, &parent).await;
            }
            Command::Mkd(path) => return self.make_directory(control, user, &path).await,
            Command::Rmd(path) => {
                return self
                    .on_path(control, user, Some(&path), |files, path| {
                        files
                            .storage
                            .remove_directory(path.as_path())
                            .map(|()| ok())
                    })
                    .await;
            }
            Command::Dele(path) => {
                return self
                    .on_path(control, user, Some(&path), |files, path| {
                        files.storage.remove_file(path.as_path()).map(|()| ok())
                    })
                    .await;
            }
            Command::Rnfr(path) => return self.rename_from(control, user, &path).await,
            Command::Rnto(path) => return self.rename_to(control, user, &path).await,
            Command::Size(path) => return self.size(control, user, &path).await,
            Command::Mdtm(path) => return self.modified(control, user, &path).await,
            Command::Mfmt { modified, path } => {
                return self.set_modified(control, user, modified, &path).await;
            }
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => {
                return self
                    .checksum(control, user, &algorithm, (offset, length), &path)
                    .await;
            }
            Command::Stat(Some(path)) => return self.stat(control, user, &path).await,
            Command::Mlst(path) => return self.facts(control, user, path).await,
            Command::Mlsc(path) => return self.list_on_control(control, user, path.as_ref()).await,

            Command::Port(peer) => self.active(user, &one(peer.into())),
            Command::Eprt(peer) => self.active(user, &one(peer)),
            Command::Spor(peers) => self.active(user, &peers),

            Command::Retr(_)
            | Command::Stor(_)
            | Command::Appe(_)
            | Command::Eret { .. }
            | Command::Esto { .. }
            | Command::List(_)
            | Command::Nlst(_)
            | Command::Mlsd(_)
            | Command::Mlsr(_) => return self.move_data(control, user, command).await,

            Command::Pass(password) => return self.password(control, &password).await,
            Command::Quit => return self.quit(control, 221),
            Command::Site(command) => return self.site(control, user, command).await,
            command => {
                if let Some(request) = PassiveRequest::of(&command) {
                    return self.passive(control, user, request).await;
                }
                self.answer(user, &command)
            }
        };
        self.send(control, &reply);
        Ok(())
    }

    /// The commands that are answered at once.
    fn answer(&mut self, user: &User, command: &Command) -> Reply {
        if let Some(settled) = self.negotiated.settle(command) {
            user.settle(settled.channels);
            return settled.reply;
        }
        match command {
            Command::User(name) => self.name(name),
            Command::Pwd => {
                let directory = user.directory.quoted();
                Reply::new(257, [&directory, &b" is current directory."[..]].concat())
            }
            Command::Scks {
                algorithm,
                checksum,
            } => self.expect_checksum(algorithm, checksum),
            // What it was to stop is over.
            Command::Abor => Reply::new(226, "Abort successful"),

            Command::Feat => features(true, self.negotiated.settings().facts),
            Command::Help(topic) => help::reply(text(topic)),
            Command::Syst => Reply::new(215, "UNIX Type: L8"),
            Command::Noop => noop(),
            Command::Lang(language) => lang(text(language)),
            Command::Stat(_) => Reply::new(212, "GridFTP server status."),

            Command::Auth(_) => no_security(),
            Command::Pbsz(bytes) => Reply::new(200, format!("PBSZ={bytes}")),
            Command::Prot(ProtectionLevel::Clear) => Reply::new(200, "Protection level set to C."),
            Command::Prot(_) => Reply::new(
                536,
                "Protection level not supported: data channels are not protected in a session without GSI.",
            ),
            Command::Dcau(DataChannelAuthentication::None) => Reply::new(200, "DCAU N."),
            Command::Dcau(_) | Command::Dcsc(_) => Reply::new(
                504,
                "Data channels are not authenticated in a session without GSI; send DCAU N.",
            ),
            Command::Adat(_)
            | Command::Enc(_)
            | Command::Mic(_)
            | Command::Conf(_)
            | Command::Ccc => Reply::new(503, "There is no security context in this session."),
            command => unreachable!("{} is carried out elsewhere", command.verb()),
        }
    }

    fn quit(&self, control: &mut Control, code: u16) -> Result<(), End> {
        self.send(control, &Reply::new(code, "Goodbye."));
        Err(End::Quit)
    }
}

/// Whether ABOR ends a command that waits: one that would take long.
fn takes_long(command: &Command) -> bool {
    matches!(
        command,
        Command::Retr(_)
            | Command::Stor(_)
            | Command::Appe(_)
            | Command::Eret { .. }
            | Command::Esto { .. }
            | Command::List(_)
            | Command::Nlst(_)
            | Command::Mlsd(_)
            | Command::Mlsr(_)
            | Command::Mlsc(_)
            | Command::Cksm { .. }
    )
}

fn one(peer: SocketAddr) -> StripeAddresses {
    StripeAddresses::new(vec![peer]).expect("one address is enough")
}

pub(super) fn noop() -> Reply {
    Reply::new(200, "NOOP command successful.")
}

fn no_security() -> Reply {
    Reply::new(
        504,
        "Unknown authentication type: this server has no security mechanism.",
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
