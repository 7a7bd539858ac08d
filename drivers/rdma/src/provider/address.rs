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

/// The GIDs of two ports that a path connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gids {
    /// That of this end.
    pub local: [u8; 16],
    /// That of the other end.
    pub peer: [u8; 16],
}

/// The queue pairs of one end, to which the other end connects (RoCE and InfiniBand).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricRecord {
    /// Their ports, one for each rail. Queue pairs take turns with the rails.
    pub ports: Vec<PortRecord>,
    /// One entry for each.
    pub queue_pairs: Vec<QueuePairRecord>,
}

/// A port of queue pairs.
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

impl PortRecord {
    /// The length of its encoding, in the handshake and in notices of replaced queue pairs.
    pub(crate) const BYTES: usize = 22;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let [a, b] = self.lid.to_be_bytes();
        let [c, d] = self.partition.to_be_bytes();
        let (gid, rest) = bytes.split_at_mut(self.gid.len());
        gid.copy_from_slice(&self.gid);
        rest.copy_from_slice(&[a, b, self.mtu, self.reads, c, d]);
        bytes
    }

    /// `None` if the MTU is none.
    pub(crate) fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [gid @ .., a, b, mtu, reads, c, d] = bytes;
        (1..=5).contains(&mtu).then_some(Self {
            gid,
            lid: u16::from_be_bytes([a, b]),
            mtu,
            reads,
            partition: u16::from_be_bytes([c, d]),
        })
    }
}

impl QueuePairRecord {
    /// Whether both numbers fit into 24 bits.
    pub(crate) fn is_valid(&self) -> bool {
        self.number >> 24 == 0 && self.first_packet >> 24 == 0
    }
}
