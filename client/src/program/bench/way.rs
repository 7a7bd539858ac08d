//! Transfers of some bytes, again and again, with the same sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::{Command, SiteCommand, StackRequest, Text, TransferMode};
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_transfer::{Admission, NodeSession};

use super::super::arguments::{BenchArguments, ChannelArguments};
use super::super::servers::Servers;
use super::BenchError;
use super::ends::{Ends, Remote};
use super::setting::Setting;
use crate::control::ControlError;
use crate::local::{LocalConfig, LocalMachine};
use crate::location::Server;
use crate::session::{DataCommands, DataProtection, Session, Striping, TransferSettings};
use crate::transfer::{
    Direction, FileCopy, FilePart, ThirdPartyCopy, Transferred, Unobserved, third_party, two_party,
};

/// Both ends, with their sessions.
pub(super) struct Way {
    pub(super) ends: Ends,
    servers: Servers,
    channels: ChannelArguments,
    here: Option<Here>,
    /// Those of [`Ends::remotes`].
    sessions: Vec<Session>,
    /// A transfer has begun, so the server may have the file.
    has_written: bool,
}

/// The memory of this machine as an end, with its data channels.
struct Here {
    block_bytes: Option<usize>,
    files: Arc<dyn NodeSession>,
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Way {
    pub(super) async fn open(arguments: &BenchArguments) -> Result<Self, BenchError> {
        let servers = Servers::new(arguments.login.clone());
        let ends = Ends::find(&servers, arguments).await?;
        let way = Self {
            ends,
            servers,
            channels: arguments.channels.clone(),
            here: None,
            sessions: Vec::new(),
            has_written: false,
        };
        for stack in arguments.channels.stack.iter().chain(&arguments.also) {
            let checked = way.check_here(stack);
            checked.map_err(|error| BenchError::usage(format!("{stack}: {error}")))?;
        }
        Ok(way)
    }

    /// Whether this machine is the sender, which knows what it has sent again.
    pub(super) fn sends(&self) -> bool {
        matches!(self.ends, Ends::Put(_))
    }

    /// Between two servers they know their drivers.
    fn check_here(&self, stack: &StackSpec) -> Result<(), String> {
        if matches!(self.ends, Ends::Between(..)) {
            return Ok(());
        }
        let machine = LocalMachine::in_memory(LocalConfig::default());
        machine.check_stack(stack).map_err(words)
    }

    /// Whether all ends accept a stack. A session of its own asks, because a new stack ends data channels.
    ///
    /// # Errors
    ///
    /// When a server does not answer.
    pub(super) async fn takes(&self, stack: &StackSpec) -> Result<bool, String> {
        let Some(text) = Text::new(stack.to_string()) else {
            return Ok(false);
        };
        if self.check_here(stack).is_err() {
            return Ok(false);
        }
        let command = Command::Site(SiteCommand::SetNetStack(StackRequest::Drivers(text)));
        for remote in self.ends.remotes() {
            let mut session = self.servers.open(&remote.url.server).await.map_err(words)?;
            let reply = session.control().ask(&command).await.map_err(words)?;
            session.close().await;
            if !reply.is_completion() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves this many bytes, or all that the source has.
    ///
    /// # Errors
    ///
    /// When an end fails.
    pub(super) async fn transfer(
        &mut self,
        setting: &Setting,
        bytes: u64,
    ) -> Result<Transferred, String> {
        self.open_sessions().await?;
        let sessions: Vec<&Session> = self.sessions.iter().collect();
        let protection = self
            .channels
            .protection(DataProtection::default_of(&sessions));
        let settings = TransferSettings {
            mode: TransferMode::Extended,
            parallelism: setting.parallel,
            protection,
            stack: setting.stack.clone(),
            commands: DataCommands::Usual,
            striping: Striping::Auto,
        };
        let bytes = bytes.min(self.ends.most_bytes());
        if let (Ends::Between(from, to), [source, destination]) =
            (&self.ends, self.sessions.as_mut_slice())
        {
            let copy = ThirdPartyCopy {
                source: from.path.clone(),
                destination: to.path.clone(),
                part: Some(beginning(bytes)),
                size: Some(bytes),
                present: RangeSet::new(),
                settings,
                modified: None,
                verify: None,
                stall: self.channels.stall_timeout,
            };
            self.has_written = true;
            let done = third_party(source, destination, &copy, &mut Unobserved).await;
            return done.map_err(words);
        }
        self.with_memory(setting, settings, bytes).await
    }

    /// Moves bytes between the memory of this machine and a server.
    async fn with_memory(
        &mut self,
        setting: &Setting,
        settings: TransferSettings,
        bytes: u64,
    ) -> Result<Transferred, String> {
        let files = self.files(setting.block_bytes, settings.protection)?;
        // The name of a file in memory is its size. Without a promised size nothing is reserved.
        let name = PathBuf::from(format!("/{bytes}"));
        let (direction, remote, part, size) = match &self.ends {
            Ends::Put(to) => (Direction::Put, to, None, Some(bytes)),
            Ends::Get(from) => (Direction::Get, from, Some(beginning(bytes)), None),
            Ends::Between(..) => return Err("a session is missing".to_owned()),
        };
        let here = ChannelArguments {
            stack: setting.stack.clone(),
            ..self.channels.clone()
        };
        let copy = FileCopy {
            part,
            size,
            stack: here.stack_here(),
            stall: self.channels.stall_timeout,
            ..FileCopy::new(direction, name, remote.path.clone(), settings)
        };
        let session = self.sessions.first_mut().ok_or("a session is missing")?;
        self.has_written = true;
        let done = two_party(session, &files, &copy, &mut Unobserved).await;
        done.map_err(words)
    }

    async fn open_sessions(&mut self) -> Result<(), String> {
        let servers: Vec<Server> = self.ends.remotes().into_iter().map(server).collect();
        for server in servers.iter().skip(self.sessions.len()) {
            let session = self.servers.open(server).await.map_err(words)?;
            self.sessions.push(session);
        }
        Ok(())
    }

    /// The memory of this machine, with buffers of this size.
    fn files(
        &mut self,
        block_bytes: Option<usize>,
        protection: DataProtection,
    ) -> Result<Arc<dyn NodeSession>, String> {
        if let Some(here) = self
            .here
            .as_ref()
            .filter(|here| here.block_bytes == block_bytes)
        {
            return Ok(Arc::clone(&here.files));
        }
        let hosts = match (&self.ends, self.sessions.first()) {
            (Ends::Get(_), Some(session)) => session.admits(protection),
            _ => Admission::none(),
        };
        let machine = LocalMachine::in_memory(LocalConfig {
            block_bytes: block_bytes.unwrap_or(LocalConfig::BLOCK_BYTES),
            ..LocalConfig::default()
        });
        let files = machine.files(Path::new("/"), hosts).map_err(words)?;
        self.here = Some(Here {
            block_bytes,
            files: Arc::clone(&files),
        });
        Ok(files)
    }

    /// After a failure: the next transfer has sessions and connections of its own.
    pub(super) fn reset(&mut self) {
        self.sessions.clear();
        self.here = None;
    }

    /// Removes the file that was written, and ends the sessions.
    ///
    /// # Errors
    ///
    /// When the file could not be removed.
    pub(super) async fn close(&mut self) -> Result<(), String> {
        for session in std::mem::take(&mut self.sessions) {
            // One that was interrupted in a transfer ends with its connection.
            if session.is_usable() {
                session.close().await;
            }
        }
        self.here = None;
        let Some(Remote { url, path, .. }) = self.ends.written().filter(|_| self.has_written)
        else {
            return Ok(());
        };
        let mut session = self.servers.open(&url.server).await.map_err(words)?;
        let removed = remove(&mut session, path).await;
        session.close().await;
        removed.map_err(|error| format!("{url} was not removed: {error}"))
    }
}

/// Removes what transfers have left under the name of a new file.
async fn remove(session: &mut Session, path: &PathArgument) -> Result<(), ControlError> {
    session.remove_unfinished(path).await?;
    match session.size(path).await {
        // No transfer was completed.
        Err(error) if error.is_about_absence() => Ok(()),
        _ => session.remove(path, false).await,
    }
}

/// The first bytes of a file.
fn beginning(bytes: u64) -> FilePart {
    FilePart {
        offset: 0,
        length: Some(bytes),
    }
}

fn server(remote: &Remote) -> Server {
    remote.url.server.clone()
}
