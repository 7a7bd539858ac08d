//! Registers memory in the domains of an endpoint, also from another thread: ibv_reg_mr(3) of all drivers
//! may be called from several threads.

use std::io;
use std::sync::Arc;

use super::explain_memlock;
use super::objects::{Domain, Registration};
use crate::memory::Memory;
use crate::provider::{Access, Registered, Registrar};

/// The registrations of a region, by adapter.
pub(super) type Registrations = Vec<Option<Registration>>;

/// Registers memory in the domain of each adapter.
#[derive(Debug)]
pub(super) struct DomainRegistrar {
    /// `None` for an adapter that needs no memory.
    domains: Vec<Option<Arc<Domain>>>,
    is_iwarp: bool,
}

impl DomainRegistrar {
    pub(super) fn new(domains: Vec<Option<Arc<Domain>>>, is_iwarp: bool) -> Self {
        Self { domains, is_iwarp }
    }

    /// The registrations, by adapter. If one fails, the others end.
    pub(super) fn registrations(
        &self,
        memory: &Arc<Memory>,
        access: Access,
    ) -> io::Result<Registrations> {
        let access = match access {
            // RFC 5040 5.2: the peer writes what we READ, by the key that the request names.
            Access::Sink if self.is_iwarp => Access::RemoteWrite,
            other => other,
        };
        let domains = self.domains.iter();
        domains
            .map(|domain| {
                let registered = domain.as_ref().map(|domain| {
                    Registration::new(domain, memory, access)
                        .map_err(|error| explain_memlock(error, memory.length()))
                });
                registered.transpose()
            })
            .collect()
    }
}

impl Registrar for DomainRegistrar {
    fn register(&self, memory: &Arc<Memory>, access: Access) -> io::Result<Registered> {
        self.registrations(memory, access).map(Registered::new)
    }
}
