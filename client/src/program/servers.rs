//! Sessions by server, and how to log in.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::sync::{Mutex, PoisonError};

use gridhaul_protocol::command::{Password, Text};

use super::arguments::LoginArguments;
use crate::location::{Scheme, Server};
use crate::login::{ExpectedServer, Identity, IdentityPlaces, Login};
use crate::session::{Session, SessionConfig, SessionError};

/// Opens sessions, with one identity for all of them.
pub(super) struct Servers {
    arguments: LoginArguments,
    identity: Mutex<Option<Identity>>,
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

impl OpenError {
    /// Whether the same may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Session(failure) => failure.error.is_transient(false),
            _ => false,
        }
    }
}

impl Servers {
    pub(super) fn new(arguments: LoginArguments) -> Self {
        Self {
            arguments,
            identity: Mutex::default(),
        }
    }

    pub(super) async fn open(&self, server: &Server) -> Result<Session, OpenError> {
        let login = self.login(server)?;
        let config = SessionConfig {
            family: self.arguments.family(),
            patience: self.arguments.timeout,
        };
        let opened = Session::open(server, login, config).await;
        opened.map_err(|error| OpenError::Session(Box::new(error)))
    }

    fn login(&self, server: &Server) -> Result<Login, OpenError> {
        match (server.scheme, &server.user) {
            (Scheme::GsiFtp, _) => Ok(Login::Certificate {
                identity: self.identity()?,
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

    fn identity(&self) -> Result<Identity, OpenError> {
        let mut known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(identity) = &*known {
            return Ok(identity.clone());
        }
        let found = Identity::find(&IdentityPlaces {
            proxy: self.arguments.proxy.clone(),
            trust: self.arguments.trust.clone(),
        })?;
        Ok(known.insert(found).clone())
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
