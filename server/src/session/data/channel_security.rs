//! GSI and TLS on data channels, as `DCAU`, `PROT` and `DCSC` demand them.

use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_gsi::{ChannelSecurity, Ftps, Gsi, Protection};
use gridhaul_protocol::negotiated::{DataSecurity, Negotiated, PeerDemand};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;
use gridhaul_stack::Driver;

use super::stacks::GSI;
use crate::session::context::Context;
use crate::session::replies;
use crate::session::user::User;
use crate::telemetry::Event;

/// A stack with the drivers that exist only for this session.
pub(super) struct ChannelStack {
    pub(super) stack: StackSpec,
    pub(super) drivers: Vec<Arc<dyn Driver>>,
}

/// What data channels may be authenticated with.
#[derive(Clone, Copy)]
pub(super) struct Credentials<'a> {
    pub(super) user: &'a User,
    /// From `DCSC P`.
    pub(super) own: Option<&'a Arc<Credential>>,
}

/// The stack for data channels that are opened now: `stack`, with the security that was negotiated.
///
/// # Errors
///
/// When there is no credential to authenticate them with.
pub(super) async fn secured(
    context: &Context,
    negotiated: &Negotiated,
    credentials: Credentials<'_>,
    stack: StackSpec,
) -> Result<ChannelStack, Reply> {
    let security = negotiated
        .data_security()
        .map_err(|refusal| refusal.reply())?;
    Ok(match security {
        DataSecurity::None => ChannelStack {
            stack: without_gsi(stack),
            drivers: Vec::new(),
        },
        DataSecurity::Gsi { peer, private } => {
            let driver = gsi(context, credentials, peer, private).await?;
            ChannelStack {
                stack: with_gsi(stack, &context.settings.stack),
                drivers: vec![Arc::new(driver)],
            }
        }
        DataSecurity::Tls => {
            let config = context.host_tls().await;
            let driver = Ftps::new(config.ok_or_else(replies::server_failed)?);
            let mut stack = without_gsi(stack);
            stack.drivers.push(DriverSpec::plain(driver.name()));
            ChannelStack {
                stack,
                drivers: vec![Arc::new(driver)],
            }
        }
    })
}

async fn gsi(
    context: &Context,
    credentials: Credentials<'_>,
    peer: PeerDemand,
    private: bool,
) -> Result<Gsi, Reply> {
    let credential = presented(credentials).map_err(|reason| {
        context.publish(&Event::SecurityUnusable {
            session: context.id,
            reason: &reason,
        });
        replies::no_channel_credential(&reason)
    })?;
    let expected = match peer {
        PeerDemand::Same => credential.identity().one_line().to_owned(),
        PeerDemand::Subject(name) => name.as_str().to_owned(),
    };
    let protection = if private {
        Protection::Private
    } else {
        Protection::Clear
    };
    Ok(Gsi::new(ChannelSecurity {
        trust: trust(context).await?,
        // With `DCSC` the certificates of that credential are trusted, so that a self-signed one will do.
        anchors: credentials
            .own
            .map_or_else(Vec::new, |own| own.chain().to_vec()),
        versions: tls_versions(context),
        credential,
        expected,
        protection,
    }))
}

fn tls_versions(context: &Context) -> TlsVersions {
    let security = context.settings.security.as_ref();
    security
        .map(|security| security.tls_versions())
        .unwrap_or_default()
}

/// The credential that data channels present.
fn presented(credentials: Credentials<'_>) -> Result<Arc<Credential>, String> {
    let (credential, whose) = match (credentials.own, &credentials.user.initiator) {
        (Some(own), _) => (Arc::clone(own), "of DCSC"),
        (None, Some(initiator)) => {
            let delegated = initiator.delegated.clone()?;
            (
                delegated.ok_or("another process has the credential")?,
                "delegated",
            )
        }
        (None, None) => return Err("this session has no credential".to_owned()),
    };
    if credential.expires() <= SystemTime::now() {
        return Err(format!("the credential {whose} has expired"));
    }
    Ok(credential)
}

/// The trust of this machine's data channels.
async fn trust(context: &Context) -> Result<Arc<TrustStore>, Reply> {
    let security = context.settings.security.clone();
    let (threads, source) = (&context.shared.threads, context.source());
    let trust = threads.log_in(&source, move || {
        security
            .map(|security| security.trust())
            .unwrap_or_default()
    });
    trust.await.ok_or_else(replies::server_failed)
}

/// The client may place `gsi` in the stack. Otherwise it is at the top, with its options from `own`, the server's stack.
fn with_gsi(mut stack: StackSpec, own: &StackSpec) -> StackSpec {
    let is_gsi = |driver: &&DriverSpec| driver.name == GSI;
    if !stack.drivers.iter().any(|driver| is_gsi(&driver)) {
        let own = own.drivers.iter().find(is_gsi);
        stack
            .drivers
            .push(own.cloned().unwrap_or_else(|| DriverSpec::plain(GSI)));
    }
    stack
}

fn without_gsi(mut stack: StackSpec) -> StackSpec {
    stack.drivers.retain(|driver| driver.name != GSI);
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gsi_is_where_the_client_put_it_and_else_at_the_top() {
        let stack = |text: &str| StackSpec::parse(text).expect("a stack");
        let with = |client, own| with_gsi(stack(client), &stack(own));
        assert_eq!(with("tcp", "auto"), stack("tcp,gsi"));
        assert_eq!(with("tcp,gsi,trace", "auto"), stack("tcp,gsi,trace"));
        let own = "auto:port=5000,gsi:ktls=off";
        assert_eq!(with("tcp", own), stack("tcp,gsi:ktls=off"));
        assert_eq!(without_gsi(stack("tcp,gsi,trace")), stack("tcp,trace"));
    }
}
