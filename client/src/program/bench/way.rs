//! Transfers of some bytes, again and again, with the same sessions.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_transfer::{Admission, NodeSession};
use tempfile::TempDir;

use super::super::arguments::{BenchArguments, ChannelArguments};
use super::super::servers::Servers;
use crate::local::{LocalConfig, LocalMachine};
use crate::location::{Server, Url};
use crate::session::{DataCommands, DataProtection, Session, TransferSettings};
use crate::transfer::{
    Direction, FileCopy, FilePart, ThirdPartyCopy, Transferred, Unobserved, third_party, two_party,
};

/// Why a benchmark does not begin.
pub(super) enum WayError {
    /// The command line is wrong.
    Usage(String),
    Failed(String),
}

/// Where bytes go from and to.
enum Ends {
    /// The file of a server, and its size.
    Get(Url, u64),
    /// A sparse file of this machine, and a new file of a server.
    Put(TempDir, Url),
    /// The file of a server, its size, and a new file of another one.
    Between(Url, u64, Url),
}

/// Both ends, with their sessions.
pub(super) struct Way {
    ends: Ends,
    servers: Servers,
    channels: ChannelArguments,
    machine: LocalMachine,
    files: Option<Arc<dyn NodeSession>>,
    /// By the place in [`Ends`].
    sessions: [Option<Session>; 2],
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Way {
    pub(super) async fn open(arguments: &BenchArguments) -> Result<Self, WayError> {
        let urls = arguments.urls.iter().map(|url| Url::parse(url));
        let urls: Vec<Url> = urls
            .collect::<Result<_, _>>()
            .map_err(|error| WayError::Usage(words(error)))?;
        let machine = match (arguments.urls.len(), arguments.put) {
            (1, false) => LocalMachine::discarding(LocalConfig::default()),
            _ => LocalMachine::new(LocalConfig::default()),
        };
        let stacks = arguments.channels.stack.iter().chain(&arguments.also);
        for stack in stacks {
            let checked = machine.check_stack(stack);
            checked.map_err(|error| WayError::Usage(format!("{stack}: {error}")))?;
        }
        let servers = Servers::new(arguments.login.clone());
        let ends = ends(&servers, urls, arguments.put).await?;
        Ok(Self {
            ends,
            servers,
            channels: arguments.channels.clone(),
            machine,
            files: None,
            sessions: [None, None],
        })
    }

    /// Moves this many bytes, or all that the source has.
    pub(super) async fn transfer(
        &mut self,
        stack: Option<&StackSpec>,
        parallel: u8,
        bytes: u64,
    ) -> Result<Transferred, String> {
        let hosts: Vec<Server> = match &self.ends {
            Ends::Get(url, _) | Ends::Put(_, url) => vec![url.server.clone()],
            Ends::Between(from, _, to) => vec![from.server.clone(), to.server.clone()],
        };
        for (place, server) in self.sessions.iter_mut().zip(&hosts) {
            if place.is_none() {
                *place = Some(self.servers.open(server).await.map_err(words)?);
            }
        }
        let sessions: Vec<&Session> = self.sessions.iter().flatten().collect();
        let protection = DataProtection::default_of(&sessions);
        let settings = TransferSettings {
            mode: TransferMode::Extended,
            parallelism: parallel,
            protection: self.channels.protection(protection),
            stack: stack.cloned(),
            commands: DataCommands::Usual,
        };
        let part = |size: u64| FilePart {
            offset: 0,
            length: Some(bytes.min(size)),
        };
        if let (Ends::Between(from, size, to), [Some(source), Some(destination)]) =
            (&self.ends, &mut self.sessions)
        {
            let copy = ThirdPartyCopy {
                source: from.argument().map_err(words)?,
                destination: to.argument().map_err(words)?,
                part: Some(part(*size)),
                size: Some(bytes.min(*size)),
                present: RangeSet::new(),
                settings,
                verify: None,
                stall: self.channels.stall_timeout,
            };
            let done = third_party(source, destination, &copy, &mut Unobserved).await;
            return done.map_err(words);
        }
        let here = ChannelArguments {
            stack: stack.cloned(),
            ..self.channels.clone()
        };
        let (direction, local, url, part, size) = match &self.ends {
            // Without the size nothing is reserved.
            Ends::Get(url, size) => {
                let local = PathBuf::from("/discarded");
                (Direction::Get, local, url, Some(part(*size)), None)
            }
            Ends::Put(place, url) => {
                let path = place.path().join("zeros");
                let file = File::create(&path).and_then(|file| file.set_len(bytes));
                file.map_err(|error| format!("{}: {error}", path.display()))?;
                (Direction::Put, path, url, None, Some(bytes))
            }
            Ends::Between(..) => return Err("a session is missing".to_owned()),
        };
        let remote = url.argument().map_err(words)?;
        let files = self.files(protection)?;
        let copy = FileCopy {
            part,
            size,
            stack: here.stack_here(),
            stall: self.channels.stall_timeout,
            ..FileCopy::new(direction, local, remote, settings)
        };
        let session = self.sessions[0].as_mut().ok_or("a session is missing")?;
        let done = two_party(session, &files, &copy, &mut Unobserved).await;
        done.map_err(words)
    }

    fn files(&mut self, protection: DataProtection) -> Result<Arc<dyn NodeSession>, String> {
        if let Some(files) = &self.files {
            return Ok(Arc::clone(files));
        }
        let hosts = match (&self.ends, &self.sessions[0]) {
            (Ends::Get(..), Some(session)) => session.admits(self.channels.protection(protection)),
            _ => Admission::none(),
        };
        let files = self.machine.files(Path::new("/"), hosts).map_err(words)?;
        Ok(Arc::clone(self.files.insert(files)))
    }

    /// After a failure: the next transfer has sessions and connections of its own.
    pub(super) fn reset(&mut self) {
        (self.sessions, self.files) = ([None, None], None);
    }

    /// Removes the file that was written, and ends the sessions.
    pub(super) async fn close(&mut self) -> Result<(), String> {
        let written = match &self.ends {
            Ends::Get(..) => None,
            Ends::Put(_, url) | Ends::Between(_, _, url) => Some(url.clone()),
        };
        let idle = std::mem::take(&mut self.sessions);
        for session in idle.into_iter().flatten() {
            // One that was interrupted in a transfer ends with its connection.
            if session.is_usable() {
                session.close().await;
            }
        }
        self.files = None;
        let Some(url) = written else {
            return Ok(());
        };
        let mut session = self.servers.open(&url.server).await.map_err(words)?;
        let path = url.argument().map_err(words)?;
        let removed = match session.size(&path).await {
            // No trial has written it.
            Err(_) if session.is_usable() => Ok(()),
            _ => session.remove(&path, false).await,
        };
        session.close().await;
        removed.map_err(|error| format!("{url} was not removed: {error}"))
    }
}

async fn ends(servers: &Servers, urls: Vec<Url>, is_put: bool) -> Result<Ends, WayError> {
    let mut urls = urls.into_iter();
    match (urls.next(), urls.next(), is_put) {
        (Some(url), None, false) => {
            let size = size(servers, &url).await?;
            Ok(Ends::Get(url, size))
        }
        (Some(url), None, true) => {
            absent(servers, &url).await?;
            let place = tempfile::tempdir();
            let place = place.map_err(|error| WayError::Failed(words(error)))?;
            Ok(Ends::Put(place, url))
        }
        (Some(from), Some(to), false) => {
            let size = size(servers, &from).await?;
            absent(servers, &to).await?;
            Ok(Ends::Between(from, size, to))
        }
        _ => Err(WayError::Usage(
            "--put is for one URL: two are copied from the first one to the second one".to_owned(),
        )),
    }
}

/// The size of a file that is read.
async fn size(servers: &Servers, url: &Url) -> Result<u64, WayError> {
    let failed = |error: String| WayError::Failed(format!("{url}: {error}"));
    let (mut session, path) = start(servers, url).await?;
    let size = session.size(&path).await;
    session.close().await;
    match size.map_err(|error| failed(words(error)))? {
        Some(size @ 1..) => Ok(size),
        _ => Err(failed("the file is empty: name a large one".to_owned())),
    }
}

/// Whether a file that will be written does not exist.
async fn absent(servers: &Servers, url: &Url) -> Result<(), WayError> {
    let (mut session, path) = start(servers, url).await?;
    let size = session.size(&path).await;
    let is_absent = size.is_err() && session.is_usable();
    session.close().await;
    match is_absent {
        true => Ok(()),
        false => Err(WayError::Failed(format!(
            "{url} exists, and would be replaced and removed: name another file"
        ))),
    }
}

async fn start(servers: &Servers, url: &Url) -> Result<(Session, PathArgument), WayError> {
    let path = url.argument();
    let path = path.map_err(|error| WayError::Usage(words(error)))?;
    let session = servers.open(&url.server).await;
    Ok((
        session.map_err(|error| WayError::Failed(words(error)))?,
        path,
    ))
}
