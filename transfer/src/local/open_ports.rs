//! The data ports at which the sessions of a node listen at this moment.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ports of all sessions.
#[derive(Debug, Default)]
pub(crate) struct OpenPorts {
    /// With the number of listeners of each: an address that is advertised may stand for several.
    ports: Mutex<HashMap<SocketAddr, usize>>,
}

/// One of them, for as long as its session has it.
#[derive(Debug)]
pub(crate) struct OpenPort {
    ports: Arc<OpenPorts>,
    address: SocketAddr,
}

impl OpenPorts {
    /// Notes that a session listens, and tells that address to peers.
    pub(crate) fn open(self: &Arc<Self>, address: SocketAddr) -> OpenPort {
        let address = canonical(address);
        *self.lock().entry(address).or_insert(0) += 1;
        OpenPort {
            ports: Arc::clone(self),
            address,
        }
    }

    /// Whether a session listens there.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.lock().contains_key(&canonical(address))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, usize>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        let mut ports = self.ports.lock();
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
        assert!(ports.lock().is_empty());
    }
}
