//! What is measured: one row of the table each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::arena::{BenchArena, Login, RunError};
use super::ports;
use super::usage::{ProcessTree, raise_descriptor_limit};
use crate::Kind;
use crate::raw::Control;

/// One thing to measure.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name, as `--row` takes it.
    pub name: &'static str,
    /// What a run does, in words.
    pub what: &'static str,
    /// How the numbers are shown.
    pub unit: Unit,
    /// What the project wants: the least ratio, and whether it must be exceeded.
    pub target: Target,
    work: Work,
}

/// What a run's number is, and which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Megabytes (10^6) a second: more is better.
    Megabytes,
    /// Files a second: more is better.
    Files,
    /// Sessions that log in and leave, a second: more is better.
    Logins,
    /// Kibibytes of resident memory: less is better.
    Kibibytes,
}

/// What the project wants of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Not behind: a ratio of 1 or more.
    NotBehind,
    /// Ahead: a ratio of more than 1.
    Ahead,
}

/// What one run gave.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// In the row's unit.
    pub value: f64,
    /// Processor seconds of the servers for 10^9 bytes, for rows of large files.
    pub processor: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    /// The large file, or the small ones, one way.
    Copy {
        way: Way,
        small: bool,
        options: &'static [&'static str],
        login: Login,
    },
    /// Sessions that do nothing.
    Idle,
    /// Sessions that log in, delegate, fetch one small file and leave.
    LogIn,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Get,
    Put,
    ThirdParty,
}

const fn large(
    name: &'static str,
    what: &'static str,
    way: Way,
    options: &'static [&'static str],
) -> Row {
    let work = Work::Copy {
        way,
        small: false,
        options,
        login: Login::Anonymous,
    };
    Row {
        name,
        what,
        unit: Unit::Megabytes,
        target: Target::NotBehind,
        work,
    }
}

const fn small(
    name: &'static str,
    what: &'static str,
    way: Way,
    options: &'static [&'static str],
) -> Row {
    let work = Work::Copy {
        way,
        small: true,
        options,
        login: Login::Anonymous,
    };
    Row {
        name,
        what,
        unit: Unit::Files,
        target: Target::Ahead,
        work,
    }
}

/// The same by a user with a certificate.
const fn certified(row: Row) -> Row {
    let work = match row.work {
        Work::Copy {
            way,
            small,
            options,
            login: _,
        } => Work::Copy {
            way,
            small,
            options,
            login: Login::Certificate,
        },
        other => other,
    };
    Row {
        target: Target::Ahead,
        work,
        ..row
    }
}

/// The large file with `PROT P`.
const fn private(
    name: &'static str,
    what: &'static str,
    way: Way,
    options: &'static [&'static str],
) -> Row {
    certified(large(name, what, way, options))
}

/// The share of ports that must be free before small files are copied.
const FREE_PORTS: f64 = 0.5;

/// All rows, in the order in which they run.
pub const ROWS: [Row; 25] = [
    large(
        "get-p1",
        "large file to /dev/null, -p 1",
        Way::Get,
        &["-p", "1"],
    ),
    large(
        "get-p4",
        "large file to /dev/null, -p 4",
        Way::Get,
        &["-p", "4"],
    ),
    large(
        "put-p1",
        "large file from memory to memory, -p 1",
        Way::Put,
        &["-p", "1"],
    ),
    large(
        "put-p4",
        "large file from memory to memory, -p 4",
        Way::Put,
        &["-p", "4"],
    ),
    large(
        "tpc-p1",
        "large file, server to server, -p 1",
        Way::ThirdParty,
        &["-p", "1"],
    ),
    large(
        "tpc-p4",
        "large file, server to server, -p 4",
        Way::ThirdParty,
        &["-p", "4"],
    ),
    small("small-get", "small files, -r -cd", Way::Get, &["-r", "-cd"]),
    small("small-put", "small files, -r -cd", Way::Put, &["-r", "-cd"]),
    small(
        "small-tpc",
        "small files, server to server, -r -cd",
        Way::ThirdParty,
        &["-r", "-cd"],
    ),
    // The client pipelines only between servers; with -fast it reuses data connections everywhere.
    small(
        "small-get-fast",
        "small files, -fast -r -cd",
        Way::Get,
        &["-fast", "-r", "-cd"],
    ),
    small(
        "small-put-fast",
        "small files, -fast -r -cd",
        Way::Put,
        &["-fast", "-r", "-cd"],
    ),
    small(
        "small-tpc-pp",
        "small files, server to server, -fast -pp -r -cd",
        Way::ThirdParty,
        &["-fast", "-pp", "-r", "-cd"],
    ),
    small(
        "small-get-cc4",
        "small files, -cc 4 -r -cd",
        Way::Get,
        &["-cc", "4", "-r", "-cd"],
    ),
    small(
        "small-put-cc4",
        "small files, -cc 4 -r -cd",
        Way::Put,
        &["-cc", "4", "-r", "-cd"],
    ),
    small(
        "small-tpc-cc4-pp",
        "small files, server to server, -cc 4 -pp -r -cd",
        Way::ThirdParty,
        &["-cc", "4", "-pp", "-r", "-cd"],
    ),
    Row {
        name: "memory",
        what: "resident memory of an idle session",
        unit: Unit::Kibibytes,
        target: Target::Ahead,
        work: Work::Idle,
    },
    Row {
        name: "gsi-logins",
        what: "logins with delegation and a small file, 4 at a time",
        unit: Unit::Logins,
        target: Target::Ahead,
        work: Work::LogIn,
    },
    private(
        "gsi-get-p1",
        "large file to /dev/null, PROT P, -p 1",
        Way::Get,
        &["-dcpriv", "-p", "1"],
    ),
    private(
        "gsi-get-p4",
        "large file to /dev/null, PROT P, -p 4",
        Way::Get,
        &["-dcpriv", "-p", "4"],
    ),
    private(
        "gsi-put-p1",
        "large file from memory to memory, PROT P, -p 1",
        Way::Put,
        &["-dcpriv", "-p", "1"],
    ),
    private(
        "gsi-put-p4",
        "large file from memory to memory, PROT P, -p 4",
        Way::Put,
        &["-dcpriv", "-p", "4"],
    ),
    private(
        "gsi-tpc-p1",
        "large file, server to server, PROT P, -p 1",
        Way::ThirdParty,
        &["-dcpriv", "-p", "1"],
    ),
    private(
        "gsi-tpc-p4",
        "large file, server to server, PROT P, -p 4",
        Way::ThirdParty,
        &["-dcpriv", "-p", "4"],
    ),
    // What DCAU costs where it costs most: a handshake for each small file.
    certified(small(
        "gsi-small-nodcau",
        "small files, DCAU N, -r -cd",
        Way::Get,
        &["-nodcau", "-r", "-cd"],
    )),
    certified(small(
        "gsi-small-dcau",
        "small files, DCAU A, PROT C, -r -cd",
        Way::Get,
        &["-r", "-cd"],
    )),
];

