//! The login with a certificate: `AUTH GSSAPI` and `ADAT` (RFC 2228 3).

use gridhaul_protocol::command::{Base64, Command, Text};
use gridhaul_security::context::{Context, Step};
use gridhaul_security::host_name::{HostName, hosts_of};
use gridhaul_security::trust::Peer;

use super::identity::Identity;
use crate::control::{Control, ControlError, accepted};
use crate::location::Server;

/// What the certificate of the server must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedServer {
    /// That of the host in the URL.
    Host,
    /// That with this subject.
    Subject(String),
}

/// Authenticates both ends, delegates a limited proxy, and protects the channel.
///
/// # Errors
///
/// When one of them does not accept the other.
pub(super) async fn authenticate(
    control: &mut Control,
    server: &Server,
    identity: &Identity,
    expected: &ExpectedServer,
) -> Result<(), ControlError> {
    let mechanism = Text::new("GSSAPI").ok_or(ControlError::Unsendable("the mechanism"))?;
    let offered = control.ask(&Command::Auth(mechanism)).await?;
    accepted("AUTH", offered)?;
    let mut context = Context::initiator(&identity.tls_settings(), true)?;
    let mut token = Vec::new();
    loop {
        let mut alert = Vec::new();
        let step = match context.step(&token, &mut alert) {
            Ok(step) => step,
            Err(error) => {
                tell(control, &alert).await;
                return Err(error.into());
            }
        };
        let (output, is_done) = match step {
            Step::Continue(output) => (output, false),
            Step::Done(output) => (output, true),
        };
        if is_done {
            // Before the last token, which has the delegated proxy.
            check_host(&context, server, expected)?;
        }
        let adat = Base64::new(Base64::encode(&output))
            .ok_or(ControlError::Unsendable("a security token of this length"))?;
        let reply = accepted("ADAT", control.ask(&Command::Adat(adat)).await?)?;
        // 235 ends the exchange; 335 has another token.
        match (reply.code(), is_done) {
            (235, true) => break,
            (335, false) => token = token_of(&reply.text())?,
            _ => {
                let verb = "ADAT";
                return Err(ControlError::Unexpected { verb, reply });
            }
        }
    }
    control.protect(context)
}

/// Sends the TLS alert, so that the log of the server has the reason. Its answer does not matter.
async fn tell(control: &mut Control, alert: &[u8]) {
    if let Some(token) = Base64::new(Base64::encode(alert)) {
        let _ = control.ask(&Command::Adat(token)).await;
    }
}

/// RFC 2228 3: `ADAT=base64data` within the text.
fn token_of(text: &str) -> Result<Vec<u8>, ControlError> {
    let token = text.split_once("ADAT=").map(|(_, token)| token.trim());
    let token = token.and_then(|token| Base64::new(token)?.decode());
    Ok(token.ok_or(ControlError::Unreadable)?.to_vec())
}

fn check_host(
    context: &Context,
    server: &Server,
    expected: &ExpectedServer,
) -> Result<(), ControlError> {
    let peer = context.peer();
    let is_expected = peer.is_some_and(|peer| match expected {
        ExpectedServer::Host => {
            let host = server.host.parse::<HostName>();
            host.is_ok_and(|host| host.is_certified_by(&peer.chain))
        }
        ExpectedServer::Subject(subject) => peer.identity.one_line() == subject,
    });
    if is_expected {
        return Ok(());
    }
    Err(ControlError::OtherHost {
        host: server.host.clone(),
        presented: peer.map_or_else(|| "no host".to_owned(), presented),
    })
}

fn presented(peer: &Peer) -> String {
    let hosts = peer.chain.first().map(hosts_of).unwrap_or_default();
    match hosts.is_empty() {
        true => peer.identity.one_line().to_owned(),
        false => hosts.join(", "),
    }
}
