//! The path to a peer.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;

use gridhaul_tcp::{ConnectionFacts, connection_facts};

use super::dialogue::TIME_LIMIT;
use super::findings::Findings;
use super::peer_clock;

const ABOUT: &str = "path";

const SPELLING: &str = "correct the name, or give an address";

/// The control port of GridFTP.
const GRIDFTP: u16 = 2811;

/// RFC 8200 5: every path carries packets of this size.
const LEAST_MTU: u32 = 1280;

/// Connects to a peer, `HOST` or `HOST:PORT`, and asks the kernel for what it knows about the path.
pub(super) fn check(report: &mut Findings, peer: &str) -> Option<ConnectionFacts> {
    let with_port = peer.to_socket_addrs();
    let found = with_port.or_else(|_| (peer, GRIDFTP).to_socket_addrs());
    let address = match found.map(|mut found| found.next()) {
        Ok(Some(address)) => address,
        Ok(None) => {
            report.error(ABOUT, format!("{peer} has no address"), SPELLING);
            return None;
        }
        Err(error) => {
            report.error(ABOUT, format!("{peer} has no address: {error}"), SPELLING);
            return None;
        }
    };
    let stream = match TcpStream::connect_timeout(&address, TIME_LIMIT) {
        Ok(stream) => stream,
        Err(error) => {
            report.error(
                ABOUT,
                format!("{peer} ({address}) does not answer: {error}"),
                "name a port that is open: --peer HOST:PORT",
            );
            return None;
        }
    };
    let facts = match connection_facts(stream.as_fd()) {
        Ok(facts) => {
            tell(report, peer, &facts);
            Some(facts)
        }
        Err(errno) => {
            let error = std::io::Error::from(errno);
            report.warning(
                ABOUT,
                format!("the kernel tells nothing about the path: {error}"),
                "give --rtt MILLISECONDS, as ping measures it",
            );
            None
        }
    };
    peer_clock::check(report, peer, stream);
    facts
}

fn tell(report: &mut Findings, peer: &str, facts: &ConnectionFacts) {
    let rtt = facts.rtt.as_secs_f64() * 1000.0;
    let mtu = facts.path_mtu;
    let text = format!("{peer} is {rtt:.2} ms away, and packets of {mtu} bytes fit the path");
    if mtu < LEAST_MTU {
        report.warning(
            ABOUT,
            format!("{text}: that is less than every path has to carry"),
            "look for a tunnel or a wrong MTU of an interface",
        );
    } else {
        report.ok(ABOUT, text);
    }
    if facts.retransmits > 0 {
        report.warning(
            ABOUT,
            format!(
                "{} packets were lost while connecting to {peer}",
                facts.retransmits
            ),
            "look for the lossy part of the path with mtr, and for errors of the interface with ethtool -S",
        );
    }
}
