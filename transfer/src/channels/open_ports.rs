//! The data ports on which the sessions of a node currently listen.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// The ports of all sessions.
#[derive(Debug, Default)]
pub(crate) struct OpenPorts {
    /// The number of listeners by advertised address, which several listeners may share.
    ports: Mutex<HashMap<SocketAddr, usize>>,
}

/// A registered port; dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct OpenPort {
    ports: Arc<OpenPorts>,
    address: SocketAddr,
}

impl OpenPorts {
    /// Registers a listener by the address that peers get.
    pub(crate) fn open(self: &Arc<Self>, address: SocketAddr) -> OpenPort {
        let address = canonical(address);
        *lock(&self.ports).entry(address).or_insert(0) += 1;
        OpenPort {
            ports: Arc::clone(self),
            address,
        }
    }

    /// Whether a session listens on `address`.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        lock(&self.ports).contains_key(&canonical(address))
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        let mut ports = lock(&self.ports.ports);
        if let Some(count) = ports.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                ports.remove(&self.address);
            }
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_open_for_as_long_as_one_session_has_it() {
        let ports = Arc::new(OpenPorts::default());
        let address: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let first = ports.open(address);
        let second = ports.open("[::ffff:192.0.2.1]:5000".parse().unwrap());
        drop(first);
        assert!(ports.has(address));
        assert!(!ports.has("192.0.2.2:5000".parse().unwrap()));
        assert!(!ports.has("192.0.2.1:5001".parse().unwrap()));
        drop(second);
        assert!(!ports.has(address));
        assert!(lock(&ports.ports).is_empty());
    }
}
