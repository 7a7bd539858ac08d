//! An emulated long path between two network namespaces on one machine.
//!
//! Each end is a network namespace with a TUN device. Two threads forward packets from one
//! device to the other with a delay, a rate and losses, as `tc netem` does in kernels that have it. This
//! is slower than a network card: the same run measures its limit.

pub mod forward;
pub mod link;
pub mod tunnel;

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use forward::Forwarder;
pub use link::Path;
use tunnel::Namespace;
pub use tunnel::{PACKET_BYTES, missing};

/// The addresses of the two ends, which exist in their namespaces only.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// Socket buffers for long paths. The congestion control is that of the machine.
const SETTINGS: [(&str, &str); 2] = [
    ("tcp_rmem", "4096 131072 67108864"),
    ("tcp_wmem", "4096 65536 67108864"),
];

/// Two namespaces and the path between them.
#[derive(Debug)]
pub struct Network {
    // The first field, so that forwarding stops before the namespaces are removed.
    forwarder: Forwarder,
    namespaces: [Namespace; 2],
}

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end of the source.
    Near,
    /// The end of the destination.
    Far,
}

impl End {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

impl Network {
    /// Makes the namespaces and starts the path.
    ///
    /// # Errors
    ///
    /// When a system call fails: see [`missing`].
    pub fn new(path: Path) -> io::Result<Self> {
        let namespaces = [Namespace::new()?, Namespace::new()?];
        let [near, far] = ADDRESSES;
        let devices = [
            namespaces[0].device(near, far, &SETTINGS)?,
            namespaces[1].device(far, near, &SETTINGS)?,
        ];
        Ok(Self {
            forwarder: Forwarder::start(devices, path)?,
            namespaces,
        })
    }

    /// The address of an end.
    pub fn address(&self, end: End) -> IpAddr {
        ADDRESSES[end as usize].into()
    }

    /// Runs `work` in the namespace of an end. Its sockets and child processes stay there.
    ///
    /// # Errors
    ///
    /// When a system call fails; else the error of `work`.
    pub fn within<T, E>(&self, end: End, work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<io::Error> + Send,
    {
        self.namespaces[end as usize].within(work)
    }

    /// The number of delivered and of lost packets in both directions.
    pub fn packets(&self) -> (u64, u64) {
        self.forwarder.packets()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn bytes_cross_a_long_path_with_losses() {
        if let Some(reason) = missing() {
            eprintln!("not tested: {reason}");
            return;
        }
        let network = Network::new(Path {
            round_trip: Duration::from_millis(20),
            bits_per_second: Some(1_000_000_000),
            loss: 0.001,
        })
        .unwrap();
        let listener = network
            .within(End::Far, || {
                TcpListener::bind((network.address(End::Far), 0))
            })
            .unwrap();
        let address = listener.local_addr().unwrap();
        let started = Instant::now();
        let mut sender = network
            .within(End::Near, || TcpStream::connect(address))
            .unwrap();
        assert!(started.elapsed() >= Duration::from_millis(20));
        let content: Vec<u8> = (0..5_000_000_u32)
            .map(|index| (index % 251) as u8)
            .collect();
        let sent = content.clone();
        let writer = std::thread::spawn(move || sender.write_all(&sent));
        let mut arrived = Vec::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_end(&mut arrived)
            .unwrap();
        writer.join().unwrap().unwrap();
        assert!(arrived == content);
        let (carried, _) = network.packets();
        assert!(carried > (content.len() / PACKET_BYTES) as u64);
    }
}
