//! The path between two ports of InfiniBand, as the subnet manager describes it for two addresses of IPoIB.

use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

use gridhaul_stack::Operation;

use super::address::Address;
use super::bindings::{ADDRESS_RESOLVED, ROUTE_RESOLVED};
use super::error::{ConnectionError, called};
use super::events::{Events, OwnId};

/// How long the kernel may take to resolve an address or a route.
const RESOLVE_MILLISECONDS: std::ffi::c_int = 5000;

/// A path record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct Route {
    /// The LID of the next port: the peer's, or that of a router to its subnet.
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) service_level: u8,
    /// `enum ibv_mtu`.
    pub(in crate::verbs) mtu: u8,
    pub(in crate::verbs) hop_limit: u8,
    pub(in crate::verbs) traffic_class: u8,
    pub(in crate::verbs) flow_label: u32,
}

/// Resolves the address and the route to `peer`.
pub(super) fn resolve(
    id: &OwnId,
    local: IpAddr,
    peer: SocketAddr,
    operation: &Operation<'_>,
) -> Result<(), ConnectionError> {
    let manager = id.events.manager;
    let (from, to) = (Address::new(SocketAddr::new(local, 0)), Address::new(peer));
    // SAFETY: the identifier is valid, and the addresses are copied.
    let code = unsafe {
        (manager.rdma_resolve_addr)(
            id.id.as_ptr(),
            from.as_ptr(),
            to.as_ptr(),
            RESOLVE_MILLISECONDS,
        )
    };
    called("looking for the address", code)?;
    id.events.expect(ADDRESS_RESOLVED, operation)?;
    // SAFETY: the identifier is valid.
    let code = unsafe { (manager.rdma_resolve_route)(id.id.as_ptr(), RESOLVE_MILLISECONDS) };
    called("looking for the route", code)?;
    id.events.expect(ROUTE_RESOLVED, operation)
}

/// The path from one address of IPoIB to another; `None` if the connection manager shows none.
///
/// # Errors
///
/// When a library or the kernel's part of it is missing, there is no route, or the operation ends before.
pub(in crate::verbs) fn route(
    local: IpAddr,
    peer: IpAddr,
    operation: &Operation<'_>,
) -> Result<Option<Route>, ConnectionError> {
    let id = OwnId::new(&Arc::new(Events::open()?))?;
    // Only the port's existence in the address matters: no connection is made.
    resolve(&id, local, SocketAddr::new(peer, 1), operation)?;
    // SAFETY: the identifier is valid; librdmacm fills the route before it reports it.
    let id = unsafe { id.id.as_ref() };
    let Some(path) = NonNull::new(id.paths).filter(|_| id.path_count > 0) else {
        return Ok(None);
    };
    // SAFETY: the array belongs to the identifier, and has at least one path.
    let path = unsafe { path.as_ref() };
    Ok(Some(Route {
        lid: u16::from_be(path.lid),
        service_level: path.service_level,
        mtu: path.mtu,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        flow_label: u32::from_be(path.flow_label),
    }))
}
