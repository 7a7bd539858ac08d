//! Asks the subnet manager for the path again after one of its two ports got another address.
//!
//! The answer may take seconds, in which other queue pairs and the end of the peer still count. So replacement queue pairs are
//! connected when the answer arrives as an event.

use rustix::event::epoll;

use super::connection_manager::RouteSearch;
use super::{OF_ADAPTERS, ROUTE, VerbsEndpoint};
use crate::provider::Completion;

impl VerbsEndpoint {
    /// Begins a search, if there was a path for this rail and it is not known any more.
    pub(super) fn search_route(&mut self, rail: usize) {
        let rail = &self.rails[rail];
        let adapter = &mut self.adapters[rail.adapter];
        if rail.path.route.is_some() || adapter.route_search.is_some() {
            return;
        }
        let Some([local, peer]) = adapter.place.routed else {
            return;
        };
        let id = adapter.id << OF_ADAPTERS | ROUTE;
        // Without a search the LID of the peer has to be enough, as where none was possible from the start.
        adapter.route_search = RouteSearch::start(local, peer).ok().filter(|search| {
            let id = epoll::EventData::new_u64(id);
            epoll::add(&self.watch, search.descriptor(), id, epoll::EventFlags::IN).is_ok()
        });
    }

    /// Connects the queue pairs that have waited for the path from an adapter, if the search is over.
    pub(super) fn advance_route_search(
        &mut self,
        adapter: usize,
        completions: &mut Vec<Completion>,
    ) {
        let search = self.adapters[adapter].route_search.as_ref();
        let Some(route) = search.and_then(RouteSearch::outcome) else {
            return;
        };
        let place = &self.adapters[adapter].place;
        let route = route.filter(|route| place.begins(route));
        // A thread that librdmacm still holds keeps the descriptor open, which is readable from now on.
        if let Some(search) = self.adapters[adapter].route_search.take() {
            let _ = epoll::delete(&self.watch, search.descriptor());
        }
        if !self.limits.replaces {
            return;
        }
        for rail in self.rails.iter_mut().filter(|rail| rail.adapter == adapter) {
            rail.path.route = rail.path.route.or(route);
            if let Some(route) = route.filter(|route| rail.is_of(route)) {
                rail.path.port.mtu = rail.path.port.mtu.min(route.mtu);
            }
        }
        for number in self.numbers_on(adapter) {
            self.connect_later(number, completions);
        }
    }
}
