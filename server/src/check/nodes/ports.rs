//! Whether data channels reach each node: from this machine, and from other nodes.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use gridhaul_protocol::stack::StackSpec;

use super::accounts::Attached;
use super::files::{Shared, random};
use super::patience::Patience;
use super::tried::{Tried, connect, listen, receive_file, send_file, send_text};
use super::{ABOUT, of};
use crate::check::report::{Report, Verdict, counted};
use crate::config::Config;
use crate::drivers;
use crate::own_addresses::OwnAddresses;

/// For a connection to a data port.
const CONNECT: Duration = Duration::from_secs(5);

/// For its next bytes, from a node that is busy with others.
const BYTES: Duration = Duration::from_secs(10);

/// For the transfers of a node.
const LIMIT: Duration = Duration::from_secs(25);

/// Nodes that each node connects to. Up to one more, all pairs are tried in both directions.
const NEIGHBOURS: usize = 7;

/// What is tried on each node.
#[derive(Debug, Clone)]
struct Trial {
    node: Attached,
    /// The account whose sessions are used.
    account: Option<String>,
    /// The directory that the node shares with others, if it does.
    directory: Option<PathBuf>,
    /// The number of the node, for names of files.
    index: usize,
    /// Where bytes of its data channels have come from, if this machine reaches it. A node may have several addresses.
    data_addresses: Vec<IpAddr>,
    /// The bytes.
    text: String,
    /// The stack from this machine: others may need an adapter, which it may not have.
    tcp: StackSpec,
    /// The stack between nodes.
    stack: StackSpec,
}

/// Sends and receives some bytes over data channels.
pub(super) fn check(
    report: &mut Report,
    config: &Config,
    attached: &[Attached],
    shared: Option<&Shared>,
    patience: &Patience,
) {
    let (Ok(stack), Ok(name)) = (config.data.stack.parse::<StackSpec>(), random()) else {
        // A wrong stack is an error of its setting.
        return;
    };
    let registry = drivers::registry();
    let with_ports = |stack| drivers::with_ports(&registry, stack, config.data.port_range);
    let Ok(tcp) = "tcp".parse().map(with_ports) else {
        return;
    };
    let (stack, text) = (with_ports(stack), format!("{name}\r\n").repeat(1000));
    let trials = attached.iter().enumerate().filter_map(|(index, node)| {
        let directory = shared.filter(|shared| shared.is_seen_by(&node.node.name));
        let account = match directory {
            Some(shared) => shared.account.clone(),
            None => node.sessions.first()?.account.clone(),
        };
        Some(Trial {
            node: node.clone(),
            account,
            directory: directory.map(|shared| shared.path.clone()),
            index,
            data_addresses: Vec::new(),
            text: text.clone(),
            tcp: tcp.clone(),
            stack: stack.clone(),
        })
    });
    let mut trials: Vec<_> = trials.collect();
    from_here(report, config, &mut trials, patience);
    copies(report, &trials, patience);
    between(report, &trials, patience);
}

/// Connects to a data port of each node, which sends some bytes. Notes the addresses where that works.
fn from_here(report: &mut Report, config: &Config, trials: &mut [Trial], patience: &Patience) {
    let results = patience.each(LIMIT, trials.to_vec(), |trial| trial.fetch_texts());
    let Ok(results) = results else { return };
    let mut closed = Vec::new();
    for (trial, result) in trials.iter_mut().zip(results) {
        let name = &trial.node.node.name;
        match result {
            Some(Ok(addresses)) => trial.data_addresses = addresses,
            Some(Err(reason)) => closed.push(of(name, &format!("{reason}{PORTS}"))),
            None => closed.push(of(name, "no data channel to it was tried in time")),
        }
    }
    if closed.is_empty() && !trials.is_empty() {
        let text = format!(
            "data channels from this machine reach {}",
            counted(trials.len(), "node")
        );
        report.ok(ABOUT, text);
    }
    report.problems(Verdict::Error, ABOUT, closed);
    let addresses = trials.iter().flat_map(|trial| {
        let addresses = trial.data_addresses.iter();
        addresses.map(|address| (trial.node.node.name.as_str(), *address))
    });
    tell_private(report, config, &addresses.collect::<Vec<_>>());
}

/// The remedy for a data channel that is not made.
const PORTS: &str =
    ": have firewalls let in the port-range of the node, or correct its data-address";

