//! What a session asks of data channels: to listen, and to connect.

use std::net::SocketAddr;
use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Driver, SessionValue, StackError};
use gridhaul_transfer::{ConnectRequest, ListenFailure, ListenRequest, Stripes};
use zeroize::Zeroizing;

use super::Session;
use crate::generated as message;
use crate::wire::{self, WireError};

/// Why data channels cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Stack(#[from] StackError),
}

impl Session {
    /// Listens for data connections. Returns the addresses for the client.
    pub(super) fn listen(
        &self,
        sent: message::Listen,
    ) -> Result<Vec<SocketAddr>, message::Failure> {
        let wrong = |error: WireError| message::Failure::refused(&error);
        let count = usize::try_from(sent.listeners).unwrap_or(usize::MAX);
        if !(1..=crate::limits::LISTENERS).contains(&count) {
            return Err(wrong(WireError::new(format!("{count} listeners"))));
        }
        let request = ListenRequest {
            stack: self.stack(&sent.stack).map_err(wrong)?,
            local: self.shared.data_address(self.here.ip()),
            stripes: Stripes::Many { at_most: count },
            sockets: wire::to_sockets(sent.sockets),
            session_drivers: self.drivers(&sent.drivers).map_err(wrong)?,
        };
        let listening = self.node.listen(&request);
        let listening = listening.map_err(|error: ListenFailure| message::Failure::of(&error))?;
        let announced = |address| self.shared.announced(address);
        Ok(listening.into_iter().map(announced).collect())
    }

    /// Notes where the next transfer connects to.
    pub(super) fn connect(&self, sent: message::Connect) -> Result<(), Refused> {
        let peers = sent.peers.iter().map(wire::to_address);
        let peers: Vec<_> = peers.collect::<Result<_, _>>()?;
        for peer in &peers {
            self.check_reach(*peer)?;
        }
        let request = ConnectRequest {
            stack: self.stack(&sent.stack)?,
            peers,
            sockets: wire::to_sockets(sent.sockets),
            session_drivers: self.drivers(&sent.drivers)?,
        };
        Ok(self.node.connect(&request)?)
    }

    /// The stack of the control server with the settings of this node.
    fn stack(&self, text: &str) -> Result<StackSpec, WireError> {
        let stack = text
            .parse()
            .map_err(|error| WireError::new(format!("a wrong stack: {error}")))?;
        Ok((self.shared.config.own_stack)(stack))
    }

    /// Refuses services that only this machine reaches. The control server has checked its own machine.
    fn check_reach(&self, peer: SocketAddr) -> Result<(), WireError> {
        let host = peer.ip().to_canonical();
        // The loopback address of a client is that of its own machine, which is this one only if the control server is here.
        let is_client = host == self.client
            && (!host.is_loopback() || self.here.ip().to_canonical().is_loopback());
        if is_client || self.shared.listens_at(peer, self.here.ip()) {
            return Ok(());
        }
        (self.shared.config.reach)(self.client, host).map_err(WireError)
    }

    fn drivers(&self, sent: &[message::SessionDriver]) -> Result<Vec<Arc<dyn Driver>>, WireError> {
        let restore = &self.shared.config.restore;
        sent.iter()
            .map(|driver| {
                let bytes = Zeroizing::new(driver.value.clone());
                let value = SessionValue::new(driver.name.clone(), bytes)
                    .map_err(|error| WireError::new(error.to_string()))?;
                restore(&value).map_err(|error| WireError::new(error.to_string()))
            })
            .collect()
    }
}
