//! Who may use the administration interface.
//!
//! Another user of this machine is an attacker, and so is a page of another site in an administrator's browser. A client is
//! an administrator if it proves one of these, in this order:
//!
//! 1. It is at the Unix socket, and the kernel says that it runs as root or as the account that started the server.
//! 2. It has a certificate of `admin-clients` that is valid and not revoked ([`revocation`]).
//! 3. It shows the secret of `admin-token`.
//! 4. Neither is configured, and its TCP socket belongs to root or to the account that started the server ([`owner`]).

mod kernel_list;
mod owner;
mod request;
mod revocation;
mod token;

use gridhaul_shares::Network;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};

pub(super) use owner::Owners;
pub(super) use request::{check_host, check_origin, check_post};
pub(super) use revocation::Revocation;
pub use token::AdminTokenError;
pub(super) use token::Token;

use crate::http::{Answer, Caller, Holder, Peer, Standing, refusal};

/// The rules for administrators.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) owners: Owners,
    pub(super) token: Option<Token>,
    /// What certificates of clients are checked with, if they are asked for.
    pub(super) clients: Option<Revocation>,
    /// The subjects of administrators; empty for all.
    pub(super) subjects: Vec<String>,
    /// The names of this machine that requests may be for, in lower case.
    pub(super) names: Vec<String>,
}

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(super) peer: Peer,
    caller: Caller,
    standing: Standing,
}

impl Visitor {
    pub(super) fn new(peer: Peer, caller: Caller, standing: Standing) -> Self {
        Self {
            peer,
            caller,
            standing,
        }
    }

    /// Whether the client is at the Unix socket, where no browser is.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.peer, Peer::Unix { .. })
    }

    /// Whether the client has a certificate, which TLS accepts.
    pub(super) fn has_certificate(&self) -> bool {
        matches!(&self.peer, Peer::Tcp { certificates, .. } if !certificates.is_empty())
    }
}

impl Access {
    /// Who has connected. A caller that cannot show a right to administrate is not eligible.
    pub(super) async fn identify(&self, peer: &Peer) -> Caller {
        let (holder, may_prove) = match peer {
            Peer::Unix { uid } => (Holder::Account(*uid), false),
            Peer::Tcp { peer, local, .. } => {
                let is_here = peer.ip().to_canonical().is_loopback() || peer.ip() == local.ip();
                let account = match is_here {
                    true => self.owners.find(*peer, *local).await,
                    false => None,
                };
                let network = || Holder::Network(Network::of(peer.ip()));
                let holder = account.map_or_else(network, Holder::Account);
                (holder, self.token.is_some() || self.clients.is_some())
            }
        };
        let is_administrator = matches!(holder, Holder::Account(uid) if self.is_administrator(uid));
        Caller {
            holder,
            is_eligible: is_administrator || may_prove,
        }
    }

    fn is_administrator(&self, uid: u32) -> bool {
        self.owners.administrators().contains(&uid)
    }

    /// The name of the administrator in the log, or the answer to a client that is none.
    pub(super) async fn admit(
        &self,
        visitor: &Visitor,
        headers: &HeaderMap,
    ) -> Result<String, Box<Answer>> {
        let admitted = match &visitor.peer {
            Peer::Unix { uid } => self.admit_account(*uid),
            Peer::Tcp { certificates, .. } => {
                self.admit_remote(visitor, certificates, headers).await
            }
        };
        if admitted.is_ok() {
            visitor.standing.trust();
        }
        admitted
    }

    async fn admit_remote(
        &self,
        visitor: &Visitor,
        certificates: &[Vec<u8>],
        headers: &HeaderMap,
    ) -> Result<String, Box<Answer>> {
        let mut refused = None;
        if let Some(clients) = self.clients.as_ref().filter(|_| !certificates.is_empty()) {
            match clients.check(certificates).await {
                Ok(subject) if self.names_subject(&subject) => return Ok(subject),
                Ok(subject) => refused = Some(format!("{subject} is not in admin-subjects")),
                Err(error) => refused = Some(error),
            }
        }
        match (&self.token, &self.clients, refused) {
            (Some(token), ..) => admit_token(token, headers),
            (None, Some(_), Some(reason)) => Err(refusal(
                StatusCode::FORBIDDEN,
                &format!("The administration does not accept this certificate: {reason}."),
            )),
            (None, Some(_), None) => Err(refusal(
                StatusCode::FORBIDDEN,
                "The administration needs a certificate of admin-clients.",
            )),
            (None, None, _) => self.admit_owner(visitor),
        }
    }

    fn names_subject(&self, subject: &str) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|one| one == subject)
    }

    fn admit_account(&self, uid: u32) -> Result<String, Box<Answer>> {
        if self.is_administrator(uid) {
            return Ok(format!("account {uid}"));
        }
        Err(refusal(
            StatusCode::FORBIDDEN,
            &format!(
                "The administration is for root and the account that started the server, not for account {uid}."
            ),
        ))
    }

    fn admit_owner(&self, visitor: &Visitor) -> Result<String, Box<Answer>> {
        match visitor.caller.holder {
            Holder::Account(uid) => self.admit_account(uid),
            Holder::Network(_) => Err(refusal(
                StatusCode::FORBIDDEN,
                "The administration cannot find out which account this connection belongs to.",
            )),
        }
    }
}

fn admit_token(token: &Token, headers: &HeaderMap) -> Result<String, Box<Answer>> {
    let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
    if shown.is_some_and(|shown| token.is(shown)) {
        return Ok("token".to_owned());
    }
    let mut refused = refusal(
        StatusCode::UNAUTHORIZED,
        "The administration needs the secret of admin-token: give it to the page, or send Authorization: Bearer SECRET.",
    );
    let bearer = HeaderValue::from_static("Bearer");
    refused.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    Err(refused)
}