/// Sends a file to each node, and fetches it through the next one.
fn copies(report: &mut Report, trials: &[Trial], patience: &Patience) {
    let sharing = trials.iter().filter(|trial| trial.receives());
    let sharing: Vec<_> = sharing.cloned().collect();
    let stored = patience.each(LIMIT, sharing.clone(), |trial| trial.store());
    let Ok(stored) = stored else { return };
    let mut problems = Vec::new();
    let mut pairs = Vec::new();
    for (position, (trial, stored)) in sharing.iter().zip(stored).enumerate() {
        match stored {
            Some(Ok(())) => {
                let reader = &sharing[(position + 1) % sharing.len()];
                pairs.push((trial.index, reader.clone()));
            }
            Some(Err(reason)) => {
                let text = format!("a file cannot be stored through it: {reason}");
                problems.push(of(&trial.node.node.name, &text));
            }
            None => problems.push(of(
                &trial.node.node.name,
                "a file was not stored through it in time",
            )),
        }
    }
    let tried = pairs.len();
    let fetched = patience.each(LIMIT, pairs.clone(), |(file, reader)| reader.fetch(file));
    let Ok(fetched) = fetched else {
        return report.problems(Verdict::Error, ABOUT, problems);
    };
    for ((_, reader), fetched) in pairs.iter().zip(fetched) {
        let name = &reader.node.node.name;
        match fetched {
            Some(Ok(())) => {}
            Some(Err(reason)) => {
                let text =
                    format!("it does not send a file as another node has stored it: {reason}");
                problems.push(of(name, &text));
            }
            None => problems.push(of(name, "it did not send a file in time")),
        }
    }
    if problems.is_empty() && tried > 0 {
        report.ok(
            ABOUT,
            format!(
                "a file that one node has stored comes unchanged from another one ({tried} tried)"
            ),
        );
    }
    report.problems(Verdict::Error, ABOUT, problems);
}

/// Has each node connect to some others. Those that this machine does not reach have been reported.
fn between(report: &mut Report, trials: &[Trial], patience: &Patience) {
    let count = trials.len();
    let mut problems = Vec::new();
    let mut tried = 0;
    for distance in 1..=NEIGHBOURS.min(count.saturating_sub(1)) {
        let pairs = (0..count).map(|from| {
            (
                trials[from].clone(),
                trials[(from + distance) % count].clone(),
            )
        });
        let pairs: Vec<_> = pairs.filter(|(_, to)| to.receives()).collect();
        tried += pairs.len();
        let results = patience.each(LIMIT, pairs.clone(), |(from, to)| from.send_to(&to));
        let Ok(results) = results else {
            return report.problems(Verdict::Error, ABOUT, problems);
        };
        for ((from, to), result) in pairs.iter().zip(results) {
            let failed = match result {
                Some(Ok(())) => continue,
                Some(Err(reason)) => reason,
                None => "it has not answered in time".to_owned(),
            };
            problems.push(format!(
                "no data channel from {} to {}: {failed}{PORTS}",
                from.node.node.name, to.node.node.name
            ));
        }
    }
    if problems.is_empty() && tried > 0 {
        report.ok(
            ABOUT,
            format!("data channels between nodes work ({tried} tried)"),
        );
    }
    report.problems(Verdict::Error, ABOUT, problems);
}

impl Trial {
    /// Whether it can store what comes over a data channel.
    fn receives(&self) -> bool {
        self.directory.is_some() && !self.data_addresses.is_empty()
    }

