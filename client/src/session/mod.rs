//! A session with a server: what it supports, what was set, and its data port.

mod absence;
mod data_credential;
mod facts;
mod kept;
mod open;
mod port;
mod settings;
mod sum;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_protocol::command::{AlgorithmName, Command, FileMode, SiteCommand};
use gridhaul_protocol::facts::FileFacts;
use gridhaul_protocol::feature::{Feature, SimpleFeature};
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use jiff::Timestamp;

pub(crate) use kept::{Kept, OtherEnd};
pub(crate) use port::Addresses;
pub(crate) use sum::of_reply as sum_of_reply;

pub use data_credential::DataCredential;
pub use facts::{Facts, Kind};
pub use open::{SessionConfig, SessionError, Welcome};
pub use settings::{DataCommands, DataProtection, Striping, TransferSettings};

use crate::control::{Control, ControlError};
use crate::location::Server;
use crate::login::Login;

/// What the markers of a server tell about the files that it has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StoredMarkers {
    /// Nothing that was compared with `SIZE`.
    #[default]
    Unknown,
    /// The sizes of the files, so that these need not be asked.
    Sizes,
    /// At least once another size than that of the file, so that sizes are asked.
    Unreliable,
}

/// A session of a user who has logged in.
#[derive(Debug)]
pub struct Session {
    control: Control,
    server: Server,
    login: Login,
    welcome: Welcome,
    features: Vec<Feature>,
    /// What the server was told.
    settings: settings::Told,
    /// The stack of data channels in place of that of transfers.
    own_stack: Option<StackSpec>,
    data_credential: Option<Arc<DataCredential>>,
    /// The data channels that are open.
    kept: Option<Kept>,
    markers: StoredMarkers,
    /// Differs for each session of the process.
    id: u64,
}

impl Session {
    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Has the session used for URLs of this server, which may name no user.
    pub(crate) fn serve(&mut self, server: Server) {
        self.server = server;
    }

    /// Whether further commands make sense: the connection works, and every command has its reply.
    pub fn is_usable(&self) -> bool {
        self.control.is_idle()
    }

    /// Whether the session has ended, as far as that is known without a wait.
    pub(crate) async fn has_ended(&mut self) -> bool {
        self.control.has_ended().await
    }

