//! The path between two ports of InfiniBand, as the subnet manager describes it for two addresses of IPoIB.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

use gridhaul_stack::Operation;

use super::address::Address;
use super::bindings::{ADDRESS_RESOLVED, ROUTE_RESOLVED};
use super::error::{ConnectionError, called};
use super::events::{Events, OwnId};
use crate::provider::Gids;

/// How long the kernel may take to resolve an address or a route.
const RESOLVE_MILLISECONDS: c_int = 5000;

/// An address has to have a port, and no connection is made.
const ANY_PORT: u16 = 1;

/// A path record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct Route {
    /// The ports that it connects.
    pub(in crate::verbs) gids: Gids,
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
    resolve_address(id, local, peer)?;
    id.events.expect(ADDRESS_RESOLVED, operation)?;
    resolve_route(id)?;
    id.events.expect(ROUTE_RESOLVED, operation)
}

/// Has the kernel resolve an address; an event follows.
fn resolve_address(id: &OwnId, local: IpAddr, peer: SocketAddr) -> Result<(), ConnectionError> {
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
    called("looking for the address", code)
}

/// Has the kernel ask the subnet manager for the path to the address; an event follows.
fn resolve_route(id: &OwnId) -> Result<(), ConnectionError> {
    let manager = id.events.manager;
    // SAFETY: the identifier is valid.
    let code = unsafe { (manager.rdma_resolve_route)(id.id.as_ptr(), RESOLVE_MILLISECONDS) };
    called("looking for the route", code)
}

/// The path from one address of IPoIB to another; `None` if the connection manager shows none.
///
/// # Errors
///
/// When a library or the kernel's part of it is missing, there is no route, or the operation ends before.
pub(super) fn find(
    local: IpAddr,
    peer: IpAddr,
    operation: &Operation<'_>,
) -> Result<Option<Route>, ConnectionError> {
    let id = OwnId::new(&Arc::new(Events::open()?))?;
    resolve(&id, local, SocketAddr::new(peer, ANY_PORT), operation)?;
    Ok(found(&id))
}

/// The path of an identifier whose route is resolved.
fn found(id: &OwnId) -> Option<Route> {
    // SAFETY: the identifier is valid; librdmacm fills the route before it reports it.
    let id = unsafe { id.id.as_ref() };
    let path = NonNull::new(id.paths).filter(|_| id.path_count > 0)?;
    // SAFETY: the array belongs to the identifier, and has at least one path.
    let path = unsafe { path.as_ref() };
    Some(Route {
        gids: Gids {
            local: path.gid,
            peer: path.peer_gid,
        },
        lid: u16::from_be(path.lid),
        service_level: path.service_level,
        mtu: path.mtu,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        flow_label: u32::from_be(path.flow_label),
    })
}
