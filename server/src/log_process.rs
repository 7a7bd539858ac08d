//! The process that writes the log files.
//!
//! Other processes must not have a log file open, because they could cut or rewrite it: not those that talk to clients, and
//! not the login process except when it opens the logs again after a rotation. Each has a socket to this process
//! ([`crate::telemetry::LogWriter`]). It is forked after the logs were opened and before all processes that log, runs as the
//! server's account, and ends when the others have ended.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gridhaul_accounts::process::{close_all_but, fork, ignore_signals, set_name};
use gridhaul_accounts::socket::pair;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::privileges;
use crate::sandbox;
use crate::service::Launcher;
use crate::telemetry::{
    Counter, LogEnds, LogFile, LogKeeper, LogSource, LogWriter, Logging, OpenLogs, SharedMemory,
    TransferLog, WholeLines,
};
use crate::wire::{NotReady, tell_ready, wait_until_ready};

/// An error that keeps the log process from starting.
#[derive(Debug, thiserror::Error)]
pub enum LogProcessError {
    /// The OS refuses a socket or a process.
    #[error("cannot start the process that writes the logs: {0}")]
    Start(#[from] io::Error),
    /// The process cannot give up its rights.
    #[error("the process that writes the logs: {0}")]
    Confinement(String),
}

impl From<NotReady> for LogProcessError {
    fn from(error: NotReady) -> Self {
        match error {
            NotReady::Ended(error) => Self::Start(error),
            NotReady::Reason(reason) => Self::Confinement(reason),
        }
    }
}

/// The ends of the log process's sockets, until each process has its own. Without log files there are none.
#[derive(Debug, Default)]
pub(crate) struct LogSockets {
    /// Shared by everything in this process that logs.
    writer: Option<Arc<LogWriter>>,
    login: Option<LogEnds>,
    front: Option<LogEnds>,
}

/// The log files that were opened at the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedLogs<'a> {
    pub(crate) logging: &'a Logging,
    pub(crate) transfers: Option<&'a TransferLog>,
}

impl OpenedLogs<'_> {
    fn duplicates(&self) -> io::Result<Vec<(LogFile, WholeLines)>> {
        let mut files = self.logging.duplicates()?;
        if let Some(transfers) = self.transfers {
            files.push((LogFile::Transfers, transfers.duplicate()?));
        }
        Ok(files)
    }

    /// Opens all logs again, after a rotation.
    ///
    /// # Errors
    ///
    /// The reason, with the path. A log that cannot be opened stays in use.
    pub(crate) fn reopen(&self, opener: &dyn OpenLogs) -> Result<(), String> {
        let logging = self.logging.reopen(opener);
        let transfers = self.transfers.map_or(Ok(()), |log| log.reopen(opener));
        logging.map_err(|error| error.to_string())?;
        transfers.map_err(|error| error.to_string())
    }
}

/// Starts the process, if there are log files, and sends all lines of this process to it from now on. Must be called while this
/// process has one thread.
///
/// # Errors
///
/// When there is a second thread already, or no process can be started.
pub(crate) fn start(
    user: &str,
    logs: OpenedLogs<'_>,
    launcher: &Launcher,
) -> Result<(LogSockets, Option<Pid>), LogProcessError> {
    let files = logs.duplicates()?;
    if files.is_empty() {
        return Ok((LogSockets::default(), None));
    }
    let lost = SharedMemory::new()?;
    let (tell, told) = pair().map_err(io::Error::from)?;
    let mut sources = Vec::new();
    let mut end = |may_replace: bool| {
        let (here, there) = LogEnds::pair()?;
        sources.extend([there.lines, there.records].map(|socket| LogSource {
            socket,
            may_replace,
        }));
        Ok::<_, io::Error>(here)
    };
    // After a rotation the login process has the logs opened by the monitor.
    let (serving, login, front) = (end(false)?, end(true)?, end(false)?);
    let mut kept = Some((files, sources));
    let pid = fork(|| {
        launcher.disconnect();
        if let Some((files, sources)) = kept.take() {
            run(user, files, sources, lost, &tell);
        }
    })?;
    // The closure ran in the child only, so here all descriptors are still there.
    drop((kept, tell));
    wait_until_ready(&told)?;
    let writer = Arc::new(LogWriter::new(serving)?);
    logs.logging.write_through(&writer, lost);
    if let Some(transfers) = logs.transfers {
        transfers.write_through(&writer);
    }
    let sockets = LogSockets {
        writer: Some(writer),
        login: Some(login),
        front: Some(front),
    };
    Ok((sockets, Some(pid)))
}

impl LogSockets {
    /// Continues as the login process, after the fork.
    ///
    /// # Errors
    ///
    /// When the socket cannot be used.
    pub(crate) fn become_login(&mut self) -> io::Result<()> {
        let own = self.login.take();
        self.become_process(own)
    }

    /// Continues as the front process, after the fork.
    ///
    /// # Errors
    ///
    /// As for [`LogSockets::become_login`].
    pub(crate) fn become_front(&mut self) -> io::Result<()> {
        let own = self.front.take();
        self.become_process(own)
    }

    fn become_process(&mut self, own: Option<LogEnds>) -> io::Result<()> {
        (self.login, self.front) = (None, None);
        match (&self.writer, own) {
            (Some(writer), Some(own)) => writer.use_sockets(own),
            _ => Ok(()),
        }
    }

    /// Closes the end of the login process, which has it now.
    pub(crate) fn has_login(&mut self) {
        self.login = None;
    }

    /// Closes the end of the front process, which has it now.
    pub(crate) fn has_front(&mut self) {
        self.front = None;
    }

    /// Waits, for a bounded time, until the lines of this process are in the files.
    pub(crate) fn flush(&self) {
        if let Some(writer) = &self.writer {
            // A log process that does not answer does not keep the server from its end.
            let _ = writer.flush();
        }
    }
}

/// The main function of the process. It sends an empty message when it is ready, or the reason why it is not.
fn run(
    user: &str,
    files: Vec<(LogFile, WholeLines)>,
    sources: Vec<LogSource>,
    lost: SharedMemory<Counter>,
    tell: &OwnedFd,
) {
    ignore_signals();
    set_name("gh-logs", "log process");
    let confined = alone(&files, &sources, tell)
        .map_err(|error| error.to_string())
        .and_then(|()| privileges::drop_root(user).map_err(|error| error.to_string()))
        .and_then(|_| sandbox::confine_logs().map_err(|error| error.to_string()));
    if let Err(reason) = confined {
        tell_ready(tell, Some(&reason));
        return;
    }
    let keeper = LogKeeper::new(files, lost);
    if let Err(error) = keeper.run(sources, || tell_ready(tell, None)) {
        tell_ready(tell, Some(&error.to_string()));
    }
}

/// Closes the descriptors that the process has from its parent: only the login process may have a socket to the monitor.
fn alone(
    files: &[(LogFile, WholeLines)],
    sources: &[LogSource],
    tell: &OwnedFd,
) -> Result<(), Errno> {
    let files = files.iter().map(|(_, file)| file.as_fd());
    let sockets = sources.iter().map(|source| source.socket.as_fd());
    let kept: Vec<BorrowedFd<'_>> = files.chain(sockets).chain([tell.as_fd()]).collect();
    // SAFETY: this process ends in `run`, without using or dropping other values of its parent. It does not log.
    unsafe { close_all_but(&kept) }
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
