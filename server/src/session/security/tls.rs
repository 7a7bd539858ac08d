//! `AUTH TLS` (RFC 4217 4).

use std::io;
use std::sync::Arc;

use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_protocol::reply::Reply;
use rustls::ServerConfig;
use tokio::time::timeout_at;

use super::attempt::{
    HANDSHAKE_ABORTED, admit_handshake, name, penalize_failure, unknown_mechanism,
};
use super::state::{ControlSecurity, Protection};
use crate::admission::Network;
use crate::security::{HandshakePermit, Security};
use crate::session::call::LoginCall;
use crate::session::end::End;
use crate::telemetry::Event;

impl ControlSecurity {
    pub(super) async fn start_tls(
        &mut self,
        call: &mut LoginCall<'_>,
        security: &Security,
    ) -> Result<Option<Mechanism>, End> {
        match prepare(call, security).await {
            Ok((config, permit)) => {
                call.send(&Reply::new(234, "Begin the TLS handshake."));
                call.control.flush().await?;
                let protection = handshake(call, &config).await?;
                permit.succeeded();
                call.context.publish(&Event::Authenticated {
                    session: call.context.id,
                    mechanism: name(Mechanism::Tls),
                    protection: &protection,
                    identity: None,
                    delegated: None,
                });
                self.protection = Protection::Tls;
                self.description = Some(protection);
                Ok(Some(Mechanism::Tls))
            }
            Err(reply) => {
                call.send(&reply);
                call.check_failures()?;
                Ok(None)
            }
        }
    }
}

/// What the handshake needs, or the reply to a client that gets none.
async fn prepare(
    call: &mut LoginCall<'_>,
    security: &Security,
) -> Result<(Arc<ServerConfig>, HandshakePermit), Reply> {
    let is_clean = call.control.takes_tls();
    if !security.offers_tls() {
        return Err(unknown_mechanism());
    }
    let host = call.context.host_tls().await;
    let host = host.ok_or_else(unknown_mechanism)?;
    // An attacker on the path could have inserted commands, which would be carried out as if they had come in TLS.
    if !is_clean {
        return Err(Reply::new(
            503,
            "Nothing may be sent after AUTH TLS before its reply; there is no TLS now.",
        ));
    }
    let permit = admit_handshake(call, security, Mechanism::Tls)?;
    Ok((host, permit))
}

/// Waits for the handshake. Returns the version and the cipher, for the log.
async fn handshake(call: &mut LoginCall<'_>, config: &ServerConfig) -> Result<String, End> {
    let context = call.context;
    let (workers, network) = (&context.shared.handshakes, Network::of(context.peer));
    let accepted = call.control.accept_tls(config, workers, network);
    let accepted = timeout_at(context.login_deadline(), accepted).await;
    accepted
        .unwrap_or_else(|elapsed| Err(elapsed.into()))
        .map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    format!("{HANDSHAKE_ABORTED}: the client closed the connection")
                }
                io::ErrorKind::TimedOut => {
                    format!("{HANDSHAKE_ABORTED}: the client did nothing for too long")
                }
                _ => error.to_string(),
            };
            penalize_failure(call, Mechanism::Tls, &reason);
            End::Handshake(reason)
        })
}
