//! Addresses of ports and queue pairs on InfiniBand and RoCE.

/// The port of an RDMA adapter that a channel uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterPort {
    /// The name of the device.
    pub device: String,
    /// The number of the port.
    pub number: u8,
    /// The index of the GID in the port's table.
    pub gid_index: u8,
    /// The address of the port.
    pub gid: [u8; 16],
    /// The traffic class of packets; its upper six bits are the DSCP.
    pub traffic_class: u8,
    /// The service level of packets.
    pub service_level: u8,
}

/// The queue pairs of one end, to which the other end connects (RoCE and InfiniBand).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricRecord {
    /// Their port.
    pub port: PortRecord,
    /// One entry for each.
    pub queue_pairs: Vec<QueuePairRecord>,
}

/// The port of all queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRecord {
    /// Its address on RoCE.
    pub gid: [u8; 16],
    /// Its address on InfiniBand.
    pub lid: u16,
    /// 1 is 256 bytes, each further value doubles it, up to 5 (`enum ibv_mtu`).
    pub mtu: u8,
    /// READs that each queue pair answers at a time.
    pub reads: u8,
    /// The P_Key of its packets on InfiniBand.
    pub partition: u16,
}

/// A queue pair; both numbers have 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairRecord {
    /// The queue pair number (QPN) in packets to it.
    pub number: u32,
    /// The sequence number (PSN) of its first packet.
    pub first_packet: u32,
}

impl QueuePairRecord {
    /// Whether both numbers fit into 24 bits.
    pub(crate) fn is_valid(&self) -> bool {
        self.number >> 24 == 0 && self.first_packet >> 24 == 0
    }
}
