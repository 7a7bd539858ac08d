//! Times a client without and with a crowd.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::site::fill;
use crate::bench::sample::median;
use crate::support::scratch::Scratch;
use crate::support::usage::raise_descriptor_limit;
use crate::support::{Kind, Launch, LaunchError, Pki};

use super::attack::{Attack, Crowd};
use super::client::{Times, one_round};

/// The bound for a login or a get with the crowd: this factor of the time without it, plus these seconds.
const BOUND: (f64, f64) = (2.0, 0.1);

/// The size of the measurement.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Hostile connections.
    pub connections: usize,
    /// The number of logins and gets of each median.
    pub rounds: usize,
    /// Files in the directory that is listed.
    pub files: usize,
}

impl Size {
    /// The size that the targets refer to.
    pub const FULL: Self = Self {
        connections: 1000,
        rounds: 9,
        files: 50_000,
    };

    /// A small size, for a functional test.
    pub const QUICK: Self = Self {
        connections: 30,
        rounds: 3,
        files: 2_000,
    };
}

/// The times of the client.
#[derive(Debug)]
pub struct Outcome {
    /// The server.
    pub kind: Kind,
    /// The action of the crowd.
    pub attack: Attack,
    /// Medians in seconds of a login, without and with the crowd.
    pub login: [f64; 2],
    /// Medians in seconds of a get.
    pub get: [f64; 2],
    /// Hostile connections that were open when the client was timed.
    pub held: usize,
    /// The number of failed rounds with the crowd, and the first reason.
    pub failures: (usize, Option<String>),
}

impl Outcome {
    /// Whether the times with the crowd are within the bound.
    pub fn is_met(&self) -> bool {
        let within = |[without, with]: [f64; 2]| with <= without * BOUND.0 + BOUND.1;
        self.failures.0 == 0 && within(self.login) && within(self.get)
    }

    /// One line of a table.
    pub fn line(&self) -> String {
        let milliseconds =
            |[without, with]: [f64; 2]| format!("{:8.1} {:9.1}", without * 1000.0, with * 1000.0);
        let verdict = match (&self.failures, self.is_met()) {
            ((0, _), true) => "met".to_owned(),
            ((0, _), false) => "MISSED".to_owned(),
            ((count, reason), _) => {
                let reason = reason.as_deref().unwrap_or_default();
                format!("MISSED: {count} failed: {reason}")
            }
        };
        format!(
            "{:<17} {:<9} {:>5} {} {} {verdict}",
            self.attack.name(),
            format!("{:?}", self.kind),
            self.held,
            milliseconds(self.login),
            milliseconds(self.get),
        )
    }

    /// The heading of the lines. Times are in milliseconds.
    pub fn heading() -> &'static str {
        "attack            server     held    login with crowd     get with crowd target"
    }
}

/// Starts a server, and times a client without and with a crowd.
///
/// # Errors
///
/// When the server does not start, or the client fails without the crowd.
pub fn measure(kind: Kind, attack: Attack, size: Size) -> Result<Outcome, LaunchError> {
    raise_descriptor_limit();
    let scratch = Scratch::beneath(Path::new("/dev/shm"))?;
    let root = scratch.path().join("served");
    fill(&root, size.files)?;
    let pki = Pki::shared().map_err(io::Error::other)?;
    let server = launch(kind, attack, &root, pki).start()?;
    let identity = attack.identity(pki)?;
    let round = || one_round(&server, identity.as_ref());
    let without = (0..size.rounds)
        .map(|_| round())
        .collect::<io::Result<Vec<Times>>>()?;
    let crowd = Crowd::gather(&server, attack, identity.clone(), size.connections);
    let (with, failed): (Vec<_>, Vec<_>) =
        (0..size.rounds).map(|_| round()).partition(Result::is_ok);
    let held = crowd.held();
    crowd.disperse();
    let with: Vec<Times> = with.into_iter().flatten().collect();
    let first = failed.iter().find_map(|round| round.as_ref().err());
    let medians = |of: fn(&Times) -> Duration| {
        [&without, &with].map(|times| {
            let times: Vec<f64> = times.iter().map(|times| of(times).as_secs_f64()).collect();
            if times.is_empty() {
                f64::INFINITY
            } else {
                median(&times)
            }
        })
    };
    Ok(Outcome {
        kind,
        attack,
        login: medians(|times| times.login),
        get: medians(|times| times.get),
        held,
        failures: (failed.len(), first.map(ToString::to_string)),
    })
}

fn launch(kind: Kind, attack: Attack, root: &Path, pki: &'static Pki) -> Launch {
    let launch = Launch::new(kind, root);
    match (attack, kind) {
        (Attack::HalfHandshakes, _) => launch.gsi(pki),
        // With this setting our server has a user with a password; the real server refuses every password here.
        (Attack::WrongPasswords, Kind::Gridhaul) => launch.tls(pki),
        _ => launch,
    }
}
