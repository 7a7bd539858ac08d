//! Addresses must be those of this machine.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::Validated;
use crate::admin::{AdminSocketError, examine_socket};
use crate::config::{AdminSocket, Config};
use crate::own_addresses::OwnAddresses;

/// Passive data connections must be able to use their addresses.
pub(super) fn check_data_addresses(validated: &mut Validated) {
    let node = validated.config.node.as_ref();
    let of_node = node.map_or(Vec::new(), |node| node.data_addresses.clone());
    for address in validated.config.data.address.into_iter().chain(of_node) {
        check_data_address(validated, address);
    }
}

fn check_data_address(validated: &mut Validated, address: IpAddr) {
    if let Err(error) = bind((address, 0).into()) {
        let text = format!(
            "data-address {address} cannot be used ({error}): name an address of this machine, {}; what clients behind \
             address translation connect to is advertise-address",
            of_this_machine()
        );
        validated.error("data-address", text);
    }
}

/// Control connections, metrics and administration, except where the program was started with a socket.
pub(super) fn check_listeners(validated: &mut Validated) {
    let all = listeners(&validated.config);
    let all: Vec<_> = all
        .filter(|(key, address)| {
            !validated.is_passed(key, *address) && !validated.may_stand_in(key)
        })
        .collect();
    for (key, address) in all {
        let Err(error) = bind(address) else {
            continue;
        };
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                let text = format!(
                    "{key}: {address} is in use ({error}), by a server that runs already or by another program, which \
                     `ss -ltnp` names: end it, or take another port"
                );
                validated.in_use(key, Some(address), text);
                continue;
            }
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

/// Two listeners cannot have the same address, and none can have a part of what another one has. Port 0 takes another port for
/// each.
pub(super) fn check_repeated(validated: &mut Validated) {
    let config = &validated.config;
    let mut seen: Vec<(&str, SocketAddr)> = Vec::new();
    let mut repeated = Vec::new();
    for (key, address) in listeners(config).filter(|(_, address)| address.port() > 0) {
        match seen.iter().find(|(_, other)| overlap(*other, address)) {
            Some((other, whole)) => repeated.push((key, *other, address, *whole)),
            None => seen.push((key, address)),
        }
    }
    for (key, other, address, whole) in repeated {
        let text = match (key == other, address == whole) {
            (true, true) => format!("{key}: {address} is given twice: delete one of them"),
            (true, false) => {
                format!("{key}: {address} and {whole} exclude each other: delete one of them")
            }
            (false, true) => {
                format!("{key}: {address} is that of {other} as well: take another port")
            }
            (false, false) => {
                format!(
                    "{key}: {address} and {whole} of {other} exclude each other: take another port"
                )
            }
        };
        validated.error(key, text);
    }
}

/// Whether two sockets cannot listen at these addresses at the same time. A socket for IPv6 accepts no IPv4.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_same =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && is_same
}

/// All addresses to listen at, with their settings.
pub(super) fn listeners(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let all = config.listen.iter().map(|address| ("listen", *address));
    let metrics = config
        .metrics_listen
        .map(|address| ("metrics-listen", address));
    let admin = config.admin.listen.map(|address| ("admin-listen", address));
    all.chain(metrics).chain(admin)
}

/// The Unix socket of the administration interface, if the configuration names one.
pub(super) fn check_admin_socket(validated: &mut Validated) {
    let AdminSocket::At(path) = &validated.config.admin.socket else {
        return;
    };
    if validated.passed.has_path(path) {
        return;
    }
    match examine_socket(path) {
        Ok(()) => {}
        Err(error @ AdminSocketError::Taken(_)) => validated.in_use("admin-socket", None, error),
        Err(error) => validated.error("admin-socket", error),
    }
}

/// The server does not serve as root, so its data connections cannot have the ports of root.
pub(super) fn check_port_range(validated: &mut Validated) {
    const FOR_ALL: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

    let Some(range) = validated.config.data.port_range else {
        return;
    };
    let first = fs::read_to_string(FOR_ALL).ok();
    let first = first.and_then(|text| text.trim().parse::<u16>().ok());
    let first = first.unwrap_or(1024);
    if range.first < first {
        let text = format!(
            "port-range: ports below {first} are for root, and data connections are not served as root: take a range \
             like 50000-51000"
        );
        validated.error("port-range", text);
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
