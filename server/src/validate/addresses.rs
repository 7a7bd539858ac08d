//! Addresses must be those of this machine.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use super::Validated;
use crate::own_addresses::OwnAddresses;

/// Passive data connections must be able to use their address.
pub(super) fn check_data_address(validated: &mut Validated) {
    let Some(address) = validated.config.data.address else {
        return;
    };
    if let Err(error) = bind((address, 0).into()) {
        let text = format!(
            "data-address {address} cannot be used ({error}): name an address of this machine, {}; what clients behind \
             address translation connect to is advertise-address",
            of_this_machine()
        );
        validated.error("data-address", text);
    }
}

/// Control connections, metrics and administration. An address in use is not an error here: most likely this server has it already.
pub(super) fn check_listeners(validated: &mut Validated) {
    let config = &validated.config;
    let all = config.listen.iter().map(|address| ("listen", *address));
    let metrics = config
        .metrics_listen
        .map(|address| ("metrics-listen", address));
    let admin = config.admin.listen.map(|address| ("admin-listen", address));
    let all: Vec<_> = all.chain(metrics).chain(admin).collect();
    for (key, address) in all {
        let Err(error) = bind(address) else {
            continue;
        };
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => continue,
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 are for root: take another port, or start the server as root"
                    .to_owned()
            }
            _ => format!("name an address of this machine, {}", of_this_machine()),
        };
        let text = format!("{key}: cannot listen at {address} ({error}): {remedy}");
        validated.error(key, text);
    }
}

/// Binds a socket, which accepts no connection.
fn bind(address: SocketAddr) -> io::Result<()> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

fn of_this_machine() -> String {
    /// Machines with containers have many.
    const MOST: usize = 8;

    let Ok(found) = OwnAddresses::default().now() else {
        return "as `ip address` lists them".to_owned();
    };
    let shown: Vec<_> = found.iter().take(MOST).map(ToString::to_string).collect();
    match found.len() > MOST {
        true => format!("such as {}", shown.join(", ")),
        false => format!("one of {}", shown.join(", ")),
    }
}
