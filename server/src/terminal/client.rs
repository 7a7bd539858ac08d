//! Requests to a running server over its Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::search;
use crate::admin::{RUN, default_path};
use crate::config::{AdminSocket, Config, ConfigErrors, SocketArguments};
use crate::enrolment::InviteError;

/// The time that a server has for an answer. A reload asks other processes.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The time for an upgrade. The new version checks the configuration and starts.
pub(super) const UPGRADE_LIMIT: Duration = Duration::from_secs(240);

/// Larger answers are not read.
const MOST_BYTES: usize = 256 << 20;

/// The port of a server without `listen`.
const PORT: u16 = 2811;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// The configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The server has no socket.
    #[error(
        "there is no administration socket: give --socket PATH, as in admin-socket of the server"
    )]
    NoSocket,
    /// The server is not there, or does not let this account in.
    #[error("cannot reach the server at {}: {error}; {}", path.display(), remedy(error))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// No server was found.
    #[error(
        "no server was found at {}{}; start one, or name its socket with --socket PATH or its configuration with --config FILE",
        path.display(), others(found)
    )]
    NoServer {
        /// The default socket.
        path: PathBuf,
        /// Sockets where servers listen.
        found: Vec<PathBuf>,
    },
    /// Nodes were not invited.
    #[error(transparent)]
    Invite(#[from] InviteError),
    /// What came back is no answer.
    #[error("the server gave no answer: {0}")]
    Answer(String),
    /// The server refuses.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// No session fits.
    #[error("there is no such session")]
    NotFound,
    /// The new configuration is wrong.
    #[error("the configuration was not applied as it is")]
    NotReloaded,
    /// The terminal cannot be used.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "use root, or the account that started the server; status --list shows sockets"
        }
        _ => {
            "does it run? The log of a server has the path of its administration socket, and status --list shows sockets"
        }
    }
}

fn others(found: &[PathBuf]) -> String {
    let found = found
        .iter()
        .map(|path| format!(", but one listens at {}", path.display()));
    found.collect()
}

/// The socket of the server at the default port, or else that of the only one that runs.
fn only_server() -> Result<PathBuf, TerminalError> {
    let path = default_path(PORT).unwrap_or_else(|| Path::new(RUN).join("admin.sock"));
    match std::os::unix::net::UnixStream::connect(&path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) => {}
        // The request tells what is wrong with it.
        Ok(_) | Err(_) => return Ok(path),
    }
    match <[PathBuf; 1]>::try_from(search::running()) {
        Ok([only]) => Ok(only),
        Err(found) => Err(TerminalError::NoServer { path, found }),
    }
}

/// A server that runs.
#[derive(Debug)]
pub(super) struct Client {
    path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Failure {
    error: String,
}

impl Client {
    /// The server of the arguments.
    pub(super) fn new(arguments: &SocketArguments) -> Result<Self, TerminalError> {
        let path = match (&arguments.socket, &arguments.config) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(file)) => match Config::admin_socket_of(file)? {
                (AdminSocket::At(path), _) => Some(path),
                (AdminSocket::Default, port) => default_path(port),
                (AdminSocket::None, _) => None,
            },
            (None, None) => Some(only_server()?),
        };
        let path = path.ok_or(TerminalError::NoSocket)?;
        Ok(Self { path })
    }

    /// The server with this socket.
    pub(super) fn at(socket: &Path) -> Self {
        Self {
            path: socket.to_owned(),
        }
    }

    /// The document at a path.
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, TerminalError> {
        match self
            .ask(Method::GET, path, String::new(), TIME_LIMIT)
            .await?
        {
            (StatusCode::OK, body) => Ok(body),
            (_, body) => Err(refused(&body)),
        }
    }

    /// Carries out an action. The body may also be of an answer that tells what failed.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: impl Into<String>,
    ) -> Result<T, TerminalError> {
        self.post_within(TIME_LIMIT, path, body).await
    }

    /// As [`Client::post`], for an action that may take this time.
    pub(super) async fn post_within<T: DeserializeOwned>(
        &self,
        limit: Duration,
        path: &str,
        body: impl Into<String>,
    ) -> Result<T, TerminalError> {
        let (_, body) = self.ask(Method::POST, path, body.into(), limit).await?;
        serde_json::from_slice(&body).map_err(|_| refused(&body))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: String,
        limit: Duration,
    ) -> Result<(StatusCode, Bytes), TerminalError> {
        let answer = ask(&self.path, method, path, body);
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(TerminalError::Answer(format!(
                "{} s have passed",
                limit.as_secs()
            ))),
        }
    }
}

async fn ask(
    socket: &Path,
    method: Method,
    path: &str,
    body: String,
) -> Result<(StatusCode, Bytes), TerminalError> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|error| TerminalError::Connect {
        path: socket.to_owned(),
        error,
    })?;
    let wrong = |error: hyper::Error| TerminalError::Answer(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(wrong)?;
    // Its errors are also those of the request.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| TerminalError::Answer(error.to_string()))?;
    let answer = sender.send_request(request).await.map_err(wrong)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| TerminalError::Answer(error.to_string()))?;
    Ok((status, body.to_bytes()))
}

/// The reason in an answer.
fn refused(body: &Bytes) -> TerminalError {
    let reason = match serde_json::from_slice::<Failure>(body) {
        Ok(Failure { error }) => error,
        Err(_) => String::from_utf8_lossy(body).trim_end().to_owned(),
    };
    TerminalError::Refused(super::words::harmless(&reason))
}
