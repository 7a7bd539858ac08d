//! What sessions pay for a node behind gRPC: the same server with the node in its process, and with a data node as its only one.

use std::env;
use std::fs;
use std::time::{Duration, Instant};

use crate::bench::record::section::Section;
use crate::bench::sample::median;
use crate::bench::session::{CopySettings, Protection, Session, copy};
use crate::support::node_site::shared_place;
use crate::support::raw::Identity;
use crate::support::{Failure, Kind, Launch, NodeSite, Pki, Server, UserKind, content};

/// Rounds, in which the servers take turns. The median counts.
const ROUNDS: usize = 5;

/// Logins of a round.
const LOGINS: u32 = 50;

/// Copies of a small file in one session of a round.
const FILES: u32 = 500;
const SMALL: u64 = 4096;

/// The size of a large file.
const LARGE: u64 = 2_000_000_000;

/// The results of one server, each of all rounds.
#[derive(Debug, Default)]
struct Measured {
    /// Seconds of a login.
    logins: Vec<f64>,
    /// Small files a second.
    files: Vec<f64>,
    /// Bytes per second.
    large: Vec<f64>,
}

/// Measures both servers.
///
/// # Errors
///
/// When a program does not start, or a copy fails.
pub(super) fn measure() -> Result<Section, Failure> {
    let pki = Pki::shared().map_err(|error| Failure::wrong(error.to_string()))?;
    let identity = Identity::user(pki, UserKind::Plain)?;
    let place = shared_place(&env::temp_dir())?;
    let root = place.path().join("served");
    let local = Launch::new(Kind::Gridhaul, &root).gsi(pki).start()?;
    let remote = NodeSite::start(1)?;
    let servers = [&local, &remote.server];
    for server in servers {
        content::write(&server.root().join("small"), SMALL)?;
        content::write(&server.root().join("large"), LARGE)?;
    }
    let mut measured = [Measured::default(), Measured::default()];
    for _ in 0..ROUNDS {
        for (server, measured) in servers.iter().zip(&mut measured) {
            measured.round(server, &identity)?;
        }
    }
    Ok(section_of(measured))
}

impl Measured {
    fn round(&mut self, server: &Server, identity: &Identity) -> Result<(), Failure> {
        let login = || Session::certified(server.address(), identity);
        let began = Instant::now();
        for _ in 0..LOGINS {
            login()?;
        }
        self.logins
            .push(seconds(began.elapsed()) / f64::from(LOGINS));

        let mut sessions = [login()?, login()?];
        for session in &mut sessions {
            session.prepare(CopySettings {
                channels: Some(1),
                protection: Some(Protection::Nothing),
            })?;
        }
        let [source, destination] = &mut sessions;
        let began = Instant::now();
        for _ in 0..FILES {
            copy([source, destination], ["small", "small.copy"])?;
        }
        self.files.push(f64::from(FILES) / seconds(began.elapsed()));
        let took = copy([source, destination], ["large", "large.copy"])?;
        self.large.push(LARGE as f64 / seconds(took));
        let copied = server.root().join("large.copy");
        content::same(&server.root().join("large"), &copied)?;
        fs::remove_file(copied)?;
        Ok(())
    }
}

fn section_of([local, remote]: [Measured; 2]) -> Section {
    let row = |name: &str, unit: &str, [local, remote]: [f64; 2]| {
        let ratio = remote / local;
        format!("| {name} | {local:.1} {unit} | {remote:.1} {unit} | {ratio:.2} |\n")
    };
    let mut table =
        "| work | in the process | one data node | ratio |\n|---|---:|---:|---:|\n".to_owned();
    let milliseconds = |values: &[f64]| median(values) * 1e3;
    table += &row(
        "a login",
        "ms",
        [milliseconds(&local.logins), milliseconds(&remote.logins)],
    );
    table += &row(
        "files of 4 KiB, one after the other",
        "a second",
        [median(&local.files), median(&remote.files)],
    );
    let megabytes = |values: &[f64]| median(values) / 1e6;
    table += &row(
        "a file of 2 GB",
        "MB/s",
        [megabytes(&local.large), megabytes(&remote.large)],
    );
    Section {
        title: "A data node beside the node in the process".to_owned(),
        description: "Two sessions of one server copy between two files of it, with `DCAU N` and a new data connection for each file. The server \
            has its files in its own process, or one data node on the same machine. Medians of five rounds, in which the two take turns. \
            A login is with a certificate and a delegation."
            .to_owned(),
        table,
        targets: Vec::new(),
        pictures: Vec::new(),
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
