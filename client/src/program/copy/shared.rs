//! What all parts of a copy share.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{Admission, BandwidthLimit, Handling, NodeSession};

use super::super::arguments::{CopyArguments, SyncArgument};
use super::super::report::Report;
use super::super::servers::{OpenError, Servers};
use super::super::telling::Telling;
use super::error::CopyError;
use super::job::{Begun, Place};
use super::journal::Journal;
use super::reach::Reach;
use super::streams::Streams;
use super::version::Version;
use crate::local::LocalMachine;
use crate::location::Server;
use crate::session::Session;

/// After so many failures in a row because of servers, or of a destination without room, for each worker, the rest is not tried.
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
    pub(super) streams: Streams,
    /// Servers that did not answer commands in their order.
    unordered: Mutex<Vec<Server>>,
    /// Servers that are used over TCP, because they do not offer RDMA.
    without_rdma: Mutex<Vec<Server>>,
    /// Servers that do not keep the times of files.
    without_times: Mutex<Vec<Server>>,
    /// Servers with which a session was opened.
    answered: Mutex<Vec<Server>>,
    /// Sessions that are not in use.
    idle: Mutex<Vec<Session>>,
    /// Files in a row that failed because of their servers.
    failures: AtomicUsize,
    /// Files in a row that the destination had no room for.
    without_room: AtomicUsize,
    /// The directories that exist only while a walk looks for its destination.
    made: Mutex<Vec<Place>>,
    /// Files under way whose unfinished copies do not stay, with `--no-partial`.
    begun: Mutex<Vec<Arc<Begun>>>,
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
        let mut login = arguments.login.clone();
        if arguments.verbose > 0 {
            login.telling = Telling::at(arguments.verbose);
        }
        let servers = Servers::new(login);
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
            without_times: Mutex::default(),
            answered: Mutex::default(),
            idle: Mutex::default(),
            failures: AtomicUsize::new(0),
            without_room: AtomicUsize::new(0),
            made: Mutex::default(),
            begun: Mutex::default(),
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

    /// As [`Self::files`], but what is received is discarded.
    pub(super) fn discarding(
        &self,
        root: &Path,
        hosts: Admission,
    ) -> Result<Arc<dyn NodeSession>, CopyError> {
        let discards = self
            .discards
            .get_or_init(|| LocalMachine::in_memory(self.arguments.data.local()));
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
            self.note_answer(server);
            self.check_rdma(&session)?;
            Ok(session)
        })
    }

    fn note_answer(&self, server: &Server) {
        let mut answered = self.answered();
        if !answered.contains(server) {
            answered.push(server.clone());
        }
    }

    /// Whether a session with this server was opened before.
    pub(super) fn has_answered(&self, server: &Server) -> bool {
        self.answered().contains(server)
    }

    fn answered(&self) -> MutexGuard<'_, Vec<Server>> {
        let answered = self.answered.lock();
        answered.unwrap_or_else(PoisonError::into_inner)
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
                let words = "does not offer RDMA to this user; its files are copied over TCP";
                self.note_once(&self.without_rdma, server, words);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The server does not keep the times of files.
    pub(super) fn note_without_times(&self, server: &Server) {
        let words = "does not keep the times of files (there is no MFMT in its FEAT); compare copies there with --sync=size, --sync=checksum or --sync=newer";
        self.note_once(&self.without_times, server, words);
    }

    /// Tells something about a server, which is not among those that it was told of.
    fn note_once(&self, told: &Mutex<Vec<Server>>, server: &Server, words: &str) {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(server) {
            told.push(server.clone());
            self.report.notes(&format!("{server} {words}"));
        }
    }

    /// Files under way whose unfinished copies do not stay.
    pub(super) fn begun(&self) -> MutexGuard<'_, Vec<Arc<Begun>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Counts a file that the destination had no room for.
    pub(super) fn note_no_room(&self) {
        self.without_room.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the destination has stored so many bytes of a file. An empty file may need no room.
    pub(super) fn note_stored(&self, bytes: u64) {
        if bytes > 0 {
            self.without_room.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the rest is not tried, and why: every file would wait for all its retries, or take the last room for a part of it.
    pub(super) fn gives_up(&self) -> Option<CopyError> {
        let limit = FAILURES * usize::from(self.arguments.concurrency);
        let reached = |count: &AtomicUsize| {
            let count = count.load(Ordering::Relaxed);
            (count >= limit).then_some(count)
        };
        let no_room = reached(&self.without_room).map(CopyError::NoRoom);
        no_room.or_else(|| reached(&self.failures).map(CopyError::GivenUp))
    }

    /// Reports a file or a directory that was not copied; `doubt` is what else is to say about it.
    pub(super) fn failed(&self, names: (&str, &str), error: &CopyError, doubt: &str) {
        if error.is_about_room() {
            self.note_no_room();
        }
        let message = format!("{error}{doubt}");
        match error.is_given_up() && doubt.is_empty() {
            true => self.report.abandoned(names, &message),
            false => self.report.failed(Some(names), &message),
        }
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
}
