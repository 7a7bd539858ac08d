//! Whether servers reach this machine.
//!
//! In MODE E the receiver listens (GFD.20 3.4), so a server connects to the client that gets files. A firewall or address translation
//! may prevent that. It is tried with one file for each server, while the other files of that time are streams, which the client
//! connects for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::location::Server;

/// What is known about servers.
#[derive(Debug, Default)]
pub(super) struct Reach(Mutex<HashMap<Server, Found>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// A file tries it.
    Tried,
    Reaches,
    DoesNot,
}

/// How a file is got from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In MODE E. Nothing is known about the server, and this file tries it.
    Try,
    /// In MODE E.
    Blocks,
    /// As a stream.
    Stream,
}

impl Reach {
    /// How the next file is got. After [`Way::Try`] the result must be told.
    pub(super) fn way(&self, server: &Server) -> Way {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(server) {
            Some(Found::Reaches) => Way::Blocks,
            Some(Found::Tried | Found::DoesNot) => Way::Stream,
            None => {
                known.insert(server.clone(), Found::Tried);
                Way::Try
            }
        }
    }

    /// Whether it is known that the server reaches this machine.
    pub(super) fn reaches(&self, server: &Server) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(server) == Some(&Found::Reaches)
    }

    /// Notes whether the server reaches this machine.
    pub(super) fn note(&self, server: &Server, reaches: bool) {
        let found = match reaches {
            true => Found::Reaches,
            false => Found::DoesNot,
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(server.clone(), found);
    }

    /// The trial failed for another reason: the next file tries again.
    pub(super) fn forget_trial(&self, server: &Server) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(server) == Some(&Found::Tried) {
            known.remove(server);
        }
    }
}

/// Whether addresses of the control connection show that this machine is behind address translation: its own is private, that of the
/// server is not. Connections to the address that the server is told could even reach another host of the server's network.
pub(super) fn is_translated(local: IpAddr, server: IpAddr) -> bool {
    is_private(local.to_canonical()) && !is_private(server.to_canonical())
}

fn is_private(address: IpAddr) -> bool {
    match address {
        // RFC 6598: 100.64.0.0/10 is shared by the customers of a provider.
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private() || address.is_link_local() || first == 100 && second >> 6 == 1
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_tries_and_the_others_do_not_wait() {
        let server: Server = match crate::location::Location::parse("ftp://a.example.org/") {
            Ok(crate::location::Location::Remote(url)) => url.server,
            other => panic!("{other:?}"),
        };
        let reach = Reach::default();
        assert_eq!(reach.way(&server), Way::Try);
        assert_eq!(reach.way(&server), Way::Stream);
        reach.forget_trial(&server);
        assert_eq!(reach.way(&server), Way::Try);
        reach.note(&server, true);
        reach.forget_trial(&server);
        assert_eq!(reach.way(&server), Way::Blocks);
        reach.note(&server, false);
        assert_eq!(reach.way(&server), Way::Stream);
    }

    #[test]
    fn private_addresses_of_this_machine_alone_mean_translation() {
        let is = |local: &str, server: &str| {
            let [local, server] = [local, server].map(|text| text.parse().expect("an address"));
            is_translated(local, server)
        };
        assert!(is("192.168.1.2", "198.51.100.1"));
        assert!(is("100.64.3.4", "::ffff:198.51.100.1"));
        assert!(is("fd00::1", "2001:db8::1"));
        assert!(!is("10.0.0.1", "192.168.1.2"));
        assert!(!is("127.0.0.1", "127.0.0.1"));
        assert!(!is("198.51.100.2", "198.51.100.1"));
    }
}
