//! Where the bytes of a benchmark come from, and where they go.

use std::path::Path;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::Command;
use gridhaul_protocol::path::PathArgument;

use super::super::arguments::BenchArguments;
use super::super::report::amount;
use super::super::servers::Servers;
use super::BenchError;
use crate::control::ControlError;
use crate::location::{Location, Url};
use crate::session::{Kind, Session};

/// Devices of servers that are used; any other one could lose data.
const ZEROS: &str = "/dev/zero";
const DISCARDS: &str = "/dev/null";

/// How often the round trip is measured.
const ECHOES: usize = 3;

/// Both ends. The other one of a single server is the memory of this machine.
pub(super) enum Ends {
    Get(Remote),
    Put(Remote),
    Between(Remote, Remote),
}

/// An end at a server.
pub(super) struct Remote {
    pub(super) url: Url,
    pub(super) path: PathArgument,
    pub(super) medium: Medium,
    /// Of a command and its reply.
    pub(super) round_trip: Duration,
}

/// What an end reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    /// `/dev/zero` or `/dev/null`.
    Device,
    /// A file with so many bytes.
    File(u64),
    /// A file that transfers write, and that is removed at the end.
    NewFile,
}

impl Ends {
    /// Finds out what the arguments name.
    ///
    /// # Errors
    ///
    /// When they are wrong, or a server does not have what they need.
    pub(super) async fn find(
        servers: &Servers,
        arguments: &BenchArguments,
    ) -> Result<Self, BenchError> {
        let parsed = arguments.urls.iter().map(|url| Location::parse(url));
        let parsed: Result<Vec<Location>, _> = parsed.collect();
        let parsed = parsed.map_err(BenchError::usage)?;
        match (parsed.as_slice(), arguments.put) {
            ([Location::Remote(url)], false) => Remote::source(servers, url).await.map(Self::Get),
            ([Location::Remote(url)], true) => {
                Remote::destination(servers, url).await.map(Self::Put)
            }
            ([Location::Remote(url), Location::Local(here)], false)
                if here == Path::new(DISCARDS) =>
            {
                Remote::source(servers, url).await.map(Self::Get)
            }
            ([Location::Local(here), Location::Remote(url)], false) if here == Path::new(ZEROS) => {
                Remote::destination(servers, url).await.map(Self::Put)
            }
            ([Location::Remote(from), Location::Remote(to)], false) => Ok(Self::Between(
                Remote::source(servers, from).await?,
                Remote::destination(servers, to).await?,
            )),
            (_, true) => Err(BenchError::usage(
                "--put is for the URL of one server: two are copied from the first one to the second one",
            )),
            _ => Err(BenchError::usage(
                "a benchmark is between servers, or between a server and the memory of this machine: /dev/zero as the first one, or /dev/null as the second one",
            )),
        }
    }

    /// The ends at servers, the source first.
    pub(super) fn remotes(&self) -> Vec<&Remote> {
        match self {
            Self::Get(one) | Self::Put(one) => vec![one],
            Self::Between(from, to) => vec![from, to],
        }
    }

    /// The file that transfers write.
    pub(super) fn written(&self) -> Option<&Remote> {
        let (Self::Put(to) | Self::Between(_, to)) = self else {
            return None;
        };
        (to.medium == Medium::NewFile).then_some(to)
    }

    /// The bytes that a transfer can have.
    pub(super) fn most_bytes(&self) -> u64 {
        match self.remotes()[0].medium {
            Medium::File(bytes) => bytes,
            Medium::Device | Medium::NewFile => u64::MAX,
        }
    }

    /// The source and the destination, for people.
    pub(super) fn words(&self) -> [String; 2] {
        match self {
            Self::Get(from) => [from.words(), "memory of this machine".to_owned()],
            Self::Put(to) => ["memory of this machine".to_owned(), to.words()],
            Self::Between(from, to) => [from.words(), to.words()],
        }
    }
}

