//! Attempts to authenticate: their limits, the log, and refusals.

use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_protocol::reply::Reply;

use crate::admission::Misconduct;
use crate::security::{HandshakePermit, Security};
use crate::session::call::LoginCall;
use crate::telemetry::Event;

/// The reason of a client that goes before the handshake is over, for the log.
pub(crate) const HANDSHAKE_ABORTED: &str = "handshake aborted";

/// The beginnings of advice in the reasons why certificates are refused. It is for administrators, and only in the log.
const ADVICE: [&str; 7] = [
    ": install ",
    ": mend ",
    ": fetch ",
    ": make ",
    ": it needs to be ",
    ": are the clocks ",
    " (allow-",
];

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
    let reason = without_advice(reason);
    Reply::new(535, format!("Authentication failed: {reason}."))
}

/// The part of a reason that the client may read.
pub(crate) fn without_advice(reason: &str) -> &str {
    let advice = ADVICE.iter().filter_map(|advice| reason.find(advice)).min();
    advice.map_or(reason, |place| &reason[..place])
}

pub(super) fn unknown_mechanism() -> Reply {
    Reply::new(504, "Unknown authentication type.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_read_what_is_wrong_and_not_what_the_administrator_has_to_do() {
        for (reason, reply) in [
            (
                "the revocation list of /CN=CA cannot be used: mend the file /etc/x.r0 (fetch-crl)",
                "the revocation list of /CN=CA cannot be used",
            ),
            (
                "/CN=A was issued by /CN=B, which is not in the trust directory: install that authority's certificate",
                "/CN=A was issued by /CN=B, which is not in the trust directory",
            ),
            (
                "received fatal alert: BadCertificate",
                "received fatal alert: BadCertificate",
            ),
        ] {
            assert_eq!(without_advice(reason), reply);
        }
    }
}
