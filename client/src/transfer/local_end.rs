//! The end of a transfer on this machine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_gsi::{ChannelSecurity, Gsi, Protection};
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_security::tls::TlsVersions;
use gridhaul_stack::{Driver, SocketOptions};
use gridhaul_transfer::{
    ConnectRequest, Event, ListenRequest, NodeSession, Outcome, Plan, RunningTransfer, Stripes,
};
use tokio::sync::oneshot;

use super::TransferFailure;
use crate::login::Identity;
use crate::session::DataProtection;

/// The stack of data channels, and the drivers with the user's identity.
pub(super) struct Channels {
    stack: StackSpec,
    drivers: Vec<Arc<dyn Driver>>,
}

impl Channels {
    /// # Errors
    ///
    /// When data channels are to be protected and there is no identity.
    pub(super) fn new(
        mut stack: StackSpec,
        protection: DataProtection,
        identity: Option<&Identity>,
    ) -> Result<Self, TransferFailure> {
        stack.drivers.retain(|driver| driver.name != Gsi::NAME);
        if protection == DataProtection::None {
            return Ok(Self {
                stack,
                drivers: Vec::new(),
            });
        }
        let identity = identity.ok_or(TransferFailure::NoCertificate)?;
        stack.drivers.push(DriverSpec {
            name: Gsi::NAME.to_owned(),
            options: Vec::new(),
        });
        // DCAU A: the server presents the credential that was delegated to it.
        let security = ChannelSecurity {
            credential: Arc::clone(&identity.credential),
            trust: Arc::clone(&identity.trust),
            anchors: Vec::new(),
            expected: identity.credential.identity().one_line().to_owned(),
            protection: match protection {
                DataProtection::Private => Protection::Private,
                DataProtection::None | DataProtection::Authenticated => Protection::Clear,
            },
            versions: TlsVersions::default(),
        };
        Ok(Self {
            stack,
            drivers: vec![Arc::new(Gsi::new(security))],
        })
    }

    /// Listens at an address of this machine; returns where.
    pub(super) fn listen(
        &self,
        files: &dyn NodeSession,
        local: IpAddr,
    ) -> Result<Vec<SocketAddr>, TransferFailure> {
        let request = ListenRequest {
            stack: self.stack.clone(),
            local,
            stripes: Stripes::One,
            sockets: SocketOptions::default(),
            session_drivers: self.drivers.clone(),
        };
        files.listen(&request).map_err(TransferFailure::Listen)
    }

    /// Names the addresses that the next transfer connects to.
    pub(super) fn connect(
        &self,
        files: &dyn NodeSession,
        peers: Vec<SocketAddr>,
    ) -> Result<(), TransferFailure> {
        let request = ConnectRequest {
            stack: self.stack.clone(),
            peers,
            sockets: SocketOptions::default(),
            session_drivers: self.drivers.clone(),
        };
        Ok(files.connect(&request)?)
    }
}

/// A transfer that runs on this machine.
pub(super) struct LocalTransfer {
    pub(super) running: Arc<dyn RunningTransfer>,
    /// The result; the sender is never dropped before.
    pub(super) finished: oneshot::Receiver<Outcome>,
}

impl LocalTransfer {
    pub(super) fn start(files: &dyn NodeSession, plan: Plan) -> Self {
        let (tell, finished) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let running = files.transfer(
            plan,
            Box::new(move |event| {
                let Event::Finished(outcome) = event else {
                    return;
                };
                let tell = tell.lock().ok().and_then(|mut tell| tell.take());
                if let Some(tell) = tell {
                    // The other end has gone when the copy was given up.
                    let _ = tell.send(*outcome);
                }
            }),
        );
        Self { running, finished }
    }
}
