//! Data ports: whether clients reach those that the server tells them, and how many are free.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use gridhaul_protocol::address::PassiveAddress;
use gridhaul_protocol::reply::Reply;
use zeroize::Zeroizing;

use super::control::first_line;
use super::dialogue::{Dialogue, TIME_LIMIT};
use super::findings::Findings;
use crate::check::report::counted;
use crate::config::{Config, DoctorArguments, PortRange};

const ABOUT: &str = "data";

/// A user that the server lets in.
pub(super) struct User {
    name: String,
    password: Zeroizing<String>,
}

impl User {
    /// The user of `--login`, or the anonymous one.
    pub(super) fn of(
        report: &mut Findings,
        config: &Config,
        arguments: &DoctorArguments,
    ) -> Option<Self> {
        if let Some((name, file)) = arguments
            .login
            .as_ref()
            .zip(arguments.password_file.as_ref())
        {
            let password = password(file).map_err(|error| {
                report.error(
                    ABOUT,
                    format!("the password in {} cannot be read: {error}", file.display()),
                    "write it into the first line, and run this as an account that may read the file",
                );
            });
            let name = name.clone();
            return password.ok().map(|password| Self { name, password });
        }
        if let Some(anonymous) = &config.anonymous {
            let name = anonymous.names.iter().find(|name| *name != "*");
            return Some(Self {
                name: name.map_or("anonymous", String::as_str).to_owned(),
                password: Zeroizing::new("doctor@".to_owned()),
            });
        }
        let how = if config.passwords.is_some() {
            "give a user of the password file: --login NAME --password-file FILE"
        } else {
            "users need certificates: copy a file with globus-url-copy as one of them, and look at gridhaul-server status \
             meanwhile"
        };
        report.ok(
            ABOUT,
            format!(
                "the server lets no anonymous user in, so its port range is tried without a login; to try one, {how}"
            ),
        );
        None
    }
}

/// The first line of a file.
fn password(file: &Path) -> io::Result<Zeroizing<String>> {
    const MOST: u64 = 4096;

    let mut text = Zeroizing::new(String::new());
    File::open(file)?.take(MOST).read_to_string(&mut text)?;
    Ok(Zeroizing::new(
        text.lines().next().unwrap_or_default().to_owned(),
    ))
}

/// Asks the server for data ports, if a user can log in, and connects to them.
pub(super) fn check(report: &mut Findings, user: Option<&User>, mut dialogue: Dialogue) {
    let Some(user) = user else {
        return;
    };
    if let Err(reason) = log_in(&mut dialogue, user) {
        report.warning(
            ABOUT,
            format!("no login as {}: {reason}", user.name),
            "correct the name and the password (--login NAME --password-file FILE), reload or restart the server if its users \
             were changed, and look into its log: it has the reason",
        );
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

fn log_in(dialogue: &mut Dialogue, user: &User) -> Result<(), String> {
    let password = Zeroizing::new(format!("PASS {}", *user.password));
    for line in [&*format!("USER {}", user.name), &password] {
        let reply = dialogue.command(line).map_err(|error| error.to_string())?;
        match reply.code() {
            230 => return Ok(()),
            331 => {}
            code => return Err(format!("{code} {}", first_line(&reply))),
        }
    }
    Err("the server asks for more than a password".to_owned())
}

fn check_port(report: &mut Findings, dialogue: &mut Dialogue, command: &str) {
    let reply = match dialogue.command(command) {
        Ok(reply) => reply,
        Err(error) => {
            report.error(
                ABOUT,
                format!("{command} gets no reply: {error}"),
                "the log of the server has the reason",
            );
            return;
        }
    };
    let Some(address) = told(&reply, dialogue.server.ip()) else {
        let (code, text) = (reply.code(), first_line(&reply));
        report.error(
            ABOUT,
            format!("{command} is refused with {code}: {text}"),
            "widen port-range or end what holds its ports (ss -tlnp), and look into the log of the server",
        );
        return;
    };
    match TcpStream::connect_timeout(&address, TIME_LIMIT) {
        Ok(_) => report.ok(ABOUT, format!("{command}: {address} can be reached")),
        Err(error) => report.error(ABOUT, unreachable(command, address, &error), REACH),
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
    format!("{command} tells clients {address}, and that does not answer ({error})")
}

const REACH: &str = "correct advertise-address or data-address, or let the port through the firewall and the address translation";

/// Counts the ports of the range that are free, and connects to some through the address that clients are told.
/// If the server was asked for data ports itself (`asked`), it is not done again.
pub(super) fn check_range(
    report: &mut Findings,
    config: &Config,
    targets: &[SocketAddr],
    asked: bool,
) {
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
                "correct port-range, or data-address",
            ),
            None => report.error(
                ABOUT,
                format!("{taken}: transfers fail"),
                "widen the range, or end what holds the ports (ss -tlnp)",
            ),
        }
        return;
    }
    if found.taken * 2 > ports {
        report.warning(
            ABOUT,
            format!("{taken}: there is room for few more transfers"),
            "widen the range",
        );
    } else {
        report.ok(ABOUT, taken);
    }
    if !asked {
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

fn check_listener(report: &mut Findings, listener: &TcpListener, outside: IpAddr) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let address = SocketAddr::new(outside, address.port());
    match TcpStream::connect_timeout(&address, TIME_LIMIT) {
        Ok(_) => report.ok(ABOUT, format!("{address} can be reached")),
        Err(error) => report.error(ABOUT, unreachable("PASV", address, &error), REACH),
    }
}
