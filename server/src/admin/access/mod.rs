//! Who may use the administration interface.
//!
//! Another user of this machine is an attacker, and so is a page of another site in an administrator's browser. A client is
//! an administrator if it proves one of these, in this order:
//!
//! 1. It is at the Unix socket, and the kernel says that it runs as root or as the account that started the server.
//! 2. It has a certificate of `admin-clients`.
//! 3. It shows the secret of `admin-token`, or a cookie that it got for the secret.
//! 4. Neither is configured, and its TCP socket belongs to root or to the account that started the server ([`owner`]).

mod owner;
mod request;
mod token;

use std::net::SocketAddr;

use gridhaul_security::certificate::Certificate;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use tokio::sync::OnceCell;

pub(super) use request::{check_host, check_origin, check_post};
pub use token::AdminTokenError;
pub(super) use token::{COOKIE_NAME, Token};

use crate::http::{Answer, Peer, Standing, refusal};

/// The rules for administrators.
#[derive(Debug)]
pub(super) struct Access {
    /// The accounts whose processes are administrators.
    pub(super) accounts: Vec<u32>,
    pub(super) token: Option<Token>,
    /// Certificates of clients are asked for.
    pub(super) has_clients: bool,
    /// The subjects of administrators; empty for all.
    pub(super) subjects: Vec<String>,
    /// The names of this machine that requests may be for, in lower case.
    pub(super) names: Vec<String>,
}

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(super) peer: Peer,
    standing: Standing,
    /// The account of the client's socket, looked up once.
    owner: OnceCell<Option<u32>>,
}

impl Visitor {
    pub(super) fn new(peer: Peer, standing: Standing) -> Self {
        Self {
            peer,
            standing,
            owner: OnceCell::new(),
        }
    }

    /// Whether the client is at the Unix socket, where no browser is.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.peer, Peer::Unix { .. })
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.peer, Peer::Tcp { is_tls: true, .. })
    }
}

impl Access {
    /// The name of the administrator in the log, or the answer to a client that is none.
    pub(super) async fn admit(
        &self,
        visitor: &Visitor,
        headers: &HeaderMap,
    ) -> Result<String, Box<Answer>> {
        let admitted = match &visitor.peer {
            Peer::Unix { uid } => self.admit_account(*uid),
            Peer::Tcp {
                peer,
                local,
                certificate,
                ..
            } => match self.admit_certificate(certificate.as_deref()) {
                Some(subject) => Ok(subject),
                None if self.token.is_some() => self.admit_token(headers),
                None if self.has_clients => Err(refusal(
                    StatusCode::FORBIDDEN,
                    "The administration needs a certificate of admin-clients.",
                )),
                None => self.admit_owner(visitor, *peer, *local).await,
            },
        };
        if admitted.is_ok() {
            visitor.standing.trust();
        }
        admitted
    }

    fn admit_account(&self, uid: u32) -> Result<String, Box<Answer>> {
        if self.accounts.contains(&uid) {
            return Ok(format!("account {uid}"));
        }
        Err(refusal(
            StatusCode::FORBIDDEN,
            &format!(
                "The administration is for root and the account that started the server, not for account {uid}."
            ),
        ))
    }

    fn admit_certificate(&self, certificate: Option<&[u8]>) -> Option<String> {
        let certificate = Certificate::from_der(certificate?).ok()?;
        let subject = certificate.subject().one_line();
        let is_named = self.subjects.is_empty() || self.subjects.iter().any(|one| one == subject);
        is_named.then(|| subject.to_owned())
    }

    fn admit_token(&self, headers: &HeaderMap) -> Result<String, Box<Answer>> {
        let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
        let cookies = headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split("; "));
        let token = self.token.as_ref();
        let is_known = token.is_some_and(|token| {
            shown.is_some_and(|shown| token.is(shown))
                || cookies.any(|cookie| {
                    let pair = cookie.split_once('=');
                    pair.is_some_and(|(name, value)| name == COOKIE_NAME && token.has_given(value))
                })
        });
        if is_known {
            return Ok("token".to_owned());
        }
        Err(refusal(
            StatusCode::UNAUTHORIZED,
            "The administration needs the secret of admin-token: log in at /, or send Authorization: Bearer SECRET.",
        ))
    }

    async fn admit_owner(
        &self,
        visitor: &Visitor,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<String, Box<Answer>> {
        let find = || owner::find(peer, local);
        match visitor.owner.get_or_init(find).await {
            Some(uid) => self.admit_account(*uid),
            None => Err(refusal(
                StatusCode::FORBIDDEN,
                "The administration cannot find out which account this connection belongs to.",
            )),
        }
    }
}
