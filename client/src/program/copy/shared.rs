//! What all parts of a copy share.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{Admission, BandwidthLimit, Handling, NodeSession};

use super::super::arguments::{CopyArguments, ModeArgument, Parallel, SyncArgument};
use super::super::report::Report;
use super::super::servers::{OpenError, Servers};
use super::error::CopyError;
use super::job::Place;
use super::journal::Journal;
use super::reach::{Reach, Way, is_translated};
use super::streams::{self, Flight, Streams};
use super::version::Version;
use crate::local::{LocalConfig, LocalMachine};
use crate::location::Server;
use crate::session::{DataCommands, DataProtection, Session, TransferSettings};

/// After so many failures of servers in a row, for each worker, the rest is not tried.
const FAILURES: usize = 4;

/// A session that is opened.
type Opening<'a> = Pin<Box<dyn Future<Output = Result<Session, OpenError>> + Send + 'a>>;

/// What all parts of a copy share.
pub(super) struct Shared {
    pub(super) arguments: CopyArguments,
    pub(super) machine: LocalMachine,
    /// The same with files like `/dev/null`.
    discards: OnceLock<LocalMachine>,
    pub(super) servers: Servers,
    pub(super) report: Report,
    pub(super) journal: Journal,
    /// Which servers reach this machine.
    pub(super) reach: Reach,
    /// The connections of files, with `--parallel auto`.
    streams: Streams,
    /// Servers that did not answer commands in their order.
    unordered: Mutex<Vec<Server>>,
    /// Servers that are used over TCP, because they do not offer RDMA.
    without_rdma: Mutex<Vec<Server>>,
    /// Sessions that are not in use.
    idle: Mutex<Vec<Session>>,
    /// Files in a row that failed because of their servers.
    failures: AtomicUsize,
    /// The directories that exist only while a walk looks for its destination.
    made: Mutex<Vec<Place>>,
    /// Of the bytes of all files.
    rate: Option<Arc<BandwidthLimit>>,
}

impl Shared {
    pub(super) fn new(
        arguments: CopyArguments,
        machine: LocalMachine,
        report: Report,
        journal: Journal,
    ) -> Self {
        let servers = Servers::new(arguments.login.clone());
        let rate = arguments.rate.map(|rate| BandwidthLimit::new(Some(rate)));
        Self {
            arguments,
            machine,
            discards: OnceLock::new(),
            servers,
            report,
            journal,
            reach: Reach::default(),
            streams: Streams::default(),
            unordered: Mutex::default(),
            without_rdma: Mutex::default(),
            idle: Mutex::default(),
            failures: AtomicUsize::new(0),
            made: Mutex::default(),
            rate,
        }
    }

    /// How the files of this machine are written and read.
    pub(super) fn handling(&self) -> Handling {
        Handling {
            bandwidth: self.rate.iter().cloned().collect(),
            ..Handling::default()
        }
    }

    /// Says once why the journal has no further records.
    pub(super) fn tell_of_journal(&self) {
        if let Some(why) = self.journal.take_failure() {
            self.report.notes(&why);
        }
    }

    /// The checksum that the content of files is compared by, if the user wants that.
    pub(super) fn wanted_sum(&self) -> Option<ChecksumAlgorithm> {
        let compares = self.arguments.sync == Some(SyncArgument::Checksum);
        // All servers have it.
        let usual = compares.then_some(ChecksumAlgorithm::Md5);
        self.arguments.checksum.or(usual)
    }

    /// Whether the entries of directories of the copy are looked at.
    pub(super) fn looks(&self) -> bool {
        self.arguments.sync.is_some() || self.arguments.delete
    }

    /// How long nothing may happen.
    pub(super) fn stall(&self) -> Duration {
        self.arguments.data.channels.stall_timeout
    }

    /// The files beneath a directory of this machine, with data channels of their own that these hosts may open.
    pub(super) fn files(
        &self,
        root: &Path,
        hosts: Admission,
    ) -> Result<Arc<dyn NodeSession>, CopyError> {
        Ok(self.machine.files(root, hosts)?)
    }

