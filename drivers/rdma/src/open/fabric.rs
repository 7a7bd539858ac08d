//! Connects queue pairs of RoCE and InfiniBand by records that the two ends exchange.

use std::net::IpAddr;

use gridhaul_stack::ChannelError;

use super::opening::{OpenError, Opening, check_reads, local_error};
use super::unusable_paths::RailPath;
use crate::handshake::{self, Arrival, Method, Mode, Record};
use crate::memory::Span;
use crate::provider::{Fabric, PortRecord, RemoteRing, Work, rail_of};

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
    pub(super) remote: RemoteRing,
}

impl TestRings {
    /// Moves so many bytes over a queue pair, WRITEs to the end of the peer's ring. All rings contain zeros until data is sent, so
    /// that nothing changes.
    ///
    /// With relaxed ordering, an acknowledged WRITE may reach the peer's memory late. Data begins at the start of the ring, and
    /// gets to its end only after messages, before which the device writes everything.
    fn work(&self, queue_pair: usize, bytes: usize) -> Work {
        let ring = usize::try_from(self.ring_bytes).unwrap_or(usize::MAX);
        let bytes = bytes.min(ring);
        // The ring of a sender that pins files is shorter.
        let span = Span::new(0, bytes);
        match self.mode {
            Mode::Put => Work::Write {
                region: self.source,
                span,
                to: self.remote.at(queue_pair, ring - bytes),
                immediate: None,
            },
            Mode::Get => Work::Read {
                region: self.sink,
                span,
                from: self.remote.at(queue_pair, 0),
            },
        }
    }
}

