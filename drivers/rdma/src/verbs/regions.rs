//! The registered memory of an endpoint, which has the same numbers at all of its adapters.
//!
//! An adapter that has had a fatal error registers nothing, and has 0 in place of a key: no queue pair uses it any more.

use std::io;
use std::sync::Arc;

use super::VerbsEndpoint;
use super::objects::Registration;
use super::registrar::{DomainRegistrar, Registrations};
use crate::memory::Memory;
use crate::provider::{Access, Region};

impl VerbsEndpoint {
    /// Registers memory at all adapters.
    pub(super) fn registrar_of_all(&self) -> DomainRegistrar {
        let domains = self.adapters.iter().map(|adapter| {
            let works = !adapter.is_broken;
            works.then(|| Arc::clone(&adapter.shared.domain))
        });
        DomainRegistrar::new(domains.collect(), self.is_iwarp())
    }

    pub(super) fn register_at_all(
        &mut self,
        memory: &Arc<Memory>,
        access: Access,
    ) -> io::Result<Region> {
        let registrations = self.registrar_of_all().registrations(memory, access)?;
        self.add_region(registrations)
    }

    /// Gives registrations a number.
    ///
    /// # Errors
    ///
    /// When they are not those of an endpoint with as many adapters.
    pub(super) fn add_region(&mut self, registrations: Registrations) -> io::Result<Region> {
        let some = registrations.iter().flatten().next();
        let is_valid = registrations.len() == self.adapters.len();
        let some = some
            .filter(|_| is_valid)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let id = self.free_region();
        let region = Region {
            id,
            address: some.memory().address(),
            key: key(registrations[0].as_ref()),
        };
        for (adapter, registration) in self.adapters.iter_mut().zip(registrations) {
            if id >= adapter.regions.len() {
                adapter.regions.resize_with(id + 1, || None);
            }
            adapter.regions[id] = registration;
        }
        Ok(region)
    }

    /// The first number that no adapter uses.
    fn free_region(&self) -> usize {
        let is_free = |id: &usize| {
            let mut adapters = self.adapters.iter();
            adapters.all(|adapter| adapter.regions.get(*id).is_none_or(Option::is_none))
        };
        (0..).find(is_free).expect("an endpoint has few regions")
    }

    /// The keys of a region at the second and further adapters.
    pub(super) fn keys_after_first(&self, region: usize) -> Vec<u32> {
        let further = self.adapters.iter().skip(1);
        further
            .map(|adapter| key(adapter.regions.get(region).and_then(Option::as_ref)))
            .collect()
    }

    pub(super) fn remove_region(&mut self, region: usize) {
        for adapter in &mut self.adapters {
            if let Some(registration) = adapter.regions.get_mut(region) {
                *registration = None;
            }
        }
    }
}

fn key(registration: Option<&Registration>) -> u32 {
    registration.map_or(0, Registration::remote_key)
}
