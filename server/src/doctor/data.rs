//! Data ports: whether clients reach those that the server tells them, and how many are free.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use gridhaul_protocol::address::PassiveAddress;
use gridhaul_protocol::reply::Reply;

use super::control::first_line;
use super::dialogue::{Dialogue, TIME_LIMIT};
use crate::check::report::{Report, counted};
use crate::config::{Config, PortRange};

const ABOUT: &str = "data";

/// Asks the server for data ports, if it lets anonymous users in, and connects to them.
pub(super) fn check(report: &mut Report, config: &Config, mut dialogue: Dialogue) {
    let Some(anonymous) = &config.anonymous else {
        report.ok(
            ABOUT,
            "the server lets no anonymous user in, so its port range is tried without it",
        );
        return;
    };
    let name = anonymous.names.iter().find(|name| *name != "*");
    let name = name.map_or("anonymous", String::as_str);
    if let Err(reason) = log_in(&mut dialogue, name) {
        report.warning(ABOUT, format!("no login as {name}: {reason}"));
        return;
    }
    let commands: &[&str] = match dialogue.server {
        SocketAddr::V4(_) => &["EPSV", "PASV"],
        SocketAddr::V6(_) => &["EPSV"],
    };
    for command in commands {
        check_port(report, &mut dialogue, command);
    }
    // The server does not miss it.
    let _ = dialogue.command("QUIT");
}

fn log_in(dialogue: &mut Dialogue, name: &str) -> Result<(), String> {
    for line in [format!("USER {name}"), "PASS doctor@".to_owned()] {
        let reply = dialogue.command(&line).map_err(|error| error.to_string())?;
        match reply.code() {
            230 => return Ok(()),
            331 => {}
            code => return Err(format!("{code} {}", first_line(&reply))),
        }
    }
    Err("the server asks for more than a name".to_owned())
}

fn check_port(report: &mut Report, dialogue: &mut Dialogue, command: &str) {
    let reply = match dialogue.command(command) {
        Ok(reply) => reply,
        Err(error) => {
            report.error(ABOUT, format!("{command} gets no reply: {error}"));
            return;
        }
    };
    let Some(address) = told(&reply, dialogue.server.ip()) else {
        let (code, text) = (reply.code(), first_line(&reply));
        report.error(ABOUT, format!("{command} is refused with {code}: {text}"));
        return;
    };
    match TcpStream::connect_timeout(&address, TIME_LIMIT) {
        Ok(_) => report.ok(ABOUT, format!("{command}: {address} can be reached")),
        Err(error) => report.error(ABOUT, unreachable(command, address, &error)),
    }
}

/// The address in a reply to `EPSV` or `PASV`.
fn told(reply: &Reply, server: IpAddr) -> Option<SocketAddr> {
    match PassiveAddress::parse(reply).ok()? {
        PassiveAddress::HostPort(address) => Some(SocketAddr::V4(address)),
        PassiveAddress::Port(port) => Some(SocketAddr::new(server, port)),
        PassiveAddress::Extended(address) => Some(address),
        _ => None,
    }
}

fn unreachable(command: &str, address: SocketAddr, error: &io::Error) -> String {
    format!(
        "{command} tells clients {address}, and that does not answer ({error}): correct advertise-address or data-address, or let \
         the port through the firewall and the address translation"
    )
}

/// Counts the ports of the range that are free, and connects to some through the address that clients are told.
pub(super) fn check_range(report: &mut Report, config: &Config, targets: &[SocketAddr]) {
    const ABOUT: &str = "port-range";

    let Some(range) = config.data.port_range else {
        report.ok(ABOUT, "data connections come to any port");
        return;
    };
    let local = targets.iter().map(SocketAddr::ip);
    let Some(local) = config.data.address.or_else(|| local.into_iter().next()) else {
        return;
    };
    let found = free_ports(range, local);
    let ports = usize::from(range.last - range.first) + 1;
    let taken = format!(
        "{} of the {} in {range} taken",
        found.taken,
        counted(ports, "port")
    );
    if found.free.is_empty() {
        match found.error {
            Some(error) => report.error(
                ABOUT,
                format!("no port of {range} can be opened at {local}: {error}"),
            ),
            None => report.error(
                ABOUT,
                format!(
                    "{taken}: transfers fail. Widen the range, or end what holds the ports (ss -tlnp)"
                ),
            ),
        }
        return;
    }
    if found.taken * 2 > ports {
        report.warning(
            ABOUT,
            format!("{taken}: there is room for few more transfers; widen the range"),
        );
    } else {
        report.ok(ABOUT, taken);
    }
    if config.anonymous.is_none() {
        let outside = config.data.advertise.unwrap_or(local);
        for listener in &found.free {
            check_listener(report, listener, outside);
        }
    }
}

/// The ports of a range.
struct Found {
    taken: usize,
    /// Listeners at some of the others.
    free: Vec<TcpListener>,
    /// Why a port could not be opened, other than that it was taken.
    error: Option<io::Error>,
}

fn free_ports(range: PortRange, local: IpAddr) -> Found {
    /// Some ports stand for all.
    const KEPT: usize = 3;

    let mut found = Found {
        taken: 0,
        free: Vec::new(),
        error: None,
    };
    for port in range.first..=range.last {
        match TcpListener::bind((local, port)) {
            Ok(listener) if found.free.len() < KEPT => found.free.push(listener),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => found.taken += 1,
            Err(error) => {
                found.error = Some(error);
                break;
            }
        }
    }
    found
}

fn check_listener(report: &mut Report, listener: &TcpListener, outside: IpAddr) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let address = SocketAddr::new(outside, address.port());
    match TcpStream::connect_timeout(&address, TIME_LIMIT) {
        Ok(_) => report.ok(ABOUT, format!("{address} can be reached")),
        Err(error) => report.error(ABOUT, unreachable("PASV", address, &error)),
    }
}