    /// Data channels from this machine, until one comes to an address again: the addresses of a node take turns.
    fn fetch_texts(&self) -> Result<Vec<IpAddr>, String> {
        const MOST: usize = 16;
        let mut addresses = Vec::new();
        while addresses.len() < MOST {
            let address = self.fetch_text()?.ip();
            if addresses.contains(&address) {
                break;
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// A data channel from this machine, over which the node sends some lines. Returns the address of the data port.
    fn fetch_text(&self) -> Result<SocketAddr, String> {
        let session = self.node.again(self.account.as_deref(), HERE)?;
        let address = listen(session.as_ref(), &self.tcp)?;
        let tried = Tried::start(session.as_ref(), send_text(self.text.clone()));
        self.read_from(address, tried)?;
        Ok(address)
    }

    /// Stores a file with the number of this node.
    fn store(&self) -> Result<(), String> {
        let session = self.node.again(self.account.as_deref(), HERE)?;
        let address = listen(session.as_ref(), &self.tcp)?;
        let tried = Tried::start(
            session.as_ref(),
            receive_file(self.path(&name_of(self.index))),
        );
        // A node that refuses the file has ended the connection before.
        let written = open(address).and_then(|mut stream| stream.write_all(self.text.as_bytes()));
        tried.finish()?;
        written.map_err(|error| format!("{address}: {error}"))
    }

    /// Fetches the file with this number, and compares it.
    fn fetch(&self, number: usize) -> Result<(), String> {
        let session = self.node.again(self.account.as_deref(), HERE)?;
        let address = listen(session.as_ref(), &self.tcp)?;
        let tried = Tried::start(session.as_ref(), send_file(self.path(&name_of(number))));
        self.read_from(address, tried)
    }

    /// Reads what was to be sent.
    fn read_from(&self, address: SocketAddr, tried: Tried) -> Result<(), String> {
        let mut stream = match open(address) {
            Ok(stream) => stream,
            Err(error) => {
                tried.give_up();
                return Err(format!("{address}: {error}"));
            }
        };
        let mut received = Vec::new();
        let most = self.text.len() as u64 + 1;
        let read = (&mut stream).take(most).read_to_end(&mut received);
        drop(stream);
        tried.finish()?;
        read.map_err(|error| format!("{address}: {error}"))?;
        match received == self.text.as_bytes() {
            true => Ok(()),
            false => Err(format!("{address}: other bytes came than were sent")),
        }
    }

    /// A data channel to another node, which stores some lines.
    fn send_to(&self, to: &Self) -> Result<(), String> {
        let receiver = to.node.again(to.account.as_deref(), HERE)?;
        let address = listen(receiver.as_ref(), &to.stack)?;
        // The sender connects wherever this check says: a node must not name the address of another machine.
        if !to.data_addresses.contains(&address.ip()) {
            return Err(format!(
                "{address} is another address than those of its data ports before"
            ));
        }
        // As a client at the other node, so that this one lets it connect there.
        let sender = self.node.again(self.account.as_deref(), address.ip())?;
        connect(sender.as_ref(), &self.stack, address)?;
        let file = to.path(&format!("{}-{}", self.index, to.index));
        let received = Tried::start(receiver.as_ref(), receive_file(file));
        let sent = Tried::start(sender.as_ref(), send_text(self.text.clone()));
        if let Err(reason) = sent.finish() {
            received.give_up();
            return Err(reason);
        }
        received.finish()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory
            .as_deref()
            .map_or_else(PathBuf::new, |path| path.join(name))
    }
}

/// Where the client of most sessions is.
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn name_of(number: usize) -> String {
    format!("file-{number}")
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_read_timeout(Some(BYTES))?;
    stream.set_write_timeout(Some(BYTES))?;
    Ok(stream)
}

/// Clients connect to the data addresses of nodes, which must not be those of a network that they do not have.
fn tell_private(report: &mut Report, config: &Config, addresses: &[(&str, IpAddr)]) {
    let is_local = config.listen.iter().all(|own| own.ip().is_loopback());
    let own = OwnAddresses::default().now();
    let is_public = own.is_ok_and(|own| own.iter().copied().any(is_public));
    for (kind, problem) in [
        (
            "loopback",
            &(|ip: IpAddr| ip.is_loopback() && !is_local) as &dyn Fn(IpAddr) -> bool,
        ),
        ("private", &|ip| {
            !ip.is_loopback() && !self::is_public(ip) && is_public
        }),
    ] {
        let wrong: Vec<_> = addresses
            .iter()
            .filter(|(_, ip)| problem(ip.to_canonical()))
            .collect();
        let Some((name, address)) = wrong.first() else {
            continue;
        };
        let text = format!(
            "clients are told {kind} addresses of {}, for example {address} of {name}, which they reach only from its network: \
             set data-address on the node",
            counted(wrong.len(), "node")
        );
        report.warning(ABOUT, text);
    }
}

/// Whether hosts everywhere may reach an address.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            // RFC 6598: 100.64.0.0/10.
            let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xC0 == 64;
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || is_shared)
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local())
        }
    }
}
