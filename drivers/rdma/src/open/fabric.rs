//! Queue pairs of RoCE and InfiniBand, which the two ends connect by what they tell each other.

use std::net::IpAddr;

use super::{OpenError, Opening, local_error};
use crate::handshake::{self, FabricRecord, Record, Way};
use crate::provider::Fabric;

impl Opening<'_> {
    /// Connects the queue pairs of adapters; the data connection stays beside them.
    pub(super) fn connect_fabric(
        &self,
        endpoint: &mut dyn Fabric,
        way: Way,
    ) -> Result<(), OpenError> {
        let record = Record::Fabric(endpoint.record());
        handshake::write(&self.socket, &record, self.operation)?;
        let Record::Fabric(peer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        self.or_refuse(self.check_gid(&peer, way))?;
        let socket = self.socket.try_clone().map_err(local_error)?;
        let connected = endpoint.connect(&peer, socket).map_err(local_error);
        self.or_refuse(connected)?;
        // Whoever is sent to has to be ready: what comes too early is repeated only after a while.
        handshake::write(&self.socket, &Record::Ready, self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ready => Ok(()),
            _ => Err(OpenError::Unexpected),
        }
    }

    /// An adapter sends where the peer says. That must be the host of the data connection, or the peer could have us
    /// send to others.
    fn check_gid(&self, peer: &FabricRecord, way: Way) -> Result<(), OpenError> {
        let gid = IpAddr::V6(peer.port.gid.into()).to_canonical();
        let host = self.peer.ip().to_canonical();
        if way == Way::InfiniBand || self.settings.wishes.gid.is_some() || gid == host {
            return Ok(());
        }
        Err(OpenError::Local(format!(
            "the adapter of the other end has the address {gid}, and the data connection {host}: where both are the \
             same host, the option gid at this end says that it may be so"
        )))
    }
}