    /// As [`Self::files`], but what is received is discarded, and nothing can be read.
    pub(super) fn discarding(
        &self,
        root: &Path,
        hosts: Admission,
    ) -> Result<Arc<dyn NodeSession>, CopyError> {
        let discards = self
            .discards
            .get_or_init(|| LocalMachine::discarding(LocalConfig::default()));
        Ok(discards.files(root, hosts)?)
    }

    /// Files that commands are sent ahead for at this server.
    pub(super) fn pipeline(&self, server: &Server) -> usize {
        let unordered = self
            .unordered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match unordered.contains(server) {
            true => 1,
            false => usize::from(self.arguments.pipeline),
        }
    }

    /// The server does not answer commands that are sent ahead, or not in their order.
    pub(super) fn note_unordered(&self, server: &Server) {
        let mut unordered = self
            .unordered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !unordered.contains(server) {
            unordered.push(server.clone());
        }
    }

    /// A session with a server: an idle one, or a new one.
    ///
    /// A login is a large future. It is made here on the heap, so that it is not part of the stack of all that need a session.
    pub(super) fn session<'a>(&'a self, server: &'a Server) -> Opening<'a> {
        Box::pin(async move {
            let session = loop {
                match self.take_idle(server) {
                    // The server may have ended it meanwhile.
                    Some(mut session) => {
                        if !session.has_ended().await {
                            break session;
                        }
                    }
                    None => break self.servers.open(server).await?,
                }
            };
            self.check_rdma(&session)?;
            Ok(session)
        })
    }

