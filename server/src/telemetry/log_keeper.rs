//! The work of the log process: it appends the lines of other processes to the log files.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use gridhaul_accounts::process::end;
use gridhaul_accounts::socket::{Received, receive, send};
use rustix::io::Errno;

use super::log_message::{Content, LONGEST, LogFile};
use super::repeats::tell;
use super::shared_memory::{Counter, SharedMemory};
use super::whole_lines::WholeLines;
use crate::locks::lock;

/// A socket to a process that sends lines.
#[derive(Debug)]
pub(crate) struct LogSource {
    pub(crate) socket: OwnedFd,
    /// Whether this process may have a file continued in another one.
    pub(crate) may_replace: bool,
}

/// The log files.
#[derive(Debug)]
pub(crate) struct LogKeeper {
    files: [Mutex<Option<WholeLines>>; LogFile::ALL.len()],
    lost: SharedMemory<Counter>,
}

impl LogKeeper {
    /// Counts lines that cannot be written in `lost`.
    pub(crate) fn new(opened: Vec<(LogFile, WholeLines)>, lost: SharedMemory<Counter>) -> Self {
        let files = [const { Mutex::new(None) }; LogFile::ALL.len()];
        for (file, opened) in opened {
            *lock(&files[file as usize]) = Some(opened);
        }
        Self { files, lost }
    }

    /// Writes until all other ends are closed. Each socket has a thread, so that no process can keep the lines of another one
    /// from the files: closing a descriptor that came with a message may block. `started` is called when all threads run. When a
    /// thread fails, this process ends: a server that goes on would have no records.
    ///
    /// # Errors
    ///
    /// When there is no thread.
    pub(crate) fn run(&self, sources: Vec<LogSource>, started: impl FnOnce()) -> io::Result<()> {
        thread::scope(|scope| {
            for source in sources {
                let write = move || unless_failed(|| self.follow(&source), || end(FAILED));
                thread::Builder::new()
                    .name("gh-logs".to_owned())
                    .spawn_scoped(scope, write)?;
            }
            started();
            Ok(())
        })
    }

    fn follow(&self, source: &LogSource) -> Result<(), Errno> {
        let mut buffer = vec![0; LONGEST];
        loop {
            let mut descriptors = Vec::new();
            match receive(&source.socket, &mut buffer, &mut descriptors) {
                Ok(Received::Message(bytes)) => {
                    self.process(source, &buffer[..bytes], descriptors);
                }
                // No process of the server sends such messages.
                Err(Errno::MSGSIZE) => self.lost.add_one(),
                // The other process has ended, perhaps without the answer to its last message.
                Ok(Received::End) | Err(Errno::CONNRESET) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn process(&self, source: &LogSource, message: &[u8], descriptors: Vec<OwnedFd>) {
        let Some((kind, line)) = message.split_first() else {
            return;
        };
        match Content::of(*kind) {
            Some(Content::Line(file)) => self.write(file, line),
            Some(Content::Replacement(file)) if source.may_replace => {
                if let Some(opened) = descriptors.into_iter().next()
                    && let Some(lines) = &mut *lock(&self.files[file as usize])
                {
                    lines.continue_in(opened.into());
                }
            }
            Some(Content::Flush) => {
                // The process waits for one answer at a time, so there is room for it.
                let _ = send(&source.socket, message, &[]);
            }
            Some(Content::Lost(file)) => {
                let lost = line.try_into().map_or(0, u64::from_le_bytes);
                if let Some(lines) = &mut *lock(&self.files[file as usize]) {
                    lines.add_lost(lost);
                }
            }
            Some(Content::Replacement(_)) | None => {}
        }
    }

    /// Each line ends, so that none of another process continues it.
    fn write(&self, file: LogFile, line: &[u8]) {
        let end: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
        let written = match &mut *lock(&self.files[file as usize]) {
            Some(opened) => opened.append(&[line, end].concat()),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        if let Err(error) = written {
            self.lost.add_one();
            // The log itself may be the file that cannot be written.
            if let Some(untold) = tell("log files") {
                gridhaul_accounts::process::tell(format_args!(
                    "a log cannot be written ({untold} more lines): {error}"
                ));
            }
        }
    }
}

/// The exit status after a failure.
const FAILED: i32 = 101;

/// Does the work, and calls `failed` when it panics or fails.
fn unless_failed(work: impl FnOnce() -> Result<(), Errno>, failed: impl FnOnce()) {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => {}
        Ok(Err(errno)) => {
            gridhaul_accounts::process::tell(format_args!(
                "the process that writes the logs ends: {errno}"
            ));
            failed();
        }
        // The panic message is on standard error.
        Err(_) => failed(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use super::super::log_writer::{LogEnds, LogWriter};
    use super::super::whole_lines::Gaps;
    use super::*;

    fn open(path: &Path) -> File {
        let mut options = File::options();
        options
            .append(true)
            .create(true)
            .open(path)
            .expect("opened")
    }

    fn keeper(path: &Path) -> LogKeeper {
        let lost = SharedMemory::new().expect("memory");
        LogKeeper::new(
            vec![(LogFile::Audit, WholeLines::new(open(path), Gaps::Json))],
            lost,
        )
    }

    #[test]
    fn only_the_process_that_may_continues_a_log_in_another_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        let keeper = keeper(&old);
        let pair = || LogEnds::pair().expect("sockets");
        let (intruder, login) = (pair(), pair());
        let sources = [(intruder.1, false), (login.1, true)].map(|(ends, may_replace)| {
            [ends.lines, ends.records].map(|socket| LogSource {
                socket,
                may_replace,
            })
        });
        let sources = sources.into_iter().flatten().collect();
        let intruder = LogWriter::new(intruder.0).expect("a writer");
        let login = LogWriter::new(login.0).expect("a writer");
        thread::scope(|scope| {
            scope.spawn(|| keeper.run(sources, || {}).expect("threads"));
            intruder.append(LogFile::Audit, b"no end").expect("sent");
            let foreign = open(&directory.path().join("foreign"));
            intruder.replace(LogFile::Audit, &foreign).expect("sent");
            login.append(LogFile::Audit, b"one\n").expect("sent");
            login.replace(LogFile::Audit, &open(&new)).expect("sent");
            login.append(LogFile::Audit, b"two\n").expect("sent");
            login.append(LogFile::Log, b"nowhere\n").expect("sent");
            login.flush().expect("answered");
            drop((intruder, login));
        });
        let read = |path: &Path| std::fs::read_to_string(path).expect("read");
        assert_eq!(read(&old), "no end\none\n");
        assert_eq!(read(&new), "two\n");
        assert_eq!(read(&directory.path().join("foreign")), "");
        assert_eq!(keeper.lost.value(), 1);
    }

    #[test]
    fn a_thread_that_fails_ends_the_process() {
        let ends = |work: fn() -> Result<(), Errno>| {
            let mut has_ended = false;
            unless_failed(work, || has_ended = true);
            has_ended
        };
        assert!(ends(|| panic!("on purpose")));
        assert!(ends(|| Err(Errno::NOMEM)));
        assert!(!ends(|| Ok(())));
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let keeper = keeper(Path::new("/dev/full"));
        keeper.write(LogFile::Audit, b"x\n");
        assert_eq!(keeper.lost.value(), 1);
    }
}
