//! Connects queue pairs over InfiniBand and RoCE, for which the two ends exchange their numbers.

use std::ffi::c_int;
use std::io;
use std::time::Duration;

use super::bindings::{
    ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, Address, QueuePairAttributes, SET_ACCESS, SET_ADDRESS,
    SET_FIRST_RECEIVED, SET_FIRST_SENT, SET_MTU, SET_NOT_READY_RETRIES, SET_NOT_READY_TIMER,
    SET_PARTITION, SET_PEER, SET_PORT, SET_READS, SET_READS_ANSWERED, SET_RETRIES, SET_STATE,
    SET_TIMEOUT, STATE_INIT, STATE_READY_TO_RECEIVE, STATE_READY_TO_SEND,
};
use super::connection_manager::Route;
use super::limiter;
use super::objects::RateRange;
use super::partition::{Partition, PartitionKey};
use super::ports::Protocol;
use super::queue_limits::MAX_READS;
use super::queue_pair::QueuePair;
use super::slot::Connecting;
use crate::memory::Pool;
use crate::provider::{Gids, PortRecord, QueuePairRecord};

/// Retransmissions of a packet before the queue pair is lost. For soft-RoCE, 7 means no limit
/// (rxe_comp.c).
const RETRIES: u8 = 6;

/// 7 means no limit. The peer has buffers for all messages that may be in flight, and the engine
/// detects stalls.
const NOT_READY_RETRIES: u8 = 7;

/// 0.64 ms (InfiniBand architecture, volume 1, table 46).
const NOT_READY_TIMER: u8 = 12;

/// InfiniBand architecture, volume 1, 9.7.6.1.3: 4.096 us times two to the power of the attribute.
const TIMEOUT_UNIT: Duration = Duration::from_nanos(4096);

/// The hop limit of packets (RoCE v2).
const HOP_LIMIT: u8 = 64;

/// How this end sends packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) port: PortRecord,
    pub(super) port_number: u8,
    pub(super) gid_index: u8,
    pub(super) protocol: Protocol,
    pub(super) partition: Partition,
    /// The port accepts no packets without a global route header.
    pub(super) needs_global_routes: bool,
    pub(super) traffic_class: u8,
    pub(super) service_level: Option<u8>,
    /// The subnet manager's path to the peer, if the data connection shows it.
    pub(super) route: Option<Route>,
    /// READs that the device can request at a time.
    pub(super) reads: u8,
    /// The round trip time of a packet and its acknowledgement.
    pub(super) round_trip: Duration,
    /// The device is implemented in software, in the kernel.
    pub(super) is_software: bool,
    /// The rate of the path in bytes of payload per second, which the queue pairs of all channels share.
    pub(super) rate: Option<u64>,
    /// The rate in bytes of payload per second that the device limits each queue pair to.
    pub(super) limit: Option<u64>,
    /// The rates that the device can limit queue pairs to.
    pub(super) rate_range: Option<RateRange>,
}

impl Path {
    /// READs that may be outstanding with this peer.
    pub(super) fn reads_with(&self, peer: &PortRecord) -> u8 {
        self.reads.min(peer.reads).min(MAX_READS)
    }

    /// Initialises a queue pair and posts its receive buffers.
    pub(super) fn initialise(&self, queue_pair: &QueuePair) -> io::Result<()> {
        let access = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ;
        let mask = match self.protocol {
            Protocol::Iwarp => SET_STATE | SET_ACCESS,
            Protocol::InfiniBand | Protocol::Roce => {
                SET_STATE | SET_PARTITION | SET_PORT | SET_ACCESS
            }
        };
        let attributes = QueuePairAttributes {
            state: STATE_INIT,
            port: self.port_number,
            partition_index: self.partition.index,
            access: access.unsigned_abs(),
            ..QueuePairAttributes::default()
        };
        queue_pair.modify(attributes, mask)?;
        queue_pair.expect_messages()
    }

