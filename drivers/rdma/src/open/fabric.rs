//! Connects queue pairs of RoCE and InfiniBand by records that the two ends exchange.

use std::net::IpAddr;

use super::opening::{OpenError, Opening, local_error};
use crate::handshake::{self, Method, Record};
use crate::provider::{Fabric, FabricRecord};

impl Opening<'_> {
    /// Connects the queue pairs of adapters; the data connection stays open.
    pub(super) fn connect_fabric(
        &self,
        endpoint: &mut dyn Fabric,
        method: Method,
    ) -> Result<(), OpenError> {
        let record = Record::Fabric(endpoint.record());
        handshake::write(&self.socket, &record, self.operation)?;
        let Record::Fabric(peer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        self.or_refuse(self.check_gid(&peer, method))?;
        let socket = self.socket.try_clone().map_err(local_error)?;
        let connected = endpoint.connect(&peer, socket).map_err(local_error);
        self.or_refuse(connected)?;
        // The receiving end must be ready first: a packet that arrives too early is retransmitted
        // only after a timeout.
        handshake::write(&self.socket, &Record::Ready, self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ready => Ok(()),
            _ => Err(OpenError::Unexpected),
        }
    }

    /// The adapter sends to the peer's GID, which must belong to the host of the data connection.
    /// Otherwise the peer could direct our packets to another host.
    fn check_gid(&self, peer: &FabricRecord, method: Method) -> Result<(), OpenError> {
        let gid = IpAddr::V6(peer.port.gid.into()).to_canonical();
        let host = self.peer.ip().to_canonical();
        if method == Method::InfiniBand || self.settings.device_options.gid.is_some() || gid == host
        {
            return Ok(());
        }
        Err(OpenError::Local(format!(
            "the adapter of the other end has the address {gid}, and the data connection {host}: where both are the \
             same host, the option gid at this end allows that"
        )))
    }
}
