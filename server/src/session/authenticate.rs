//! `AUTH` and `ADAT`: how a control channel becomes protected.

use std::sync::Arc;

use gridhaul_protocol::command::{Base64, Text};
use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_protocol::reply::Reply;
use gridhaul_security::context::{Context, ContextError, Step};
use gridhaul_security::credential::Credential;
use gridhaul_security::trust::Peer;
use tokio::time::timeout_at;

use super::control::Control;
use super::login::Login;
use super::{End, Session, replies};
use crate::admission::{Misconduct, Network, Refused};
use crate::events::Event;
use crate::security::{HandshakePermit, Security};

/// What protects the control channel, or will.
#[derive(Debug, Default)]
pub(super) enum Protection {
    /// Nothing does.
    #[default]
    None,
    /// `AUTH GSSAPI` was accepted. The exchange begins with the first token, and again after one that
    /// failed.
    Exchange(Option<Box<Exchange>>),
    /// A security context.
    Gsi(Arc<Initiator>),
    /// TLS.
    Tls,
}

/// A security exchange under way.
#[derive(Debug)]
pub(super) struct Exchange {
    context: Context,
    permit: HandshakePermit,
}

/// Who logged in with GSI.
#[derive(Debug)]
pub(super) struct Initiator {
    pub(super) peer: Peer,
    /// What we may present on data channels, or why there is nothing.
    pub(super) delegated: Result<Arc<Credential>, String>,
}

/// Why a token was not accepted.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    /// The client is not who it has to be, or breaks the protocol.
    #[error(transparent)]
    Client(#[from] Box<ContextError>),
    /// A mistake of ours.
    #[error("the server failed")]
    Panicked,
}

impl Session {
    /// `AUTH`. All replies are sent here: after some the channel changes.
    pub(super) async fn authenticate(
        &mut self,
        control: &mut Control,
        mechanism: &Text,
    ) -> Result<(), End> {
        let wanted = mechanism.as_str().to_ascii_uppercase();
        let protected = matches!(self.protection, Protection::Gsi(_) | Protection::Tls);
        let reply = if protected || self.login.user().is_some() {
            Reply::new(503, "AUTH comes once, and before USER and PASS.")
        } else {
            match (wanted.as_str(), self.settings.security.clone()) {
                ("GSSAPI", Some(security)) if security.offers_gsi() => {
                    self.protection = Protection::Exchange(None);
                    Reply::new(334, "Using authentication type; ADAT must follow.")
                }
                // RFC 4217 4: TLS-C is another name.
                ("TLS" | "TLS-C", Some(security)) => {
                    return self.begin_tls(control, security).await;
                }
                _ => unknown_mechanism(),
            }
        };
        self.send(control, &reply);
        Ok(())
    }

