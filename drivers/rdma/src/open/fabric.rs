//! Connects queue pairs of RoCE and InfiniBand by records that the two ends exchange.

use std::net::IpAddr;

use gridhaul_stack::ChannelError;

use super::opening::{OpenError, Opening, check_reads, local_error};
use crate::handshake::{self, Arrival, Method, Mode, Record};
use crate::memory::Span;
use crate::provider::{Fabric, FabricRecord, Remote, Work};

/// The largest MTU, and the smallest one (`enum ibv_mtu`).
const LONG_BYTES: usize = 4096;
const SHORT_BYTES: usize = 256;

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
    /// Moves so many bytes, WRITEs to the end of the peer's ring. All rings contain zeros until data is sent, so that nothing changes.
    ///
    /// With relaxed ordering, an acknowledged WRITE may reach the peer's memory late. Data begins at the start of the ring, and
    /// gets to its end only after messages, before which the device writes everything.
    fn work(&self, bytes: usize) -> Work {
        let ring = usize::try_from(self.ring_bytes).unwrap_or(usize::MAX);
        let bytes = bytes.min(ring);
        // The ring of a sender that pins files is shorter.
        let span = Span::new(0, bytes);
        let end = Remote {
            address: self.remote.address.wrapping_add((ring - bytes) as u64),
            ..self.remote
        };
        match self.mode {
            Mode::Put => Work::Write {
                region: self.source,
                span,
                to: end,
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

/// The tests of one MTU that have failed. Both ends count the same, because each knows the outcomes of both.
#[derive(Debug, Default)]
struct Tests {
    without_any: u32,
    without_long: u32,
}

/// What follows a test.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Use,
    Repeat,
    Shorten,
    GiveUp,
}

impl Tests {
    /// A path may lose any packet, so that one test does not tell its MTU.
    fn after(&mut self, arrival: Arrival) -> Step {
        const MOST_WITHOUT_ANY: u32 = 3;
        const MOST_WITHOUT_LONG: u32 = 2;
        match arrival {
            Arrival::All => return Step::Use,
            Arrival::Short => self.without_long += 1,
            Arrival::Nothing => self.without_any += 1,
        }
        if self.without_any >= MOST_WITHOUT_ANY {
            return Step::GiveUp;
        }
        if self.without_long >= MOST_WITHOUT_LONG {
            *self = Self::default();
            return Step::Shorten;
        }
        Step::Repeat
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
        let mut tests = Tests::default();
        loop {
            self.connect_once(endpoint, method, rings.mode)?;
            let ours = self.test(endpoint, rings)?;
            handshake::write(&self.socket, &Record::Path(ours), self.operation)?;
            let Record::Path(theirs) = handshake::read(&self.socket, self.operation)? else {
                return Err(OpenError::Unexpected);
            };
            match tests.after(ours.min(theirs)) {
                Step::Use => return Ok(()),
                Step::Repeat => self.or_refuse(endpoint.reconnect().map_err(local_error))?,
                Step::Shorten => {
                    let shortened = endpoint.shorten_packets().map_err(local_error);
                    if !self.or_refuse(shortened)? {
                        return self.or_refuse(Err(OpenError::Local(self.bursts_are_lost())));
                    }
                }
                Step::GiveUp => {
                    return self.or_refuse(Err(OpenError::Local(self.nothing_arrives(method))));
                }
            }
        }
    }

    /// Short packets first: where these are lost as well, their length is not the reason.
    fn test(&self, endpoint: &mut dyn Fabric, rings: TestRings) -> Result<Arrival, OpenError> {
        for (bytes, otherwise) in [
            (SHORT_BYTES, Arrival::Nothing),
            (LONG_BYTES, Arrival::Short),
        ] {
            let arrived = endpoint.test_path(rings.work(bytes), self.operation);
            let arrived = arrived.map_err(|error| match error {
                // The device does not take the work.
                ChannelError::Protocol { reason, .. } => OpenError::Local(reason),
                other => other.into(),
            });
            if !self.or_refuse(arrived)? {
                return Ok(otherwise);
            }
        }
        Ok(Arrival::All)
    }

    fn connect_once(
        &self,
        endpoint: &mut dyn Fabric,
        method: Method,
        mode: Mode,
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
        // A device without READs would look like a path that loses all packets.
        self.or_refuse(check_reads(endpoint.limits(), mode))?;
        // The receiving end must be ready first: a packet that arrives too early is retransmitted
        // only after a timeout.
        handshake::write(&self.socket, &Record::Ready, self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ready => Ok(()),
            _ => Err(OpenError::Unexpected),
        }
    }

    /// Why the path is not used although a short packet arrives.
    fn bursts_are_lost(&self) -> String {
        let peer = self.peer.ip().to_canonical();
        format!(
            "a packet of 256 bytes of the adapter gets to {peer}, and {LONG_BYTES} bytes in such packets do not: does a device on \
             the way limit the rate of such packets (RoCE v2: UDP port 4791)? The option provider=soft needs none"
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_use_the_part_of_the_ring_that_data_reaches_last() {
        let remote = |address| Remote { address, key: 3 };
        let rings = |mode, ring_bytes| TestRings {
            mode,
            ring_bytes,
            source: 1,
            sink: 2,
            remote: remote(10_000),
        };
        let span = Span::new(0, 256);
        let (to, from) = (remote(10_000 + 65_280), remote(10_000));
        let write = Work::Write {
            region: 1,
            span,
            to,
            immediate: None,
        };
        assert_eq!(rings(Mode::Put, 65_536).work(256), write);
        let read = Work::Read {
            region: 2,
            span,
            from,
        };
        assert_eq!(rings(Mode::Get, 65_536).work(256), read);
        let whole = Work::Read {
            region: 2,
            span: Span::new(0, 100),
            from: remote(10_000),
        };
        assert_eq!(rings(Mode::Get, 100).work(4096), whole);
    }

    #[test]
    fn one_failed_test_changes_nothing() {
        use Arrival::{All, Nothing, Short};
        for (outcomes, step) in [
            (&[All][..], Step::Use),
            (&[Short], Step::Repeat),
            (&[Short, All], Step::Use),
            (&[Short, Nothing], Step::Repeat),
            (&[Short, Nothing, Short], Step::Shorten),
            (&[Nothing, Nothing], Step::Repeat),
            (&[Nothing, Nothing, Nothing], Step::GiveUp),
            // Each MTU has tests of its own.
            (&[Short, Short, Short], Step::Repeat),
        ] {
            let mut tests = Tests::default();
            let last = outcomes.iter().map(|outcome| tests.after(*outcome)).last();
            assert_eq!(last, Some(step), "{outcomes:?}");
        }
    }
}
