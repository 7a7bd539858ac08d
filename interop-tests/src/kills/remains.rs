//! What nodes and servers hold: sessions, open files of the root, sockets of data channels.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::world::{Machine, World};
use crate::support::Failure;

/// Each node has a connection of each control server.
const CONNECTIONS: usize = 2;

/// Waits until no node holds anything of a session, at most until `deadline`.
pub(super) fn none_within(world: &World, deadline: Instant) -> Result<(), Failure> {
    loop {
        let mut found = Vec::new();
        for (number, machine) in world.nodes.iter().enumerate() {
            let remains = of(machine, &world.root());
            found.extend(
                remains
                    .into_iter()
                    .map(|one| format!("node {number}: {one}")),
            );
        }
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let logs: Vec<_> = world.nodes.iter().map(|one| one.node.log()).collect();
            return Err(Failure::wrong(format!(
                "after the bound nodes still hold {found:?}\n{}",
                logs.join("\n")
            )));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Whether any node has an open file or a data socket.
pub(super) fn any(world: &World) -> bool {
    let mut machines = world.nodes.iter();
    machines.any(|machine| !held(machine, &world.root()).is_empty())
}

fn of(machine: &Machine, root: &Path) -> Vec<String> {
    let mut found = held(machine, root);
    match machine.reported() {
        None => found.push("no status".to_owned()),
        Some(one) if one.sessions > 0 || one.connections != CONNECTIONS => {
            found.push(format!("{one:?}"));
        }
        Some(_) => {}
    }
    found
}

/// Open files and data sockets of all processes of a node.
fn held(machine: &Machine, root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let control = machine.node.address().port();
    for process in machine.node.processes() {
        let sockets = sockets(process);
        for target in descriptors(process) {
            if let Some(inode) = target.strip_prefix("socket:[") {
                let socket = sockets.get(inode.trim_end_matches(']'));
                if let Some((port, line)) = socket
                    && *port != control
                {
                    found.push(format!("a socket of data channels: {line}"));
                }
            }
        }
        let files = open_files(process, root).into_iter();
        found.extend(files.map(|target| format!("an open file: {target}")));
    }
    found
}

/// The files beneath `root` that a process has open.
pub(super) fn open_files(process: u32, root: &Path) -> Vec<String> {
    let beneath = format!("{}/", root.display());
    let mut found = descriptors(process);
    found.retain(|target| target.starts_with(&beneath));
    found
}

/// The TCP connections that a process has, each as the addresses and the state of proc_net(5).
pub(super) fn connections(process: u32) -> Vec<String> {
    /// TCP_LISTEN.
    const LISTENS: &str = " 0A";
    let sockets = sockets(process);
    let targets = descriptors(process);
    let inodes = targets
        .iter()
        .filter_map(|target| target.strip_prefix("socket:["));
    let lines = inodes.filter_map(|inode| sockets.get(inode.trim_end_matches(']')));
    let lines = lines.map(|(_, line)| line.clone());
    lines.filter(|line| !line.ends_with(LISTENS)).collect()
}

/// What the descriptors of a process refer to.
fn descriptors(process: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.display().to_string()).collect()
}

/// The local port and the line of each TCP socket, by its inode (proc_net(5)).
fn sockets(process: u32) -> HashMap<String, (u16, String)> {
    let tables = ["tcp", "tcp6"].map(|name| format!("/proc/{process}/net/{name}"));
    let tables = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (_, port) = fields.get(1)?.rsplit_once(':')?;
            let port = u16::from_str_radix(port, 16).ok()?;
            let inode = (*fields.get(9)?).to_owned();
            Some((inode, (port, fields[..4].join(" "))))
        })
        .collect()
}

/// The bound for what a lost control server leaves on nodes, and some time for a busy machine.
pub(super) const BOUND: Duration = Duration::from_secs(15 + 5);