    /// `ADAT`. All replies are sent here, since those after the last one are protected.
    pub(super) async fn take_token(
        &mut self,
        control: &mut Control,
        token: &Base64,
    ) -> Result<(), End> {
        let reply = match self.advance(control, token).await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(()),
            Err(reason) => self.refuse_client(&reason),
        };
        self.send(control, &reply);
        self.check_failures()
    }

    /// The reply to a token, unless it was sent; or why the client is refused.
    async fn advance(
        &mut self,
        control: &mut Control,
        token: &Base64,
    ) -> Result<Option<Reply>, Box<ContextError>> {
        let (Protection::Exchange(exchange), Some(security), None) = (
            &mut self.protection,
            self.settings.security.clone(),
            self.login.user(),
        ) else {
            return Ok(Some(Reply::new(
                503,
                "ADAT comes after AUTH GSSAPI, and before USER and PASS.",
            )));
        };
        let Some(token) = token.decode() else {
            return Ok(Some(Reply::new(501, "ADAT: the argument is no base64.")));
        };
        let (context, permit) = match exchange.take() {
            Some(exchange) => (Some(exchange.context), exchange.permit),
            None => match self.admit_handshake(&security, "GSSAPI") {
                Ok(permit) => (None, permit),
                Err(reply) => return Ok(Some(reply)),
            },
        };
        let (workers, network) = (&self.shared.handshakes, Network::of(self.peer));
        let stepped = workers.run(network, move || step(&security, context, &token));
        let stepped = match stepped.await {
            Err(Refused::Busy) => {
                // It says nothing of the client. RFC 2228 3: a resource is not there now.
                permit.succeeded();
                return Ok(Some(Reply::new(431, format!("{}.", Refused::Busy))));
            }
            Err(Refused::Failed) => Err(ExchangeError::Panicked),
            Ok(stepped) => stepped,
        };
        match stepped {
            Ok((context, Step::Continue(token))) => {
                let context = Exchange { context, permit };
                self.protection = Protection::Exchange(Some(Box::new(context)));
                let token = Base64::encode(&token);
                Ok(Some(Reply::new(335, format!("ADAT={token}"))))
            }
            Ok((context, Step::Done(token))) => {
                permit.succeeded();
                self.establish(control, context, &token)?;
                Ok(None)
            }
            Err(ExchangeError::Client(error)) => Err(error),
            Err(error) => {
                // It says nothing of the client.
                permit.succeeded();
                self.shared.journal.publish(&Event::SecurityUnusable {
                    session: self.id,
                    reason: &error.to_string(),
                });
                Ok(Some(replies::no_server_credential()))
            }
        }
    }

    /// Counts a handshake, or refuses it for now.
    fn admit_handshake(
        &mut self,
        security: &Security,
        mechanism: &str,
    ) -> Result<HandshakePermit, Reply> {
        security.admit_handshake(self.peer).map_err(|refusal| {
            self.authentication_failed(mechanism, &refusal.to_string());
            // RFC 2228 3: a resource is not there now.
            Reply::new(431, format!("{refusal}."))
        })
    }

    /// The context is complete: it protects what comes after the reply.
    fn establish(
        &mut self,
        control: &mut Control,
        mut context: Context,
        token: &[u8],
    ) -> Result<(), Box<ContextError>> {
        let peer = context
            .peer()
            .cloned()
            .ok_or_else(|| ContextError::Protocol("no certificate was presented".to_owned()))
            .map_err(Box::new)?;
        let delegated = match context.take_delegated() {
            Some(Ok(credential)) => Ok(Arc::new(credential)),
            Some(Err(error)) => Err(format!("the delegated credential cannot be used: {error}")),
            None => Err("no credential was delegated".to_owned()),
        };
        self.shared.journal.publish(&Event::Authenticated {
            session: self.id,
            mechanism: "GSSAPI",
            protection: &context.description(),
            identity: Some(peer.identity.one_line()),
            delegated: Some(delegated.as_ref().map_or_else(String::as_str, |_| "yes")),
        });
        let text = if token.is_empty() {
            "GSSAPI Authentication successful.".to_owned()
        } else {
            format!("ADAT={}", Base64::encode(token))
        };
        self.send(control, &Reply::new(235, text));
        control.protect(context);
        self.protection = Protection::Gsi(Arc::new(Initiator { peer, delegated }));
        self.begin_protected(Mechanism::Gsi);
        Ok(())
    }

    fn refuse_client(&mut self, error: &ContextError) -> Reply {
        self.penalize(Misconduct::Refused);
        self.authentication_failed("GSSAPI", &error.to_string());
        Reply::new(535, format!("Authentication failed: {error}."))
    }

    fn authentication_failed(&mut self, mechanism: &str, reason: &str) {
        self.failures += 1;
        self.shared.journal.publish(&Event::AuthenticationFailed {
            session: self.id,
            peer: self.peer,
            mechanism,
            reason,
        });
    }

    /// `AUTH TLS` (RFC 4217 4).
    async fn begin_tls(
        &mut self,
        control: &mut Control,
        security: Arc<Security>,
    ) -> Result<(), End> {
        let reply = match self.prepare_tls(control.takes_tls(), &security).await {
            Ok((acceptor, permit)) => {
                self.send(control, &Reply::new(234, "Begin the TLS handshake."));
                control.flush().await?;
                let deadline = self.connected + self.settings.config.limits.login_timeout;
                let accepted = timeout_at(deadline, control.accept_tls(&acceptor)).await;
                let protection = accepted
                    .unwrap_or_else(|elapsed| Err(elapsed.into()))
                    .map_err(|error| {
                        self.penalize(Misconduct::Refused);
                        self.authentication_failed("TLS", &error.to_string());
                        End::Handshake(error.to_string())
                    })?;
                permit.succeeded();
                self.shared.journal.publish(&Event::Authenticated {
                    session: self.id,
                    mechanism: "TLS",
                    protection: &protection,
                    identity: None,
                    delegated: None,
                });
                self.protection = Protection::Tls;
                self.begin_protected(Mechanism::Tls);
                return Ok(());
            }
            Err(reply) => reply,
        };
        self.send(control, &reply);
        self.check_failures()
    }

    /// `clean` is a channel on which nothing was sent after the command.
    async fn prepare_tls(
        &mut self,
        clean: bool,
        security: &Arc<Security>,
    ) -> Result<(tokio_rustls::TlsAcceptor, HandshakePermit), Reply> {
        let acceptor = {
            let security = Arc::clone(security);
            let threads = &self.shared.threads;
            let work = move || security.tls_acceptor();
            threads.log_in(&self.source(), work).await
        };
        let acceptor = acceptor.flatten().ok_or_else(unknown_mechanism)?;
        // Whoever sits between client and server could have put commands there, which would be carried
        // out as if they had come in TLS.
        if !clean {
            return Err(Reply::new(
                503,
                "Nothing may be sent after AUTH TLS before its reply; there is no TLS now.",
            ));
        }
        let permit = self.admit_handshake(security, "TLS")?;
        Ok((acceptor, permit))
    }

    /// RFC 2228 3: what was said in clear does not count any more.
    fn begin_protected(&mut self, mechanism: Mechanism) {
        self.login = Login::Nobody;
        self.negotiated.authenticated(mechanism);
    }
}

/// Takes one token; the first one begins the context. Reads files, and computes for long.
fn step(
    security: &Security,
    context: Option<Context>,
    token: &[u8],
) -> Result<(Context, Step), ExchangeError> {
    let mut context = match context {
        Some(context) => context,
        None => {
            let settings = security.login();
            Context::acceptor(&settings, security.delegation_keys()).map_err(Box::new)?
        }
    };
    // There is no place for an alert in a reply that says no.
    let mut alert = Vec::new();
    let step = context.step(token, &mut alert).map_err(Box::new)?;
    Ok((context, step))
}

fn unknown_mechanism() -> Reply {
    Reply::new(504, "Unknown authentication type.")
}
