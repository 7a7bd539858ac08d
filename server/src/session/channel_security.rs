//! What data channels prove and demand: the credential of `DCSC`, and the drivers that follow from
//! `DCAU` and `PROT`.

use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_gsi::{ChannelSecurity, Ftps, Gsi, Protection as ChannelProtection};
use gridhaul_protocol::command::DataChannelContext;
use gridhaul_protocol::negotiated::{DataSecurity, PeerDemand};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;
use gridhaul_stack::Driver;

use super::authenticate::Protection;
use super::{Session, User, names, replies};
use crate::telemetry::Event;

/// The driver whose place in a stack the client decides.
pub(crate) const GSI: &str = "gsi";

/// A stack as this session uses it.
pub(super) struct ChannelStack {
    pub(super) stack: StackSpec,
    /// Drivers that know whose session it is.
    pub(super) drivers: Vec<Arc<dyn Driver>>,
}

impl Session {
    /// `DCSC`.
    pub(super) fn set_channel_credential(
        &mut self,
        user: &User,
        context: &DataChannelContext,
    ) -> Reply {
        self.own_credential = match context {
            DataChannelContext::Default => None,
            DataChannelContext::Credential(text) => {
                let Some(pem) = text.decode() else {
                    let text = "Invalid base64 input for credential type P.";
                    return Reply::new(501, text);
                };
                match Credential::from_pem(&pem) {
                    Ok(credential) => Some(Arc::new(credential)),
                    Err(error) => {
                        let reason = error.to_string();
                        return Reply::coded(500, "Credential import failed.", [reason], "End.");
                    }
                }
            }
        };
        let own = self.own_credential.is_some();
        user.settle(self.negotiated.set_own_credential(own));
        names::ok()
    }

    /// The stack for data channels that are made now, from what they run over.
    ///
    /// # Errors
    ///
    /// When there is nothing to authenticate them with.
    pub(super) async fn channel_stack(&self, stack: StackSpec) -> Result<ChannelStack, Reply> {
        let security = self
            .negotiated
            .data_security()
            .map_err(|refusal| refusal.reply())?;
        Ok(match security {
            DataSecurity::None => ChannelStack {
                stack: without_gsi(stack),
                drivers: Vec::new(),
            },
            DataSecurity::Gsi { peer, private } => ChannelStack {
                stack: with_gsi(stack, &self.settings.stack),
                drivers: vec![Arc::new(self.gsi(peer, private).await?)],
            },
            DataSecurity::Tls => {
                let driver = self.ftps().await?;
                let mut stack = without_gsi(stack);
                stack.drivers.push(plain(driver.name()));
                ChannelStack {
                    stack,
                    drivers: vec![Arc::new(driver)],
                }
            }
        })
    }

    async fn gsi(&self, peer: PeerDemand, private: bool) -> Result<Gsi, Reply> {
        let credential = self.channel_credential().map_err(|reason| {
            self.shared.journal.publish(&Event::SecurityUnusable {
                session: self.id,
                reason: &reason,
            });
            replies::no_channel_credential(&reason)
        })?;
        let expected = match peer {
            PeerDemand::Same => credential.identity().one_line().to_owned(),
            PeerDemand::Subject(name) => name.as_str().to_owned(),
        };
        let protection = if private {
            ChannelProtection::Private
        } else {
            ChannelProtection::Clear
        };
        Ok(Gsi::new(ChannelSecurity {
            trust: self.channel_trust().await?,
            versions: self.tls_versions(),
            credential,
            expected,
            protection,
        }))
    }

    fn tls_versions(&self) -> TlsVersions {
        let security = self.settings.security.as_ref();
        security
            .map(|security| security.tls_versions())
            .unwrap_or_default()
    }

    /// What data channels present.
    fn channel_credential(&self) -> Result<Arc<Credential>, String> {
        let (credential, whose) = match (&self.own_credential, &self.protection) {
            (Some(own), _) => (Arc::clone(own), "of DCSC"),
            (None, Protection::Gsi(initiator)) => {
                let delegated = initiator.delegated.clone()?;
                (
                    delegated.ok_or("another process has the credential")?,
                    "delegated",
                )
            }
            (None, _) => return Err("this session has no credential".to_owned()),
        };
        if credential.expires() <= SystemTime::now() {
            return Err(format!("the credential {whose} has expired"));
        }
        Ok(credential)
    }

    /// Whom data channels trust: with `DCSC` also the certificates that came with it, which may come
    /// from nowhere.
    async fn channel_trust(&self) -> Result<Arc<TrustStore>, Reply> {
        let security = self.settings.security.clone();
        let own = self.own_credential.clone();
        let (threads, source) = (&self.shared.threads, self.source());
        let trust = threads.log_in(&source, move || {
            let trust = security
                .map(|security| security.trust())
                .unwrap_or_default();
            match own {
                Some(own) => Arc::new(trust.with_anchors(own.chain())),
                None => trust,
            }
        });
        trust.await.ok_or_else(server_failed)
    }

    async fn ftps(&self) -> Result<Ftps, Reply> {
        let logins = Arc::clone(&self.settings.logins);
        let threads = &self.shared.threads;
        let config = threads
            .log_in(&self.source(), move || logins.host_tls())
            .await;
        let config = config.flatten().ok_or_else(server_failed)?;
        Ok(Ftps::new(config))
    }
}

/// The client may say where in the stack `gsi` is; else it is at the top, as it is in `own`, the server's own stack.
fn with_gsi(mut stack: StackSpec, own: &StackSpec) -> StackSpec {
    let is_gsi = |driver: &&DriverSpec| driver.name == GSI;
    if !stack.drivers.iter().any(|driver| is_gsi(&driver)) {
        let own = own.drivers.iter().find(is_gsi);
        stack
            .drivers
            .push(own.cloned().unwrap_or_else(|| plain(GSI)));
    }
    stack
}

fn without_gsi(mut stack: StackSpec) -> StackSpec {
    stack.drivers.retain(|driver| driver.name != GSI);
    stack
}

fn plain(name: &str) -> DriverSpec {
    DriverSpec {
        name: name.to_owned(),
        options: Vec::new(),
    }
}

fn server_failed() -> Reply {
    Reply::new(451, "Command failed. : the server failed.")
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
