//! What all parts of a copy share.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_transfer::NodeSession;

use super::super::arguments::{CopyArguments, ModeArgument};
use super::super::report::Report;
use super::super::servers::{OpenError, Servers};
use super::error::CopyError;
use super::journal::Journal;
use super::version::Version;
use crate::local::LocalMachine;
use crate::location::Server;
use crate::session::{DataProtection, Session, TransferSettings};

/// After so many failures of servers in a row, for each worker, the rest is not tried.
const FAILURES: usize = 4;

/// What all parts of a copy share.
pub(super) struct Shared {
    pub(super) arguments: CopyArguments,
    pub(super) machine: LocalMachine,
    pub(super) servers: Servers,
    pub(super) report: Report,
    pub(super) journal: Journal,
    /// Sessions that are not in use.
    idle: Mutex<Vec<Session>>,
    /// Files in a row that failed because of their servers.
    failures: AtomicUsize,
}

impl Shared {
    pub(super) fn new(
        arguments: CopyArguments,
        machine: LocalMachine,
        report: Report,
        journal: Journal,
    ) -> Self {
        let servers = Servers::new(arguments.login.clone());
        Self {
            arguments,
            machine,
            servers,
            report,
            journal,
            idle: Mutex::default(),
            failures: AtomicUsize::new(0),
        }
    }

    /// The files beneath a directory of this machine, with data channels of their own.
    pub(super) fn files(&self, root: &Path) -> Result<Arc<dyn NodeSession>, CopyError> {
        Ok(self.machine.files(root)?)
    }

    /// A session with a server: an idle one, or a new one.
    pub(super) async fn session(&self, server: &Server) -> Result<Session, OpenError> {
        let found = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let place = idle.iter().position(|one| one.server() == server);
            place.map(|place| idle.swap_remove(place))
        };
        match found {
            Some(session) => Ok(session),
            None => self.servers.open(server).await,
        }
    }

    /// Gives a session back. One that cannot be used again is closed.
    pub(super) fn give_back(&self, session: Session) {
        if session.is_usable() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(session);
        }
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

    /// The settings of transfers with these servers, the destination last. `receives`: this machine is the destination.
    pub(super) fn settings(&self, servers: &[&Session], receives: bool) -> TransferSettings {
        let data = &self.arguments.data;
        let have_blocks = servers.iter().all(|one| one.has(SimpleFeature::Parallel));
        let mode = match (data.mode, data.parallel) {
            (ModeArgument::Stream, _) => TransferMode::Stream,
            (ModeArgument::Extended, _) | (ModeArgument::Auto, 2..) => TransferMode::Extended,
            // Data channels serve several files, and a restart knows what has arrived. But the receiver listens (GFD.20 3.4), and
            // this machine is often behind address translation.
            (ModeArgument::Auto, _) if have_blocks && !receives => TransferMode::Extended,
            (ModeArgument::Auto, _) => TransferMode::Stream,
        };
        TransferSettings {
            mode,
            parallelism: data.parallel,
            protection: data.protection(DataProtection::default_of(servers)),
            stack: data.stack.clone(),
        }
    }
}
