//! The addresses at which the sessions of a node listen.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::link::Link;

/// The addresses at which sessions listen, by their links.
pub(super) type Listening = Arc<Mutex<Addresses>>;

#[derive(Debug, Default)]
pub(super) struct Addresses(HashMap<usize, Vec<SocketAddr>>);

impl Addresses {
    pub(super) fn set(&mut self, link: &Arc<Link>, addresses: &[SocketAddr]) {
        self.0.insert(Arc::as_ptr(link).addr(), addresses.to_vec());
    }

    pub(super) fn clear(&mut self, link: &Arc<Link>) {
        self.0.remove(&Arc::as_ptr(link).addr());
    }

    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.0
            .values()
            .flatten()
            .any(|listening| *listening == address)
    }
}
