//! The table of the options.

use gridhaul_stack::options::{Audience, OptionDoc, OptionKind};

/// The audience of options that choose devices of this end.
const DEVICES: Audience = Audience::Administrator(
    "it chooses which devices of the server are used, and the networks that they reach",
);

/// The audience of options that choose how networks treat packets.
const PRIORITY: Audience =
    Audience::Administrator("it puts packets into classes of the network that others pay for");

/// The options of this driver only.
const OWN: [OptionDoc; 21] = [
    OptionDoc {
        name: "slab",
        meaning: "The size of a slab in bytes. Unless slab or slabs is given, the ring is as long as the path needs.",
        example: "64M",
        kind: OptionKind::Bytes,
        // Sixteen such slabs are a ring of 1 GiB. `rdma-memory` bounds all rings together.
        audience: Audience::client_up_to("64M"),
    },
    OptionDoc {
        name: "slabs",
        meaning: "Slabs in a ring, 3 to 256; 4 unless given.",
        example: "3",
        kind: OptionKind::Number,
        // See `slab`.
        audience: Audience::client_up_to("16"),
    },
    OptionDoc {
        name: "message",
        meaning: "The largest message in bytes; 256K unless given, and up to 4M where the device needs that for a long path.",
        example: "256K",
        kind: OptionKind::Bytes,
        // An adapter sends a message without a pause, and other traffic on the path waits behind
        // it.
        audience: Audience::client_up_to("4M"),
    },
    OptionDoc {
        name: "rate",
        meaning: "Sends at most so many bits per second (with k, m or g) or bytes per second (without); auto finds out \
                  what the path lets through.",
        example: "auto",
        kind: OptionKind::Rate,
        // It can only make the client's own channels slower.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "burst",
        meaning: "Bytes that may leave at once where a rate is given; one and a half messages unless given, and at high rates a \
                  message and 200 µs of the rate.",
        example: "1M",
        kind: OptionKind::Bytes,
        // Without a rate everything is sent at once, so a large burst is no worse.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "qps",
        meaning: "Queue pairs of a channel, 1 to 16; by the rate of the adapter's port and the length of the path unless given, \
                  and 1 without an adapter.",
        example: "4",
        kind: OptionKind::Number,
        // Queue pairs of a device are limited, and each of `soft` is a connection with a port.
        audience: Audience::client_up_to("8"),
    },
    OptionDoc {
        name: "depth",
        meaning: "Messages under way on each queue pair at most, 2 to 65536; auto unless given: all that ring and device take.",
        example: "64",
        kind: OptionKind::Number,
        // It can only reduce what `auto` allows.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "mode",
        meaning: "The end that moves bytes: put is the sender, get the receiver; put unless given.",
        example: "get",
        kind: OptionKind::Word,
        // Both modes move bytes of the client's own ring.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "inline",
        meaning: "Payloads of up to so many bytes travel in the message that announces them, 0 to 16K; 1K unless given.",
        example: "4K",
        kind: OptionKind::Bytes,
        // The driver bounds it to 16K for each piece of a channel, and the other end must agree.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "immediate",
        meaning: "Lets a WRITE announce what it writes, where adapters can do that and the other end agrees; on unless given.",
        example: "off",
        kind: OptionKind::Word,
        // It can only turn off what `on` allows.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "stall",
        meaning: "A queue pair of a device on which no request completes for so long is given up, 100ms to 10m; 3s unless given.",
        example: "10s",
        kind: OptionKind::Time,
        // It concerns the client's own channels; `stall-timeout` ends a transfer that makes no
        // progress.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "provider",
        meaning: "The provider: verbs is an RDMA adapter, soft is iWARP over TCP by this program; auto \
                  takes verbs where both ends have them and the path carries their packets.",
        example: "verbs",
        kind: OptionKind::Word,
        // A peer without an adapter gets `soft` with `auto` as well, and one with an adapter gets
        // it with `auto` too.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "device",
        meaning: "The RDMA device of this end; the one with the data connection's address unless given. Several adapters that a \
                  channel uses at once are named with + between them, by device or address, four at most.",
        example: "mlx5_0",
        kind: OptionKind::Word,
        // A client could reach networks of other adapters of the machine.
        audience: DEVICES,
    },
    OptionDoc {
        name: "gid",
        meaning: "The place of the GID to use in the table of the device's port; by address unless given.",
        example: "3",
        kind: OptionKind::Number,
        // With it the other end may be another host than that of the data connection.
        audience: DEVICES,
    },
    OptionDoc {
        name: "tc",
        meaning: "The traffic class of RoCE packets, which has the DSCP in its upper six bits; 0 unless given.",
        example: "106",
        kind: OptionKind::Number,
        audience: PRIORITY,
    },
    OptionDoc {
        name: "sl",
        meaning: "The service level of InfiniBand or RoCE packets, 0 to 15; unless given, that of the subnet manager's path over IPoIB, and \
                  otherwise 0.",
        example: "3",
        kind: OptionKind::Number,
        audience: PRIORITY,
    },
    OptionDoc {
        name: "pkey",
        meaning: "The partition of InfiniBand by its P_Key; that of the data connection's interface unless given, or the first with full \
                  membership.",
        example: "0x8001",
        kind: OptionKind::Word,
        // Partitions separate the traffic of groups of machines.
        audience: DEVICES,
    },
    OptionDoc {
        name: "mtu",
        meaning: "The longest packet of an adapter in bytes: 256, 512, 1024, 2048 or 4096; unless given, the longest that gets through.",
        example: "1024",
        kind: OptionKind::Number,
        // It can only make packets shorter.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "register",
        meaning: "The memory that is registered for sending: static is a ring that files are read into, dynamic the pages of \
                  the files, which was slower where it was measured; static unless given.",
        example: "dynamic",
        kind: OptionKind::Word,
        // Pinned pages replace memory of the ring and count for `rdma-memory` and the limit on
        // pinned memory.
        audience: Audience::Client,
    },
    gridhaul_direct::OPTION,
    OptionDoc {
        name: "crc",
        meaning: "Adds a checksum to every segment of the provider soft; off unless given.",
        example: "on",
        kind: OptionKind::Word,
        // It takes processor time for the client's own bytes, less than encryption does.
        audience: Audience::Client,
    },
];

/// Options of the driver `tcp` that mean the same here.
///
/// The last one is the rate, which has more values here.
const OF_TCP: usize = gridhaul_tcp::OPTIONS.len() - 1;

/// All options.
pub(crate) const OPTIONS: [OptionDoc; OWN.len() + OF_TCP] = {
    let mut all = [OWN[0]; OWN.len() + OF_TCP];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OWN.len() {
            OWN[at]
        } else {
            gridhaul_tcp::OPTIONS[at - OWN.len()]
        };
        at += 1;
    }
    all
};
