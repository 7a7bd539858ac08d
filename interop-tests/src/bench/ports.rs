//! Waits for free ephemeral ports.
//!
//! Without MODE E every file takes a port, which stays in TIME_WAIT for a minute. The
//! fewer ports are free, the longer the kernel searches for one, and without a free port connections fail.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// The number of sampled ports, evenly spread over the range.
const SAMPLES: usize = 256;

/// The time limit: twice TIME_WAIT.
const LIMIT: Duration = Duration::from_secs(120);

/// The share of ports that must be free before a row that takes a port for each file.
const FREE_SHARE: f64 = 0.75;

/// Waits until most of the ports are free.
///
/// # Errors
///
/// `TimedOut` when they are not after two minutes.
pub fn wait_for_free() -> io::Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let free = free_share()?;
        if free >= FREE_SHARE {
            return Ok(());
        }
        if Instant::now() > deadline {
            let words = format!("only {:.0} % of the local ports are free", free * 100.0);
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        thread::sleep(Duration::from_secs(1));
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few hundred")]
fn free_share() -> io::Result<f64> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let ends: Vec<u16> = range
        .split_whitespace()
        .filter_map(|end| end.parse().ok())
        .collect();
    let [first, last] = ends[..] else {
        return Err(io::Error::other(format!("not a range of ports: {range}")));
    };
    // The kernel prefers odd ports for listeners and even ports for connections: an odd step samples both.
    let step = (usize::from(last - first) / SAMPLES) | 1;
    let tried: Vec<bool> = (first..=last).step_by(step).map(is_free).collect();
    Ok(tried.iter().filter(|free| **free).count() as f64 / tried.len() as f64)
}

/// Whether the port is free: not even a connection in TIME_WAIT has it.
fn is_free(port: u16) -> bool {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        .is_ok_and(|socket| bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
        assert!((0.0..=1.0).contains(&free_share().unwrap()));
    }
}