/// Clients that log in beside each other.
const CLIENTS: usize = 4;

impl Row {
    /// Runs it once against the servers of a kind.
    ///
    /// # Errors
    ///
    /// When it was no success.
    pub fn run(&self, arena: &BenchArena, kind: Kind) -> Result<Sample, RunError> {
        match self.work {
            Work::Copy {
                way,
                small,
                options,
                login,
            } => copy(arena, kind, login, way, small, options),
            Work::Idle => idle(arena, kind),
            Work::LogIn => log_in(arena, kind),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn copy(
    arena: &BenchArena,
    kind: Kind,
    login: Login,
    way: Way,
    small: bool,
    options: &[&str],
) -> Result<Sample, RunError> {
    let [first, second] = arena.servers(kind, login)?;
    let sizes = arena.sizes;
    let name = if small { "small/" } else { "large" };
    let target = if small { "" } else { "large" };
    let (from, to) = match way {
        Way::Get if small => (first.url(name), arena.local("down/")),
        Way::Get => (first.url(name), "file:///dev/null".to_owned()),
        Way::Put => (arena.local(name), first.url(&format!("up/{target}"))),
        Way::ThirdParty => (first.url(name), second.url(&format!("up/{target}"))),
    };
    if small {
        ports::wait_for_free(FREE_PORTS)?;
    }
    let before = arena.processor_time(kind, login)?;
    let copied = arena.copy(login, options, from, to);
    // What a failed run left must not count for the next one.
    let elapsed = copied.inspect_err(|_| drop(arena.clear(0, 0)))?;
    let processor = arena.processor_time(kind, login)?.saturating_sub(before);
    let (files, bytes) = match (way, small) {
        (Way::Get, false) => (0, 0),
        (_, false) => (1, sizes.large),
        (_, true) => (sizes.files, (sizes.files * sizes.small) as u64),
    };
    arena.clear(files, bytes)?;
    let seconds = elapsed.as_secs_f64();
    if small {
        return Ok(Sample {
            value: sizes.files as f64 / seconds,
            processor: None,
        });
    }
    let giga = sizes.large_gigabytes();
    Ok(Sample {
        value: 1e3 * giga / seconds,
        processor: Some(processor.as_secs_f64() / giga),
    })
}

/// Each session is a client program that starts, and asks for the same file.
#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn log_in(arena: &BenchArena, kind: Kind) -> Result<Sample, RunError> {
    let [server, _] = arena.servers(kind, Login::Certificate)?;
    ports::wait_for_free(FREE_PORTS)?;
    let logins = arena.sizes.logins;
    let next = AtomicUsize::new(0);
    let client = || {
        while next.fetch_add(1, Ordering::Relaxed) < logins {
            let from = server.url("small/f00000");
            let options = ["-nodcau"];
            arena.copy(
                Login::Certificate,
                &options,
                from,
                "file:///dev/null".to_owned(),
            )?;
        }
        Ok(())
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| {
            let ended = client.join();
            ended.unwrap_or_else(|_| Err(RunError::Failed("a client panicked".to_owned())))
        })
    })?;
    Ok(Sample {
        value: logins as f64 / start.elapsed().as_secs_f64(),
        processor: None,
    })
}

/// Sessions that have logged in and do nothing, less what the server needs without any. The server is
/// a fresh one, so that no memory of earlier sessions can be used again.
#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn idle(arena: &BenchArena, kind: Kind) -> Result<Sample, RunError> {
    let server = arena.fresh_server(kind)?;
    let tree = ProcessTree::of(server.pid());
    // After the start: the server gets the limit that every program gets.
    raise_descriptor_limit();
    let empty = tree.usage().memory;
    let sessions: Vec<Control> = (0..arena.sizes.sessions)
        .map(|_| Control::anonymous(server.address()))
        .collect::<Result<_, _>>()?;
    let full = tree.usage().memory;
    let value = full.saturating_sub(empty) as f64 / 1024.0 / sessions.len() as f64;
    Ok(Sample {
        value,
        processor: None,
    })
}