/// The tests of one MTU of a rail that have failed. Both ends count the same, because each knows the outcomes of both.
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
    /// Connects the queue pairs of adapters by a method, with the longest packets that each rail carries; the data connection stays
    /// open. Rails that carry none are left out, unless none is left. Returns the peer's ring on the others. `has_alternative`: as far
    /// as this end knows, both can do without adapters.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoPath`] at both ends alike if no rail is left: each knows the results of both. The data connection has then no
    /// unread record, so that the two can agree on another method.
    pub(super) fn connect_fabric(
        &self,
        endpoint: &mut dyn Fabric,
        (method, has_alternative): (Method, bool),
        mut rings: TestRings,
    ) -> Result<RemoteRing, OpenError> {
        let mut tests: Vec<_> = (0..rings.remote.rails())
            .map(|_| Tests::default())
            .collect();
        loop {
            let mut paths = self.connect_once(endpoint, (method, has_alternative), rings)?;
            let arrivals = self.test_both_ways(endpoint, &paths, rings)?;
            let steps = tests.iter_mut().zip(arrivals);
            let steps: Vec<_> = steps.map(|(tests, arrival)| tests.after(arrival)).collect();
            if steps.iter().all(|step| *step == Step::Use) {
                return Ok(rings.remote);
            }
            // Both ends come to the same decisions.
            for (rail, step) in steps.into_iter().enumerate().rev() {
                let reason = match step {
                    Step::Use | Step::Repeat => continue,
                    Step::Shorten if endpoint.shorten_packets(rail) => continue,
                    Step::Shorten => self.bursts_are_lost(),
                    Step::GiveUp => self.nothing_arrives(method, endpoint.unreachable(rail)),
                };
                let reason = paths.remove(rail).give_up(reason);
                if rings.remote.rails() == 1 {
                    return Err(OpenError::NoPath(reason));
                }
                endpoint.leave_out(rail);
                tests.remove(rail);
                rings.remote = rings.remote.without(rail);
            }
            self.or_refuse(endpoint.reconnect().map_err(local_error))?;
        }
    }

    /// What arrives on each rail in both directions.
    fn test_both_ways(
        &self,
        endpoint: &mut dyn Fabric,
        paths: &[RailPath],
        rings: TestRings,
    ) -> Result<Vec<Arrival>, OpenError> {
        let ours = self.test(endpoint, paths, rings)?;
        let record = Record::Path(ours.clone());
        handshake::write(&self.socket, &record, self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Path(theirs) if theirs.len() == ours.len() => {
                let both = ours.into_iter().zip(theirs);
                Ok(both.map(|(ours, theirs)| ours.min(theirs)).collect())
            }
            _ => Err(OpenError::Unexpected),
        }
    }

    /// Short packets first: where these are lost as well, their length is not the reason.
    fn test(
        &self,
        endpoint: &mut dyn Fabric,
        paths: &[RailPath],
        rings: TestRings,
    ) -> Result<Vec<Arrival>, OpenError> {
        let mut arrivals = vec![Arrival::Nothing; rings.remote.rails()];
        for (bytes, before, passed) in [
            (SHORT_BYTES, Arrival::Nothing, Arrival::Short),
            (LONG_BYTES, Arrival::Short, Arrival::All),
        ] {
            let rails = arrivals.iter().zip(paths);
            let is_tested: Vec<_> = rails
                .map(|(arrival, path)| *arrival == before && path.unusable.is_none())
                .collect();
            if !is_tested.contains(&true) {
                break;
            }
            let work = |queue_pair| {
                let rail = rail_of(queue_pair, rings.remote.rails());
                is_tested[rail].then(|| rings.work(queue_pair, bytes))
            };
            let arrived = endpoint.test_path(&work, self.operation);
            let arrived = arrived.map_err(|error| match error {
                // The device does not take the work.
                ChannelError::Protocol { reason, .. } => OpenError::Local(reason),
                other => other.into(),
            });
            let arrived = self.or_refuse(arrived)?;
            let outcomes = is_tested.iter().zip(arrived);
            for (arrival, (is_tested, arrived)) in arrivals.iter_mut().zip(outcomes) {
                if *is_tested && arrived {
                    *arrival = passed;
                }
            }
        }
        Ok(arrivals)
    }

    /// Returns the path of each rail.
    fn connect_once(
        &self,
        endpoint: &mut dyn Fabric,
        (method, has_alternative): (Method, bool),
        rings: TestRings,
    ) -> Result<Vec<RailPath>, OpenError> {
        let own = endpoint.record();
        let ports = own.ports.clone();
        handshake::write(&self.socket, &Record::Fabric(own), self.operation)?;
        let Record::Fabric(peer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        if peer.ports.len() != rings.remote.rails() {
            return Err(OpenError::Unexpected);
        }
        for port in &peer.ports {
            self.or_refuse(self.check_gid(port, method))?;
        }
        let paths = self.paths(&ports, &peer.ports, has_alternative);
        let rails = paths.iter().enumerate();
        for (rail, _) in rails.filter(|(_, path)| path.unusable.is_some()) {
            endpoint.skip(rail);
        }
        let socket = self.socket.try_clone().map_err(local_error)?;
        let connected = endpoint.connect(&peer, socket).map_err(local_error);
        self.or_refuse(connected)?;
        // A device without READs would look like a path that loses all packets.
        self.or_refuse(check_reads(endpoint.limits(), rings.mode))?;
        // The receiving end must be ready first: a packet that arrives too early is retransmitted
        // only after a timeout.
        handshake::write(&self.socket, &Record::Ready, self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ready => Ok(paths),
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
    fn nothing_arrives(&self, method: Method, unreachable: Option<&str>) -> String {
        let peer = self.peer.ip().to_canonical();
        if let Some(error) = unreachable {
            return format!(
                "the adapter finds no way to that of {peer}, although TCP does: {error}. Is there a route from the address of the \
                 adapter, and does the next host answer there?"
            );
        }
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
    /// Otherwise the peer could direct our packets to another host. An administrator who names several adapters, or a GID, allows
    /// the other addresses of a peer.
    fn check_gid(&self, peer: &PortRecord, method: Method) -> Result<(), OpenError> {
        let gid = IpAddr::V6(peer.gid.into()).to_canonical();
        let host = self.peer.ip().to_canonical();
        let options = &self.settings.device_options;
        let may_differ = !options.adapters.is_empty() && is_address_of_host(gid, host);
        if method == Method::InfiniBand || options.gid.is_some() || gid == host || may_differ {
            return Ok(());
        }
        Err(OpenError::Local(format!(
            "the adapter of the other end has the address {gid}, and the data connection {host}: where both are the \
             same host, the option gid at this end allows that"
        )))
    }
}

/// Whether another machine can have this address, or the same one if `host` is a loopback address.
fn is_address_of_host(address: IpAddr, host: IpAddr) -> bool {
    let is_of_any = address.is_unspecified() || address.is_multicast();
    !is_of_any && address.is_loopback() == host.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Remote;

    #[test]
    fn tests_use_the_part_of_the_ring_that_data_reaches_last() {
        let remote = RemoteRing::over(2, 10_000, &[3, 4]).unwrap();
        let rings = |mode, ring_bytes| TestRings {
            mode,
            ring_bytes,
            source: 1,
            sink: 2,
            remote,
        };
        let span = Span::new(0, 256);
        let write = |to| Work::Write {
            region: 1,
            span,
            to,
            immediate: None,
        };
        let put = rings(Mode::Put, 65_536);
        let to = |key| Remote {
            address: 10_000 + 65_280,
            key,
        };
        let works = [0, 1].map(|queue_pair| put.work(queue_pair, 256));
        assert_eq!(works, [3, 4].map(|key| write(to(key))), "by rail");
        let read = |span| Work::Read {
            region: 2,
            span,
            from: Remote {
                address: 10_000,
                key: 3,
            },
        };
        assert_eq!(rings(Mode::Get, 65_536).work(0, 256), read(span));
        let whole = read(Span::new(0, 100));
        assert_eq!(rings(Mode::Get, 100).work(2, 4096), whole);
    }

    #[test]
    fn packets_go_to_machines() {
        let is_of = |address: &str, host: &str| {
            is_address_of_host(address.parse().unwrap(), host.parse().unwrap())
        };
        assert!(is_of("198.51.100.7", "192.0.2.1") && is_of("127.0.0.2", "127.0.0.1"));
        assert!(is_of("2001:db8::7", "192.0.2.1"));
        for address in ["127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            assert!(!is_of(address, "192.0.2.1"), "{address}");
        }
        assert!(!is_of("192.0.2.1", "127.0.0.1"));
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
