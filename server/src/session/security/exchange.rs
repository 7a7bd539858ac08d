//! The exchange of GSI tokens.

use std::sync::Arc;

use gridhaul_protocol::command::Base64;
use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_protocol::reply::Reply;

use super::attempt::{admit_handshake, name};
use super::state::{ControlSecurity, PendingExchange, Protection};
use crate::admission::{Network, Refused};
use crate::login::{Accepted, ExchangeError, Progress};
use crate::security::Security;
use crate::session::call::LoginCall;
use crate::session::initiator::Initiator;
use crate::session::replies;
use crate::telemetry::Event;

impl ControlSecurity {
    /// Takes a token while an exchange is under way. Returns the reply, unless the exchange is complete and the reply was
    /// sent; or the reason why the client is refused.
    pub(super) async fn advance(
        &mut self,
        call: &mut LoginCall<'_>,
        security: &Security,
        token: &Base64,
    ) -> Result<Option<Reply>, String> {
        let Some(token) = token.decode() else {
            return Ok(Some(Reply::new(501, "ADAT: the argument is no base64.")));
        };
        let (mut exchange, permit) = match self.resume(call, security) {
            Ok(pending) => (pending.exchange, pending.permit),
            Err(reply) => return Ok(Some(reply)),
        };
        let (workers, network) = (
            &call.context.shared.handshakes,
            Network::of(call.context.peer),
        );
        let stepped = workers.run(network, move || {
            let stepped = exchange.step(&token);
            (exchange, stepped)
        });
        let stepped = match stepped.await {
            Err(Refused::Busy) => {
                // Not the client's fault. RFC 2228 3: a resource is not available now.
                permit.succeeded();
                return Ok(Some(Reply::new(431, format!("{}.", Refused::Busy))));
            }
            Err(Refused::Failed) => Err(ExchangeError::Server("the server failed".to_owned())),
            Ok((exchange, stepped)) => stepped.map(|progress| (exchange, progress)),
        };
        match stepped {
            Ok((exchange, Progress::Continue(token))) => {
                let pending = PendingExchange { exchange, permit };
                self.protection = Protection::Exchange(Some(Box::new(pending)));
                let token = Base64::encode(&token);
                Ok(Some(Reply::new(335, format!("ADAT={token}"))))
            }
            Ok((_, Progress::Accepted(accepted))) => {
                permit.succeeded();
                self.establish(call, *accepted);
                Ok(None)
            }
            Err(ExchangeError::Client(reason)) => Err(reason),
            Err(error) => {
                // Not the client's fault.
                permit.succeeded();
                call.context.publish(&Event::SecurityUnusable {
                    session: call.context.id,
                    reason: &error.to_string(),
                });
                Ok(Some(replies::no_server_credential()))
            }
        }
    }

    /// The exchange under way, or a new one.
    fn resume(
        &mut self,
        call: &mut LoginCall<'_>,
        security: &Security,
    ) -> Result<PendingExchange, Reply> {
        if let Protection::Exchange(exchange) = &mut self.protection
            && let Some(pending) = exchange.take()
        {
            return Ok(*pending);
        }
        let permit = admit_handshake(call, security, Mechanism::Gsi)?;
        let exchange = call.context.settings.logins.exchange();
        Ok(PendingExchange { exchange, permit })
    }

    /// Protects the channel after the last reply.
    fn establish(&mut self, call: &mut LoginCall<'_>, accepted: Accepted) {
        let delegated = accepted.delegated.as_ref();
        call.context.publish(&Event::Authenticated {
            session: call.context.id,
            mechanism: name(Mechanism::Gsi),
            protection: &accepted.description,
            identity: Some(&accepted.identity),
            delegated: Some(delegated.map_or_else(String::as_str, |_| "yes")),
        });
        let text = if accepted.token.is_empty() {
            "GSSAPI Authentication successful.".to_owned()
        } else {
            format!("ADAT={}", Base64::encode(&accepted.token))
        };
        call.send(&Reply::new(235, text));
        call.control.protect(accepted.protection);
        self.description = Some(accepted.description);
        self.protection = Protection::Gsi(Arc::new(Initiator {
            identity: accepted.identity,
            proof: accepted.proof,
            delegated: accepted.delegated,
        }));
    }
}
