//! Connects queue pairs of RoCE and InfiniBand by records that the two ends exchange.

use std::net::IpAddr;

use super::opening::{OpenError, Opening, local_error};
use crate::handshake::{self, Method, Mode, Record};
use crate::memory::Span;
use crate::provider::{Fabric, FabricRecord, Remote, Work};

/// The rings that test packets move between.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestRings {
    pub(super) mode: Mode,
    pub(super) ring_bytes: u64,
    pub(super) source: usize,
    pub(super) sink: usize,
    pub(super) remote: Remote,
}

impl TestRings {
    /// Moves as many bytes as the longest packet has. All rings contain zeros until data is sent, so that nothing changes.
    fn work(&self) -> Work {
        /// The largest MTU.
        const PACKET_BYTES: usize = 4096;
        let ring = usize::try_from(self.ring_bytes).unwrap_or(usize::MAX);
        let span = Span::new(0, PACKET_BYTES.min(ring));
        match self.mode {
            Mode::Put => Work::Write {
                region: self.source,
                span,
                to: self.remote,
                immediate: None,
            },
            Mode::Get => Work::Read {
                region: self.sink,
                span,
                from: self.remote,
            },
        }
    }
}

impl Opening<'_> {
    /// Connects the queue pairs of adapters, with the longest packets that the path carries; the data connection stays open.
    pub(super) fn connect_fabric(
        &self,
        endpoint: &mut dyn Fabric,
        method: Method,
        rings: TestRings,
    ) -> Result<(), OpenError> {
        loop {
            self.connect_once(endpoint, method)?;
            let arrives = endpoint.test_path(rings.work(), self.operation)?;
            handshake::write(&self.socket, &Record::Path(arrives), self.operation)?;
            let Record::Path(theirs_arrive) = handshake::read(&self.socket, self.operation)? else {
                return Err(OpenError::Unexpected);
            };
            if arrives && theirs_arrive {
                return Ok(());
            }
            let shortened = self.or_refuse(endpoint.shorten_packets().map_err(local_error))?;
            if !shortened {
                return self.or_refuse(Err(OpenError::Local(self.nothing_arrives(method))));
            }
        }
    }

    fn connect_once(&self, endpoint: &mut dyn Fabric, method: Method) -> Result<(), OpenError> {
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

    /// Why not even the shortest packets arrive.
    fn nothing_arrives(&self, method: Method) -> String {
        let peer = self.peer.ip().to_canonical();
        let cause = match method {
            // RFC 6335: the port of RoCE v2.
            Method::Roce => {
                "does a firewall between the two discard packets to UDP port 4791 (RoCE v2)? The option provider=soft needs \
                 no such packets"
            }
            _ => "is there a route of the subnet manager between the two ports?",
        };
        format!(
            "no packet of the adapter gets to {peer} and is acknowledged, although TCP does: {cause}"
        )
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
