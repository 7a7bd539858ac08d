//! Registers memory in the domain of an endpoint, also from another thread: ibv_reg_mr(3) of all drivers
//! may be called from several threads.

use std::io;
use std::sync::Arc;

use super::explain_memlock;
use super::objects::{Domain, Registration};
use crate::memory::Memory;
use crate::provider::{Access, Registered, Registrar};

/// Registers memory in a domain.
#[derive(Debug)]
pub(super) struct DomainRegistrar {
    domain: Arc<Domain>,
    is_iwarp: bool,
}

impl DomainRegistrar {
    pub(super) fn new(domain: &Arc<Domain>, is_iwarp: bool) -> Self {
        Self {
            domain: Arc::clone(domain),
            is_iwarp,
        }
    }

    fn registration(&self, memory: &Arc<Memory>, access: Access) -> io::Result<Registration> {
        let access = match access {
            // As where the endpoint registers.
            Access::Sink if self.is_iwarp => Access::RemoteWrite,
            other => other,
        };
        Registration::new(&self.domain, memory, access)
            .map_err(|error| explain_memlock(error, memory.length()))
    }
}

impl Registrar for DomainRegistrar {
    fn register(&self, memory: &Arc<Memory>, access: Access) -> io::Result<Registered> {
        self.registration(memory, access).map(Registered::new)
    }
}
