//! Sockets of servers that run on this machine, in the directories where they are by default.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::words::harmless;
use crate::admin::RUN;

/// Further files are not looked at.
const MOST: usize = 256;

/// Sockets, and what a connection to each gives.
pub(super) fn sockets() -> Vec<(PathBuf, io::Result<()>)> {
    let sockets = directories()
        .into_iter()
        .flat_map(|directory| inside(&directory));
    let sockets = sockets.filter(|path| path.extension().is_some_and(|ending| ending == "sock"));
    let tried = sockets.take(MOST).map(|path| {
        let connected = UnixStream::connect(&path).map(drop);
        (path, connected)
    });
    tried.collect()
}

/// The sockets of servers that answer.
pub(super) fn running() -> Vec<PathBuf> {
    let sockets = sockets().into_iter();
    let running = sockets.filter_map(|(path, connected)| connected.ok().map(|()| path));
    running.collect()
}

/// A line for each socket, and the directories.
pub(super) fn listing() -> String {
    let mut text = String::new();
    for (path, connected) in sockets() {
        let state = match connected {
            Ok(()) => "a server listens".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                "no server listens any more".to_owned()
            }
            Err(error) => error.to_string(),
        };
        let path = harmless(&path.display().to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{path}\t{state}");
    }
    if text.is_empty() {
        let directories = directories();
        let looked: Vec<_> = directories
            .iter()
            .map(|one| one.display().to_string())
            .collect();
        let _ = writeln!(
            text,
            "there is no administration socket in {}",
            looked.join(", ")
        );
    }
    text
}

/// The directory of servers of root, and that of servers of this account, or of all accounts for root.
fn directories() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from(RUN)];
    if geteuid().is_root() {
        let users = inside(Path::new("/run/user"));
        directories.extend(users.iter().map(|user| user.join("gridhaul")));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    directories.extend(runtime.map(|runtime| runtime.join("gridhaul")));
    directories.dedup();
    directories
}

fn inside(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().take(MOST);
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}
