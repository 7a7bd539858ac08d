//! Sessions by server, and how to log in.

use std::fs;
use std::io::{BufRead as _, BufReader};

use gridhaul_protocol::command::{Password, Text};

use super::arguments::LoginArguments;
use crate::location::{Scheme, Server};
use crate::login::{ExpectedServer, Identity, IdentityPlaces, Login};
use crate::session::{Session, SessionConfig, SessionError};

/// Opens sessions, with one identity for all of them.
pub(super) struct Servers<'a> {
    arguments: &'a LoginArguments,
    identity: Option<Identity>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Session(Box<SessionError>),
    #[error(transparent)]
    Identity(#[from] crate::login::IdentityError),
    #[error("{server}: a user needs a password: give --password-file FILE")]
    NoPassword { server: String },
    #[error("{file}: {error}")]
    PasswordFile { file: String, error: std::io::Error },
    #[error("{0}: the user or the password has a character that FTP cannot send")]
    Unsendable(String),
}

impl<'a> Servers<'a> {
    pub(super) fn new(arguments: &'a LoginArguments) -> Self {
        Self {
            arguments,
            identity: None,
        }
    }

    pub(super) async fn open(&mut self, server: &Server) -> Result<Session, OpenError> {
        let login = self.login(server)?;
        let config = SessionConfig {
            family: self.arguments.family(),
            patience: self.arguments.timeout,
        };
        let opened = Session::open(server, login, config).await;
        opened.map_err(|error| OpenError::Session(Box::new(error)))
    }

    fn login(&mut self, server: &Server) -> Result<Login, OpenError> {
        match (server.scheme, &server.user) {
            (Scheme::GsiFtp, _) => Ok(Login::Certificate {
                identity: self.identity()?.clone(),
                expected: match &self.arguments.subject {
                    Some(subject) => ExpectedServer::Subject(subject.clone()),
                    None => ExpectedServer::Host,
                },
            }),
            (Scheme::Ftp, None) => Ok(Login::Anonymous),
            (Scheme::Ftp, Some(user)) => {
                let unsendable = || OpenError::Unsendable(server.to_string());
                Ok(Login::Password {
                    user: Text::new(user.as_str()).ok_or_else(unsendable)?,
                    password: Password::new(self.password(server)?).ok_or_else(unsendable)?,
                })
            }
        }
    }

    fn identity(&mut self) -> Result<&Identity, OpenError> {
        let found = match self.identity.take() {
            Some(identity) => identity,
            None => Identity::find(&IdentityPlaces {
                proxy: self.arguments.proxy.clone(),
                trust: self.arguments.trust.clone(),
            })?,
        };
        Ok(self.identity.insert(found))
    }

    fn password(&self, server: &Server) -> Result<Vec<u8>, OpenError> {
        let Some(file) = &self.arguments.password_file else {
            return Err(OpenError::NoPassword {
                server: server.to_string(),
            });
        };
        let mut line = Vec::new();
        let read =
            fs::File::open(file).and_then(|file| BufReader::new(file).read_until(b'\n', &mut line));
        read.map_err(|error| OpenError::PasswordFile {
            file: file.display().to_string(),
            error,
        })?;
        while line
            .last()
            .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
        {
            line.pop();
        }
        Ok(line)
    }
}