    /// The shortest time that the reply to a command has taken until now: about a round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.control.round_trip()
    }

    /// How the session began.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The address of the server.
    pub fn peer(&self) -> SocketAddr {
        self.control.peer()
    }

    /// The address of this machine that the server sees, unless there is address translation between them.
    pub fn local(&self) -> SocketAddr {
        self.control.local()
    }

    /// How the user logged in.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// Uses this stack for data channels, in place of that of transfers.
    pub(crate) fn prefer_stack(&mut self, stack: Option<StackSpec>) {
        self.own_stack = stack;
    }

    /// Differs for each session of the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// What the server says that it supports.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// The control channel, for commands that this type has no method for. Settings must not be changed there.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Whether the server supports a feature.
    pub fn has(&self, feature: SimpleFeature) -> bool {
        self.features.contains(&Feature::Simple(feature))
    }

    /// The size of a file in bytes; `None` if the server does not say it.
    ///
    /// # Errors
    ///
    /// When the file does not exist, or the session has ended.
    pub async fn size(&mut self, path: &PathArgument) -> Result<Option<u64>, ControlError> {
        if !self.has(SimpleFeature::Size) {
            return Ok(None);
        }
        let reply = self.control.must(&Command::Size(path.clone())).await?;
        Ok(reply.text().trim().parse().ok())
    }

    /// What the markers of the server have told.
    pub(crate) fn markers(&self) -> StoredMarkers {
        self.markers
    }

    pub(crate) fn note_markers(&mut self, markers: StoredMarkers) {
        self.markers = markers;
    }

    /// Whether the server has facts of files (RFC 3659 7.8).
    pub(crate) fn has_facts(&self) -> bool {
        let mut features = self.features.iter();
        features.any(|one| matches!(one, Feature::Facts(_)))
    }

    /// Whether listings of the server tell links to directories from directories.
    pub fn tells_links(&self) -> bool {
        let mut features = self.features.iter();
        features.any(|one| match one {
            Feature::Facts(facts) => facts.iter().any(|fact| {
                let name = fact.name.as_str();
                fact.selected && name.eq_ignore_ascii_case("UNIX.slink")
            }),
            _ => false,
        })
    }

    /// What the server says about a path; `None` if it does not exist, or the server has no facts.
    ///
    /// # Errors
    ///
    /// When the session has ended.
    pub async fn facts(&mut self, path: &PathArgument) -> Result<Option<Facts>, ControlError> {
        if !self.has_facts() {
            return Ok(None);
        }
        let reply = self.control.ask(&Command::Mlst(Some(path.clone()))).await?;
        Ok(facts_of(&reply).map(|facts| Facts::of(&facts)))
    }

    /// Whether a path is a directory; `None` if it does not exist, or the server does not say it.
    ///
    /// # Errors
    ///
    /// When the session has ended.
    pub async fn is_directory(
        &mut self,
        path: &PathArgument,
    ) -> Result<Option<bool>, ControlError> {
        let facts = self.facts(path).await?;
        let kind = facts.and_then(|facts| facts.kind);
        Ok(kind.map(|kind| kind == Kind::Directory))
    }

    /// Makes a directory, if there is none.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub async fn make_directory(&mut self, path: &PathArgument) -> Result<(), ControlError> {
        let command = Command::Mkd(path.clone());
        let reply = self.control.ask(&command).await?;
        if reply.is_error() && self.is_directory(path).await? == Some(true) {
            return Ok(());
        }
        crate::control::accepted(command.verb(), reply).map(drop)
    }

    /// Makes a directory; one that exists is an error.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub async fn make_new_directory(&mut self, path: &PathArgument) -> Result<(), ControlError> {
        let made = self.control.must(&Command::Mkd(path.clone())).await;
        made.map(drop)
    }

    /// Renames a file or a directory.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub async fn rename(
        &mut self,
        from: &PathArgument,
        to: &PathArgument,
    ) -> Result<(), ControlError> {
        self.control.must(&Command::Rnfr(from.clone())).await?;
        let renamed = self.control.must(&Command::Rnto(to.clone())).await;
        renamed.map(drop)
    }

    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub async fn remove(
        &mut self,
        path: &PathArgument,
        is_directory: bool,
    ) -> Result<(), ControlError> {
        let command = match is_directory {
            true => Command::Rmd(path.clone()),
            false => Command::Dele(path.clone()),
        };
        self.control.must(&command).await.map(drop)
    }

    /// Sets the permissions of a file or a directory.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub async fn set_mode(
        &mut self,
        path: &PathArgument,
        mode: FileMode,
    ) -> Result<(), ControlError> {
        let command = Command::Site(SiteCommand::Chmod {
            mode,
            path: path.clone(),
        });
        self.control.must(&command).await.map(drop)
    }

    /// Sets the time of the last change of a file. `false` if the server has no command for that.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub async fn set_modified(
        &mut self,
        path: &PathArgument,
        modified: SystemTime,
    ) -> Result<bool, ControlError> {
        let command = mfmt(path, modified).filter(|_| self.has(SimpleFeature::Mfmt));
        match command {
            Some(command) => self.control.must(&command).await.map(|_| true),
            None => Ok(false),
        }
    }

    /// The checksum of a file from an offset on, in the digits of the server. Without a length, to the end.
    ///
    /// # Errors
    ///
    /// When the server refuses, or says something else than a checksum, or the session has ended.
    pub async fn checksum(
        &mut self,
        algorithm: &AlgorithmName,
        path: &PathArgument,
        offset: u64,
        length: Option<u64>,
    ) -> Result<String, ControlError> {
        let command = Command::Cksm {
            algorithm: algorithm.clone(),
            offset,
            length,
            path: path.clone(),
        };
        // The size is a matter of the time limit only; the server says why it refuses the file.
        let size = match length {
            Some(length) => Some(length),
            None => match self.size(path).await {
                Ok(size) => size,
                Err(ControlError::Refused { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        let limit = self.control.patience() + checksum_time(size);
        let reply = self.control.ask_within(&command, limit).await?;
        let verb = command.verb();
        let reply = crate::control::accepted(verb, reply)?;
        sum::of_reply(algorithm.as_str(), &reply).ok_or(ControlError::Unexpected { verb, reply })
    }

    /// Ends the session.
    pub async fn close(mut self) {
        // The server may have closed the connection; both is the end.
        let _ = self.control.ask(&Command::Quit).await;
    }
}

/// How long a server may compute the checksum of a file. Servers send nothing meanwhile (observed from globus-gridftp-server
/// 13.24 with 40 MB), so a slow one cannot be told from one that hangs.
fn checksum_time(size: Option<u64>) -> Duration {
    const UNKNOWN: Duration = Duration::from_secs(3600);
    /// The server says the size, and must not choose the limit.
    const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
    /// The rate of a slow network file system.
    const BYTES_A_SECOND: u64 = 1_000_000;

    size.map_or(UNKNOWN, |size| Duration::from_secs(size / BYTES_A_SECOND))
        .min(LONGEST)
}

/// The command that sets the time of the last change of a file; `None` if it has no place for this time.
pub(crate) fn mfmt(path: &PathArgument, modified: SystemTime) -> Option<Command> {
    let modified = Timestamp::try_from(modified).ok()?;
    let path = path.clone();
    Some(Command::Mfmt { modified, path })
}

/// The facts of an `MLST` reply: its only inner line (RFC 3659 7.2).
fn facts_of(reply: &Reply) -> Option<FileFacts<'_>> {
    let line = reply.is_completion().then(|| reply.inner().first())??;
    FileFacts::parse_line(line).ok().map(|(facts, _)| facts)
}
