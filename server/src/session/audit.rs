//! Audit records of commands that change files: one for each command, whether it succeeds or fails.
//!
//! A command is noted before it is carried out, because it may change the directory or the names that it is about, and
//! recorded when its reply is known. Transfers that began are recorded with their amounts elsewhere
//! (`session/transfer/transfers.rs`), and here only if they were refused before.

use gridhaul_protocol::command::{Command, RdmaCommand, SiteCommand};
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;

use super::end::End;
use super::failure::Failure;
use super::namespace::FirstHalves;
use super::parts::Session;
use super::user::User;
use crate::telemetry::{Event, FileOperation};

/// A command that gets a record.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    verb: &'static str,
    path: Option<String>,
    to: Option<String>,
    value: Option<String>,
    is_transfer: bool,
}

impl Attempt {
    /// What a command is about to change; `None` if it changes no file.
    fn of(command: &Command, user: &User, halves: &FirstHalves) -> Option<Self> {
        // A path that cannot be one is refused, and recorded as the client wrote it.
        let path = |argument: &PathArgument| match user.path(Some(argument)) {
            Ok(path) => Some(path.to_string()),
            Err(_) => Some(argument.to_string()),
        };
        let at = |verb, argument| Self {
            verb,
            path: path(argument),
            ..Self::default()
        };
        let set = |verb, argument, value| Self {
            value: Some(value),
            ..at(verb, argument)
        };
        let moves = |verb, argument| Self {
            is_transfer: true,
            ..at(verb, argument)
        };
        Some(match command {
            Command::Mkd(argument) => at("MKD", argument),
            Command::Rmd(argument) => at("RMD", argument),
            Command::Dele(argument) => at("DELE", argument),
            Command::Rnto(to) => Self {
                verb: "RNTO",
                path: halves.renamed.as_ref().map(RemotePath::to_string),
                to: path(to),
                ..Self::default()
            },
            Command::Mfmt {
                modified,
                path: argument,
            } => set("MFMT", argument, modified.to_string()),
            Command::Site(command) => match command {
                SiteCommand::Rdel(argument) => at("SITE RDEL", argument),
                SiteCommand::Chmod {
                    mode,
                    path: argument,
                } => set("SITE CHMOD", argument, format!("{:04o}", mode.bits())),
                SiteCommand::Chgrp {
                    group,
                    path: argument,
                } => set("SITE CHGRP", argument, group.to_string()),
                SiteCommand::Utime {
                    modified,
                    path: argument,
                } => set("SITE UTIME", argument, modified.to_string()),
                SiteCommand::Trnc {
                    length,
                    path: argument,
                } => set("SITE TRNC", argument, length.to_string()),
                SiteCommand::SymlinkTo(link) => Self {
                    to: halves.linked.as_ref().map(PathArgument::to_string),
                    ..at("SITE SYMLINKTO", link)
                },
                _ => return None,
            },
            Command::Stor(argument) => moves("STOR", argument),
            Command::Appe(argument) => moves("APPE", argument),
            Command::Esto { path: argument, .. } => moves("ESTO", argument),
            Command::Retr(argument) => moves("RETR", argument),
            Command::Eret { path: argument, .. } => moves("ERET", argument),
            Command::Stou(argument) => Self {
                verb: "STOU",
                path: argument.as_ref().and_then(path),
                is_transfer: true,
                ..Self::default()
            },
            Command::Rdma(RdmaCommand::Store(argument)) => moves("RSTR", argument),
            Command::Rdma(RdmaCommand::Retrieve(argument)) => moves("RRTR", argument),
            _ => return None,
        })
    }
}

impl Session {
    /// Notes a command before it is carried out. Those of clients that have not logged in change nothing.
    pub(super) fn note_attempt(&mut self, command: &Command) -> Option<Attempt> {
        self.context.failure = None;
        self.transfers.is_recorded = false;
        let user = self.login.user()?;
        Attempt::of(command, user, &self.namespace.halves)
    }

    /// Records a command when its reply is known, or the session ends before.
    pub(super) fn record(&mut self, attempt: Option<&Attempt>, done: &Result<Option<Reply>, End>) {
        let failure = self.context.failure.take();
        let Some(user) = self.login.user() else {
            return;
        };
        let (session, client) = (self.context.id, user.client(self.context.peer));
        let Some(attempt) = attempt else {
            if let Some(failure) = failure.filter(Failure::is_fault) {
                self.context.publish(&Event::CommandFailed {
                    session,
                    peer: client.peer,
                    user: &user.name,
                    error: &failure.text,
                });
            }
            return;
        };
        if attempt.is_transfer && self.transfers.is_recorded {
            return;
        }
        let (code, text) = match done {
            Ok(Some(reply)) if reply.is_error() => (Some(reply.code()), Some(words(reply))),
            Ok(reply) => (reply.as_ref().map(Reply::code), None),
            Err(end) => {
                let text = format!("the session ended before the result was known: {end}");
                (None, Some(text))
            }
        };
        let is_fault = failure.as_ref().is_some_and(Failure::is_fault);
        let error = text.map(|text| failure.map_or(text, |failure| failure.text));
        self.context.publish(&Event::FileOperation(&FileOperation {
            session,
            user: &user.name,
            client,
            task_id: self.transfers.task_id(),
            verb: attempt.verb,
            path: attempt.path.as_deref(),
            to: attempt.to.as_deref(),
            value: attempt.value.as_deref(),
            code,
            error: error.as_deref(),
            is_fault,
        }));
    }
}

/// The text of a reply in one line.
fn words(reply: &Reply) -> String {
    let lines = reply.lines().map(String::from_utf8_lossy);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}
