//! The addresses that the server may connect to for a client.

use std::io;
use std::net::{IpAddr, SocketAddr};

use gridhaul_protocol::reply::Reply;
use gridhaul_transfer::{Admission, Reach, Unreachable, destinations};

use crate::routes::lead_here;
use crate::session::context::Context;
use crate::session::user::User;

/// Checks the addresses of `PORT` and its variants.
///
/// The server connects to the client and to hosts that the administrator named. Otherwise a client could make the server
/// talk to mail servers, for example (RFC 2577 3). A client that has proved an identity may name any host, which
/// third-party copies need, except services that only this machine reaches.
pub(super) fn check_peers(
    context: &Context,
    user: &User,
    peers: &[SocketAddr],
) -> Result<(), Reply> {
    let admission = match user.initiator {
        Some(_) => Admission::Anyone,
        None => context.config().data.admission(context.peer),
    };
    for peer in peers {
        let (host, port) = (peer.ip(), peer.port());
        if port < 1024 {
            // RFC 2577 3 suggests the code.
            return Err(Reply::new(
                504,
                format!("Illegal PORT command: port {port} is below 1024."),
            ));
        }
        check_reach(context, *peer)?;
        if !admission.admits(host) {
            let text = format!(
                "Illegal PORT command: {host} is not your address, and the administrator of this \
                 server has not named it as a host for data connections (data-hosts)."
            );
            return Err(Reply::new(501, text));
        }
    }
    Ok(())
}

/// Refuses the addresses of services that only this machine reaches.
fn check_reach(context: &Context, peer: SocketAddr) -> Result<(), Reply> {
    let host = peer.ip();
    if host.to_canonical() == context.peer {
        return Ok(());
    }
    let machine = own_addresses(context, host).map_err(|error| {
        Reply::new(
            451,
            format!("Command failed. : the server cannot look up its own addresses: {error}."),
        )
    })?;
    let config = &context.config().data;
    let advertised = config.advertise.into_iter();
    let advertised: Vec<_> = advertised
        .chain(context.settings.advertised_by_stack())
        .collect();
    let reach = Reach {
        client: context.peer,
        machine: &machine,
        advertised: &advertised,
        named: &config.named_hosts(),
    };
    match reach.check(host) {
        Ok(()) => Ok(()),
        // The other end of a copy within this server: a data port, which the network can reach anyway.
        Err(Unreachable::Own(_)) if is_own_data_port(context, peer, &machine) => Ok(()),
        Err(refusal) => Err(Reply::new(501, format!("Illegal PORT command: {refusal}."))),
    }
}

/// The addresses of this machine, and those of `host` that the routing table delivers here.
fn own_addresses(context: &Context, host: IpAddr) -> io::Result<Vec<IpAddr>> {
    let mut own = context.shared.own_addresses.now()?.to_vec();
    own.push(context.local);
    for end in destinations(host) {
        if lead_here(end)? {
            own.push(end);
        }
    }
    Ok(own)
}

/// Whether a session of this server listens for data connections there.
fn is_own_data_port(context: &Context, peer: SocketAddr, machine: &[IpAddr]) -> bool {
    let node = &context.shared.node;
    let is_translated = context.config().data.advertise == Some(peer.ip());
    node.listens_at(peer)
        // Connections to the advertised address arrive at one of the machine's.
        || is_translated
            && machine
                .iter()
                .any(|own| node.listens_at(SocketAddr::new(*own, peer.port())))
}
