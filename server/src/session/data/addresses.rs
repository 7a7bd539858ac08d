//! The local addresses of data ports, and the advertised ones.

use std::net::{IpAddr, SocketAddr};

use gridhaul_protocol::address::{Family, PassiveAddress, StripeAddresses};
use gridhaul_protocol::negotiated::PassiveRequest;
use gridhaul_protocol::reply::Reply;

use crate::session::context::Context;

/// The local address of data connections.
pub(super) fn local_address(context: &Context) -> IpAddr {
    context.config().data.address.unwrap_or(context.local)
}

/// Refuses a form of reply that cannot carry the address.
pub(super) fn check_family(context: &Context, request: PassiveRequest) -> Result<(), Reply> {
    if context.shared.data_nodes.is_some() {
        // The addresses are those of nodes: the reply decides.
        return Ok(());
    }
    let advertised = context.config().data.advertise;
    let here = Family::of(advertised.unwrap_or_else(|| local_address(context)));
    match request {
        PassiveRequest::Pasv if here == Family::Ipv6 => Err(no_such_address()),
        // RFC 2428 3.
        PassiveRequest::Epsv(Some(family)) | PassiveRequest::Spas(Some(family))
            if family != here =>
        {
            Err(Reply::new(
                522,
                format!("Network protocol not supported, use ({}).", here.number()),
            ))
        }
        _ => Ok(()),
    }
}

/// The addresses that clients are to connect to, in the form of the request.
pub(super) fn advertised(
    context: &Context,
    request: PassiveRequest,
    listening: Vec<SocketAddr>,
) -> Result<PassiveAddress, Reply> {
    in_form(context, request, listening).ok_or_else(no_such_address)
}

fn in_form(
    context: &Context,
    request: PassiveRequest,
    listening: Vec<SocketAddr>,
) -> Option<PassiveAddress> {
    let data = &context.config().data;
    let addresses: Vec<_> = listening
        .into_iter()
        .map(|address| {
            // Data nodes have addresses of their own.
            let advertised = data
                .advertise
                .filter(|_| context.shared.data_nodes.is_none());
            let host = advertised.unwrap_or_else(|| address.ip());
            SocketAddr::new(host, address.port())
        })
        .collect();
    let first = *addresses.first()?;
    match request {
        PassiveRequest::Pasv => match first {
            SocketAddr::V4(address) => Some(PassiveAddress::HostPort(address)),
            SocketAddr::V6(_) => None,
        },
        PassiveRequest::Rpsv(_) if let SocketAddr::V4(address) = first => {
            Some(PassiveAddress::HostPort(address))
        }
        PassiveRequest::Epsv(_) | PassiveRequest::Rpsv(_) if first.ip() == context.local => {
            Some(PassiveAddress::Port(first.port()))
        }
        PassiveRequest::Epsv(_) | PassiveRequest::Rpsv(_) => Some(PassiveAddress::Extended(first)),
        PassiveRequest::Spas(None) => StripeAddresses::new(addresses).map(PassiveAddress::Striped),
        PassiveRequest::Spas(Some(_)) => {
            StripeAddresses::new(addresses).map(PassiveAddress::ExtendedStriped)
        }
    }
}

fn no_such_address() -> Reply {
    Reply::new(
        425,
        "PASV cannot carry an IPv6 address, and this connection is IPv6; send EPSV.",
    )
}