impl Remote {
    /// A file, or the device of zeros.
    async fn source(servers: &Servers, url: &Url) -> Result<Self, BenchError> {
        let (mut session, path) = start(servers, url).await?;
        let found = async {
            let round_trip = round_trip(&mut session).await?;
            let size = session.size(&path).await?;
            Ok((
                round_trip,
                size,
                is_device(&mut session, url, &path, ZEROS).await?,
            ))
        };
        let found: Result<_, ControlError> = found.await;
        end(session).await;
        let hint = match is_at(url, ZEROS) {
            true => {
                "; where a server has no /dev/zero, as gridhaul-server has none, name a file: one on a file system in memory (tmpfs) needs no disk"
            }
            false => "",
        };
        let failed =
            |error: &dyn std::fmt::Display| BenchError::Failed(format!("{url}: {error}{hint}"));
        let (round_trip, size, is_device) = found.map_err(|error| failed(&error))?;
        let medium = match (is_device, size) {
            (true, _) => Medium::Device,
            (false, Some(bytes @ 1..)) => Medium::File(bytes),
            (false, _) => return Err(failed(&"the file is empty: name a large one")),
        };
        Ok(Self {
            url: url.clone(),
            path,
            medium,
            round_trip,
        })
    }

    /// A file that does not exist, or the device that discards bytes.
    async fn destination(servers: &Servers, url: &Url) -> Result<Self, BenchError> {
        let (mut session, path) = start(servers, url).await?;
        let found = async {
            let round_trip = round_trip(&mut session).await?;
            if is_device(&mut session, url, &path, DISCARDS).await? {
                return Ok((round_trip, Some(Medium::Device)));
            }
            let is_absent = is_absent(&mut session, &path).await?;
            Ok((round_trip, is_absent.then_some(Medium::NewFile)))
        };
        let found: Result<_, ControlError> = found.await;
        end(session).await;
        let failed = |error: &dyn std::fmt::Display| BenchError::Failed(format!("{url}: {error}"));
        match found.map_err(|error| failed(&error))? {
            (round_trip, Some(medium)) => Ok(Self {
                url: url.clone(),
                path,
                medium,
                round_trip,
            }),
            (_, None) => Err(BenchError::Failed(format!(
                "{url} exists, and would be replaced and removed: name another file"
            ))),
        }
    }

    /// For people.
    fn words(&self) -> String {
        let url = &self.url;
        match self.medium {
            Medium::Device => format!("{url}: a device, without a disk"),
            Medium::File(bytes) => format!(
                "{url}: a file of {}; the page cache or the disk of the server is part of the rates",
                amount(bytes)
            ),
            Medium::NewFile => format!(
                "{url}: a new file; the page cache and the disk of the server are part of the rates"
            ),
        }
    }
}

/// Whether the path of a URL is this one.
fn is_at(url: &Url, device: &str) -> bool {
    url.path == device.as_bytes()
}

/// Whether a URL names this device, and the server calls it one.
async fn is_device(
    session: &mut Session,
    url: &Url,
    path: &PathArgument,
    device: &str,
) -> Result<bool, ControlError> {
    if !is_at(url, device) {
        return Ok(false);
    }
    let facts = session.facts(path).await?;
    Ok(facts.and_then(|facts| facts.kind) == Some(Kind::Other))
}

/// Whether a server says that nothing is at a path. Both of its answers count: a size may be that of an unfinished upload, which another
/// copy may continue.
async fn is_absent(session: &mut Session, path: &PathArgument) -> Result<bool, ControlError> {
    match session.size(path).await {
        Ok(Some(_)) => Ok(false),
        Err(error) if !error.is_about_absence() => Err(error),
        Ok(None) | Err(_) => session.is_absent(path).await,
    }
}

async fn round_trip(session: &mut Session) -> Result<Duration, ControlError> {
    let mut shortest = Duration::MAX;
    for _ in 0..ECHOES {
        let started = Instant::now();
        // An error is an answer, too.
        session.control().ask(&Command::Noop).await?;
        shortest = shortest.min(started.elapsed());
    }
    Ok(shortest)
}

async fn start(servers: &Servers, url: &Url) -> Result<(Session, PathArgument), BenchError> {
    let path = url.argument().map_err(BenchError::usage)?;
    let session = servers.open(&url.server).await;
    let session = session.map_err(|error| BenchError::Failed(error.to_string()))?;
    Ok((session, path))
}

async fn end(session: Session) {
    if session.is_usable() {
        session.close().await;
    }
}