    /// Whether packets of one end are accepted at the other.
    pub(super) fn check(&self, peer: &PortRecord) -> Result<(), String> {
        if self.protocol != Protocol::InfiniBand {
            return Ok(());
        }
        self.partition
            .key
            .check_with(PartitionKey(peer.partition))?;
        if self.route_to(peer).is_none() && !self.shares_subnet(peer) {
            return Err(
                "the two adapters are in different subnets of InfiniBand, and the way to the router is only known for data \
                 connections over IPoIB: choose such addresses (--data-address)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// This end has this GID from now on. A route is that of another port if the GID is another one: where the peer is in the same
    /// subnet, its LID has to be enough. A new LID alone changes no route: it names the next port, not this one.
    pub(super) fn move_to(&mut self, gid: [u8; 16], gid_index: u8) {
        if gid != self.port.gid {
            self.route = None;
        }
        (self.port.gid, self.gid_index) = (gid, gid_index);
    }

    /// The subnet manager's path, if it leads to this port. The address of the data connection may belong to another port of the
    /// peer than the one that it has chosen.
    fn route_to(&self, peer: &PortRecord) -> Option<Route> {
        self.route.filter(|route| route.gids.peer == peer.gid)
    }

    /// The first half of a GID is the prefix of the subnet.
    fn shares_subnet(&self, peer: &PortRecord) -> bool {
        self.port.gid[..8] == peer.gid[..8]
    }

    /// Connects a queue pair to one of the peer.
    pub(super) fn connect(
        &self,
        connecting: &Connecting,
        port: &PortRecord,
        peer: QueuePairRecord,
    ) -> io::Result<()> {
        self.expect_packets(&connecting.queue_pair, port, peer)?;
        let attributes = QueuePairAttributes {
            state: STATE_READY_TO_SEND,
            first_sent: connecting.first_packet,
            timeout: self.timeout(),
            retries: RETRIES,
            not_ready_retries: NOT_READY_RETRIES,
            reads: self.reads_with(port),
            ..QueuePairAttributes::default()
        };
        let mask = SET_STATE
            | SET_TIMEOUT
            | SET_RETRIES
            | SET_NOT_READY_RETRIES
            | SET_FIRST_SENT
            | SET_READS;
        connecting.queue_pair.modify(attributes, mask)
    }

    /// Makes a queue pair ready to receive from one of the peer. It has a static rate only if the device has that one: mlx5 takes one
    /// that it lacks, and uses that of the next lower number of `enum ibv_rate`, which may be a quarter (`ib_rate_to_mlx5`).
    fn expect_packets(
        &self,
        queue_pair: &QueuePair,
        port: &PortRecord,
        peer: QueuePairRecord,
    ) -> io::Result<()> {
        let mut attributes = QueuePairAttributes {
            state: STATE_READY_TO_RECEIVE,
            mtu: c_int::from(self.port.mtu.min(port.mtu)),
            peer: peer.number,
            first_received: peer.first_packet,
            reads_answered: self.port.reads,
            not_ready_timer: NOT_READY_TIMER,
            address: self.address(port),
            ..QueuePairAttributes::default()
        };
        let mask = SET_STATE
            | SET_ADDRESS
            | SET_MTU
            | SET_PEER
            | SET_FIRST_RECEIVED
            | SET_READS_ANSWERED
            | SET_NOT_READY_TIMER;
        let ready = queue_pair.modify(attributes, mask);
        let wanted = std::mem::take(&mut attributes.address.static_rate);
        match ready {
            ready if wanted == 0 => ready,
            Ok(()) if queue_pair.static_rate().is_ok_and(|rate| rate == wanted) => Ok(()),
            Ok(()) => {
                queue_pair.reset()?;
                self.initialise(queue_pair)?;
                queue_pair.modify(attributes, mask)
            }
            // The device may have no static rates.
            Err(_) => queue_pair.modify(attributes, mask),
        }
    }

    /// The time after which an unacknowledged packet is retransmitted; a device may take up to four times as long.
    pub(super) fn retransmits_after(&self) -> Duration {
        TIMEOUT_UNIT.saturating_mul(1 << self.timeout())
    }

    fn timeout(&self) -> u8 {
        timeout(self.round_trip, self.acknowledgement_delay())
    }

    /// The longest delay of an acknowledgement by the peer's device. An adapter acknowledges at once. A
    /// software device needs a processor, which it shares with all channels. A timeout that is shorter
    /// than their time slices would retransmit everything in flight, which takes more processor time.
    fn acknowledgement_delay(&self) -> Duration {
        /// A time slice of a scheduler with 100 ticks per second.
        const TIME_SLICE: Duration = Duration::from_millis(10);
        if !self.is_software {
            return Duration::ZERO;
        }
        let channels = Pool::of_process().load().channels;
        TIME_SLICE.saturating_mul(u32::try_from(channels).unwrap_or(u32::MAX))
    }

    fn address(&self, peer: &PortRecord) -> Address {
        // Within a subnet of InfiniBand the LID is enough, unless the port says otherwise; RoCE has no other address than a GID.
        let shares_subnet = self.shares_subnet(peer);
        let is_infiniband = self.protocol == Protocol::InfiniBand;
        let route = self.route_to(peer).filter(|_| is_infiniband);
        let is_global = self.protocol == Protocol::Roce
            || self.needs_global_routes
            || !shares_subnet
            // As Linux decides (ib_init_ah_attr_from_path): a path over routers.
            || route.is_some_and(|route| route.hop_limit > 1);
        let route = route.unwrap_or(Route {
            gids: Gids {
                local: self.port.gid,
                peer: peer.gid,
            },
            lid: peer.lid,
            service_level: 0,
            mtu: self.port.mtu,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
        });
        Address {
            gid: halves(peer.gid),
            own_gid_index: self.gid_index,
            flow_label: route.flow_label,
            // 0 in a path record within the subnet.
            hop_limit: route.hop_limit.max(1),
            traffic_class: match self.traffic_class {
                0 => route.traffic_class,
                asked => asked,
            },
            // The peer's LID may change while its queue pairs are replaced.
            lid: if shares_subnet { peer.lid } else { route.lid },
            service_level: self.service_level.unwrap_or(route.service_level),
            static_rate: match self.protocol {
                // It cannot be changed any more, and the queue pair may have the path for itself later.
                Protocol::InfiniBand => {
                    let mtu = self.port.mtu.min(peer.mtu);
                    self.rate.map_or(0, |rate| limiter::static_rate(rate, mtu))
                }
                Protocol::Roce | Protocol::Iwarp => 0,
            },
            is_global: u8::from(is_global),
            port: self.port_number,
            ..Address::default()
        }
    }
}

/// Keeps the byte order.
fn halves(gid: [u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = gid;
    [[a, b, c, d, e, f, g, h], rest].map(u64::from_ne_bytes)
}

/// The timeout after which an unacknowledged packet is retransmitted, as a power of two
/// of [`TIMEOUT_UNIT`]. It covers four round trips, so that a queue on the path does not look like a loss,
/// the delay of the device, and at least the usual 67 ms.
fn timeout(round_trip: Duration, delay: Duration) -> u8 {
    const LEAST: u8 = 14;
    // 4.4 s: with all retries half a minute.
    const MOST: u8 = 20;
    let wanted = round_trip.saturating_mul(4).max(delay).as_nanos();
    (LEAST..MOST)
        .find(|&power| TIMEOUT_UNIT.as_nanos() << power >= wanted)
        .unwrap_or(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(lid: u16, prefix: u8) -> Path {
        let mut gid = [0; 16];
        gid[0] = prefix;
        Path {
            port: PortRecord {
                gid,
                lid,
                mtu: 5,
                reads: 16,
                partition: 0xffff,
            },
            port_number: 1,
            gid_index: 0,
            protocol: Protocol::InfiniBand,
            partition: Partition::DEFAULT,
            needs_global_routes: false,
            traffic_class: 0,
            service_level: None,
            route: None,
            reads: 16,
            round_trip: Duration::ZERO,
            is_software: false,
            rate: None,
            limit: None,
            rate_range: None,
        }
    }

    /// A path to this port over a router.
    fn route(here: &Path, there: &PortRecord) -> Route {
        Route {
            gids: Gids {
                local: here.port.gid,
                peer: there.gid,
            },
            lid: 77,
            service_level: 3,
            mtu: 4,
            hop_limit: 63,
            traffic_class: 8,
            flow_label: 12,
        }
    }

    #[test]
    fn a_static_rate_is_that_of_infiniband() {
        let (mut here, there) = (path(5, 1), path(9, 1));
        assert_eq!(here.address(&there.port).static_rate, 0);
        here.rate = Some(625_000_000);
        let static_rate = here.address(&there.port).static_rate;
        assert_eq!(static_rate, 11, "IBV_RATE_14_GBPS");
        here.protocol = Protocol::Roce;
        assert_eq!(here.address(&there.port).static_rate, 0);
    }

    #[test]
    fn packets_to_another_subnet_go_to_the_router() {
        let (mut here, there) = (path(5, 1), path(9, 2));
        let error = here.check(&there.port).unwrap_err();
        assert!(error.contains("different subnets"), "{error}");
        here.route = Some(route(&here, &there.port));
        assert_eq!(here.check(&there.port), Ok(()));
        let address = here.address(&there.port);
        assert_eq!((address.lid, address.is_global), (77, 1));
        assert_eq!((address.hop_limit, address.flow_label), (63, 12));
        assert_eq!((address.service_level, address.traffic_class), (3, 8));
        assert_eq!(address.gid, halves(there.port.gid));
        here.service_level = Some(0);
        here.traffic_class = 4;
        let address = here.address(&there.port);
        assert_eq!((address.service_level, address.traffic_class), (0, 4));
    }

    #[test]
    fn a_route_is_that_of_one_gid() {
        let (mut here, there) = (path(5, 1), path(9, 2));
        here.route = Some(route(&here, &there.port));
        here.move_to(here.port.gid, 4);
        assert_eq!((here.gid_index, here.check(&there.port)), (4, Ok(())));
        here.move_to(path(5, 3).port.gid, 4);
        let error = here.check(&there.port).unwrap_err();
        assert!(error.contains("different subnets"), "{error}");
    }

    /// The peer has chosen another port than that with the address of the data connection.
    #[test]
    fn a_route_to_another_port_is_not_used() {
        let (mut here, there, other) = (path(5, 1), path(9, 1), path(13, 2));
        here.route = Some(route(&here, &other.port));
        let address = here.address(&there.port);
        assert_eq!((address.lid, address.service_level), (9, 0));
        let elsewhere = path(21, 3);
        let error = here.check(&elsewhere.port).unwrap_err();
        assert!(error.contains("different subnets"), "{error}");
    }

    #[test]
    fn within_a_subnet_the_lid_is_enough() {
        let (mut here, there) = (path(5, 1), path(9, 1));
        assert_eq!(here.check(&there.port), Ok(()));
        let address = here.address(&there.port);
        assert_eq!((address.lid, address.is_global), (9, 0));
        here.needs_global_routes = true;
        assert_eq!(here.address(&there.port).is_global, 1);
    }

    #[test]
    fn packets_are_repeated_after_four_round_trips() {
        let after = |milliseconds| timeout(Duration::from_millis(milliseconds), Duration::ZERO);
        assert_eq!([0, 16, 17, 200, 60_000].map(after), [14, 14, 15, 18, 20]);
    }

    #[test]
    fn a_device_that_acknowledges_late_is_waited_for() {
        let after = |milliseconds| timeout(Duration::ZERO, Duration::from_millis(milliseconds));
        assert_eq!([20, 67, 68, 640, 100_000].map(after), [14, 14, 15, 18, 20]);
    }

    #[test]
    fn a_gid_keeps_its_bytes() {
        let gid = std::array::from_fn(|n| n.to_le_bytes()[0]);
        let bytes: Vec<u8> = halves(gid)
            .iter()
            .flat_map(|half| half.to_ne_bytes())
            .collect();
        assert_eq!(bytes, gid);
    }
}