    fn take_idle(&self, server: &Server) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let place = idle.iter().position(|one| one.server() == server)?;
        Some(idle.swap_remove(place))
    }

    /// A session that has not been used.
    pub(super) fn new_session<'a>(&'a self, server: &'a Server) -> Opening<'a> {
        Box::pin(self.servers.open(server))
    }

    /// Refuses a server that does not offer RDMA where that is demanded, and says once where TCP is used instead.
    fn check_rdma(&self, session: &Session) -> Result<(), OpenError> {
        let server = session.server();
        match &self.arguments.rdma {
            Some(rdma) if !session.has(SimpleFeature::Radr) => {
                if !rdma.or_tcp {
                    return Err(OpenError::NoRdma(server.to_string()));
                }
                let mut without = self
                    .without_rdma
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if !without.contains(server) {
                    without.push(server.clone());
                    let words = "does not offer RDMA to this user; its files are copied over TCP";
                    self.report.notes(&format!("{server} {words}"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The directories that walks have made, and remove.
    pub(super) fn made(&self) -> MutexGuard<'_, Vec<Place>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a session back. One that cannot be used again is closed.
    pub(super) fn give_back(&self, session: Session) {
        if session.is_usable() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(session);
        }
    }

    /// Forgets the idle sessions with the servers of a file: one has failed, and its sessions with it.
    pub(super) fn forget_idle(&self, places: [&Place; 2]) {
        let is_of = |session: &Session, place: &Place| match place {
            Place::Remote(url) => url.server.is_same(session.server()),
            Place::Local { .. } => false,
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| !places.iter().any(|place| is_of(session, place)));
    }

    /// Ends all idle sessions.
    pub(super) async fn close(&self) {
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *idle)
        };
        for session in idle {
            session.close().await;
        }
    }

    /// Counts a file that was copied, or failed because of its servers.
    pub(super) fn note(&self, is_copied: bool) {
        match is_copied {
            true => self.failures.store(0, Ordering::Relaxed),
            false => {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the rest is not tried: every file would wait for all its retries.
    pub(super) fn gives_up(&self) -> Option<usize> {
        let failures = self.failures.load(Ordering::Relaxed);
        let limit = FAILURES * usize::from(self.arguments.concurrency);
        (failures >= limit).then_some(failures)
    }

    /// The bytes that are copied of this version of a file, where that is known.
    pub(super) fn bytes_of(&self, version: Version) -> Option<u64> {
        let size = version.size?;
        Some(
            self.arguments
                .part()
                .map_or(size, |part| part.bytes_of(size)),
        )
    }

    /// The settings of transfers to a server, or between two of them.
    pub(super) fn settings(&self, servers: &[&Session]) -> TransferSettings {
        let have_blocks = servers.iter().all(|one| one.has(SimpleFeature::Parallel));
        let mode = match self.wanted_mode() {
            Some(mode) => mode,
            // Data channels serve several files, and a restart knows what has arrived.
            None if have_blocks => TransferMode::Extended,
            None => TransferMode::Stream,
        };
        self.settings_in(mode, servers)
    }

    /// The settings of a transfer from a server to this machine, and whether it tries if the server reaches this machine. One file
    /// is a stream, because it would gain nothing by channels that serve several files.
    pub(super) fn settings_of_get(
        &self,
        server: &Session,
        is_only: bool,
    ) -> (TransferSettings, bool) {
        let way = || match is_only
            || !server.has(SimpleFeature::Parallel)
            || is_translated(server.local().ip(), server.peer().ip())
        {
            true => Way::Stream,
            false => self.reach.way(server.server()),
        };
        let (mode, tries) = match self.wanted_mode() {
            Some(mode) => (mode, false),
            None => match way() {
                Way::Try => (TransferMode::Extended, true),
                Way::Blocks => (TransferMode::Extended, false),
                Way::Stream => (TransferMode::Stream, false),
            },
        };
        (self.settings_in(mode, &[server]), tries)
    }

    /// The settings of gets in MODE E, if that is what files of this server are got in.
    pub(super) fn settings_of_blocks(&self, server: &Session) -> Option<TransferSettings> {
        let mode = self.wanted_mode().or_else(|| {
            let reaches = self.reach.reaches(server.server());
            reaches.then_some(TransferMode::Extended)
        });
        mode.filter(|mode| *mode == TransferMode::Extended)
            .map(|mode| self.settings_in(mode, &[server]))
    }

    /// The mode that a get continues in, if an earlier attempt has begun it in one and the user wants no other.
    pub(super) fn mode_of_begun(&self, begun: Option<TransferMode>) -> Option<TransferMode> {
        begun.filter(|_| self.wanted_mode().is_none())
    }

    /// A file begins that goes this way: with `--parallel auto` it gets the number of connections that is measured now.
    pub(super) fn begin(
        &self,
        way: &streams::Way,
        settings: &mut TransferSettings,
    ) -> Option<Flight> {
        if !self.adapts(settings) {
            return None;
        }
        let flight = self.streams.begin(way);
        settings.parallelism = flight.streams();
        Some(flight)
    }

    /// Small files get the number as well, but are not measured: they take more time for commands than for bytes.
    pub(super) fn settle(&self, way: &streams::Way, settings: &mut TransferSettings) {
        if self.adapts(settings) {
            settings.parallelism = self.streams.now(way);
        }
    }

    fn adapts(&self, settings: &TransferSettings) -> bool {
        self.arguments.data.parallel == Parallel::Auto && settings.mode == TransferMode::Extended
    }

    /// The mode that the user wants.
    fn wanted_mode(&self) -> Option<TransferMode> {
        let data = &self.arguments.data;
        match (data.mode, data.parallel) {
            (ModeArgument::Stream, _) => Some(TransferMode::Stream),
            (ModeArgument::Auto, Parallel::Fixed(1)) => None,
            (ModeArgument::Extended | ModeArgument::Auto, _) => Some(TransferMode::Extended),
        }
    }

    pub(super) fn settings_in(&self, mode: TransferMode, servers: &[&Session]) -> TransferSettings {
        let data = &self.arguments.data;
        let offer_rdma = servers.iter().all(|one| one.has(SimpleFeature::Radr));
        let (stack, commands) = match &self.arguments.rdma {
            Some(rdma) if offer_rdma => (rdma.told(), DataCommands::Rdma),
            _ => (data.channels.stack.clone(), DataCommands::Usual),
        };
        TransferSettings {
            mode,
            parallelism: match data.parallel {
                Parallel::Fixed(count) => count,
                // `begin` and `settle` know more.
                Parallel::Auto => 1,
            },
            protection: data
                .channels
                .protection(DataProtection::default_of(servers)),
            stack,
            commands,
        }
    }

    /// The stack of this machine for transfers with these settings.
    pub(super) fn stack_here(&self, settings: &TransferSettings) -> StackSpec {
        match (&self.arguments.rdma, settings.commands) {
            (Some(rdma), DataCommands::Rdma) => rdma.stack.clone(),
            _ => self.arguments.data.channels.stack_here(),
        }
    }
}
