//! `AUTH` and `ADAT`: how a control channel becomes protected.

use std::sync::Arc;

use gridhaul_protocol::command::{Base64, Text};
use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_protocol::reply::Reply;
use gridhaul_security::credential::Credential;
use rustls::ServerConfig;
use tokio::time::timeout_at;

use super::control::Control;
use super::login::Login;
use super::{End, Session, replies};
use crate::admission::{Misconduct, Network, Refused};
use crate::login::{self, Accepted, ExchangeError, Progress, Proof};
use crate::security::{HandshakePermit, Security};
use crate::telemetry::Event;

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
    exchange: Box<dyn login::Exchange>,
    permit: HandshakePermit,
}

/// Who logged in with GSI.
#[derive(Debug)]
pub(super) struct Initiator {
    /// In one-line form.
    pub(super) identity: String,
    /// That the client proved it, as long as the session lasts.
    pub(super) proof: Arc<dyn Proof>,
    /// What we may present on data channels, or why there is nothing. `None` until the process that serves the client
    /// has it.
    pub(super) delegated: Result<Option<Arc<Credential>>, String>,
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
    ) -> Result<Option<Reply>, String> {
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
        let (mut exchange, permit) = match exchange.take() {
            Some(exchange) => (exchange.exchange, exchange.permit),
            None => match self.admit_handshake(&security, "GSSAPI") {
                Ok(permit) => (self.settings.logins.exchange(), permit),
                Err(reply) => return Ok(Some(reply)),
            },
        };
        let (workers, network) = (&self.shared.handshakes, Network::of(self.peer));
        let stepped = workers.run(network, move || {
            let stepped = exchange.step(&token);
            (exchange, stepped)
        });
        let stepped = match stepped.await {
            Err(Refused::Busy) => {
                // It says nothing of the client. RFC 2228 3: a resource is not there now.
                permit.succeeded();
                return Ok(Some(Reply::new(431, format!("{}.", Refused::Busy))));
            }
            Err(Refused::Failed) => Err(ExchangeError::Server("the server failed".to_owned())),
            Ok((exchange, stepped)) => stepped.map(|progress| (exchange, progress)),
        };
        match stepped {
            Ok((exchange, Progress::Continue(token))) => {
                let exchange = Exchange { exchange, permit };
                self.protection = Protection::Exchange(Some(Box::new(exchange)));
                let token = Base64::encode(&token);
                Ok(Some(Reply::new(335, format!("ADAT={token}"))))
            }
            Ok((_, Progress::Accepted(accepted))) => {
                permit.succeeded();
                self.establish(control, *accepted);
                Ok(None)
            }
            Err(ExchangeError::Client(reason)) => Err(reason),
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

    /// The client is known: what comes after the reply is protected.
    fn establish(&mut self, control: &mut Control, accepted: Accepted) {
        self.shared.journal.publish(&Event::Authenticated {
            session: self.id,
            mechanism: "GSSAPI",
            protection: &accepted.description,
            identity: Some(&accepted.identity),
            delegated: Some(
                accepted
                    .delegated
                    .as_ref()
                    .map_or_else(String::as_str, |_| "yes"),
            ),
        });
        let text = if accepted.token.is_empty() {
            "GSSAPI Authentication successful.".to_owned()
        } else {
            format!("ADAT={}", Base64::encode(&accepted.token))
        };
        self.send(control, &Reply::new(235, text));
        control.protect(accepted.protection);
        self.protection = Protection::Gsi(Arc::new(Initiator {
            identity: accepted.identity,
            proof: accepted.proof,
            delegated: accepted.delegated,
        }));
        self.begin_protected(Mechanism::Gsi);
    }

    fn refuse_client(&mut self, reason: &str) -> Reply {
        self.penalize(Misconduct::Refused);
        self.authentication_failed("GSSAPI", reason);
        Reply::new(535, format!("Authentication failed: {reason}."))
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
            Ok((config, permit)) => {
                self.send(control, &Reply::new(234, "Begin the TLS handshake."));
                control.flush().await?;
                let deadline = self.connected + self.settings.config.limits.login_timeout;
                let (workers, network) = (&self.shared.handshakes, Network::of(self.peer));
                let accepted = control.accept_tls(&config, workers, network);
                let accepted = timeout_at(deadline, accepted).await;
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
    ) -> Result<(Arc<ServerConfig>, HandshakePermit), Reply> {
        if !security.offers_tls() {
            return Err(unknown_mechanism());
        }
        let host = {
            let logins = Arc::clone(&self.settings.logins);
            let threads = &self.shared.threads;
            let work = move || logins.host_tls();
            threads.log_in(&self.source(), work).await
        };
        let host = host.flatten().ok_or_else(unknown_mechanism)?;
        // An attacker on the path could have put commands there, which would be carried
        // out as if they had come in TLS.
        if !clean {
            return Err(Reply::new(
                503,
                "Nothing may be sent after AUTH TLS before its reply; there is no TLS now.",
            ));
        }
        let permit = self.admit_handshake(security, "TLS")?;
        Ok((host, permit))
    }

    /// RFC 2228 3: what was said in clear does not count any more.
    fn begin_protected(&mut self, mechanism: Mechanism) {
        self.login = Login::Nobody;
        self.negotiated.authenticated(mechanism);
    }
}

fn unknown_mechanism() -> Reply {
    Reply::new(504, "Unknown authentication type.")
}
