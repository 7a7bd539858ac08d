//! Attempts to authenticate: their limits, the log, and refusals.

use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_protocol::reply::Reply;

use crate::admission::Misconduct;
use crate::security::{HandshakePermit, Security};
use crate::session::call::LoginCall;
use crate::telemetry::Event;

/// The name of a mechanism in `AUTH` and in the log.
pub(super) fn name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::None => "none",
        Mechanism::Gsi => "GSSAPI",
        Mechanism::Tls => "TLS",
    }
}

/// Counts a handshake, or refuses it for now.
pub(super) fn admit_handshake(
    call: &mut LoginCall<'_>,
    security: &Security,
    mechanism: Mechanism,
) -> Result<HandshakePermit, Reply> {
    security
        .admit_handshake(call.context.peer)
        .map_err(|refusal| {
            count_failure(call, mechanism, &refusal.to_string());
            // RFC 2228 3: a resource is not available now.
            Reply::new(431, format!("{refusal}."))
        })
}

/// Counts an attempt that failed, against the session and in the log.
fn count_failure(call: &mut LoginCall<'_>, mechanism: Mechanism, reason: &str) {
    call.conduct.count_failure();
    call.context.publish(&Event::AuthenticationFailed {
        session: call.context.id,
        peer: call.context.peer,
        mechanism: name(mechanism),
        reason,
    });
}

/// Counts an attempt that failed by the client's fault, also against its network.
pub(super) fn penalize_failure(call: &mut LoginCall<'_>, mechanism: Mechanism, reason: &str) {
    call.conduct.penalize(Misconduct::Refused);
    count_failure(call, mechanism, reason);
}

/// The reply to a token that was refused.
pub(super) fn refuse_client(call: &mut LoginCall<'_>, reason: &str) -> Reply {
    penalize_failure(call, Mechanism::Gsi, reason);
    Reply::new(535, format!("Authentication failed: {reason}."))
}

pub(super) fn unknown_mechanism() -> Reply {
    Reply::new(504, "Unknown authentication type.")
}
