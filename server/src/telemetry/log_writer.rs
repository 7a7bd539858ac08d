//! The way of log lines to the process that writes them.
//!
//! A process that has a log file open can cut and rewrite it: `O_APPEND` can be cleared, and `ftruncate` and `fallocate` ignore
//! it. So the processes that talk to clients have no log file. They send each line as one message to the log process.
//!
//! A sender waits for a slow log process for a bounded time, and only once: from then on lines are lost, and counted, until
//! the log process reads again. Then the file says how many were lost. Audit records have a socket of their own, so that many lines
//! of the log leave them their place in the queue.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gridhaul_accounts::socket::pair;

use super::log_message::{Content, LONGEST, LogFile, number};
use super::log_way::Way;

/// The time that a sender of a record waits for the log process.
const WAIT: Duration = Duration::from_secs(2);

/// The same for a line of the log: in a burst the queue is full for moments.
const SHORT_WAIT: Duration = Duration::from_millis(100);

/// The end of a line that was cut.
const CUT: &[u8] = b" (cut)\n";

/// The ends of the sockets of a process: to send, or in the log process to receive.
#[derive(Debug)]
pub(crate) struct LogEnds {
    /// For lines of the log.
    pub(crate) lines: OwnedFd,
    /// For audit records and transfers.
    pub(crate) records: OwnedFd,
}

impl LogEnds {
    /// Connected ends: here, and there.
    ///
    /// # Errors
    ///
    /// When the limit of descriptors is reached.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (lines, there) = pair()?;
        let (records, records_there) = pair()?;
        let there = Self {
            lines: there,
            records: records_there,
        };
        Ok((Self { lines, records }, there))
    }
}

/// The connection of this process to the log process.
#[derive(Debug)]
pub(crate) struct LogWriter {
    lines: Way,
    records: Way,
    /// Lines that could not be sent, and of which the log process does not know yet.
    lost: [AtomicU64; LogFile::ALL.len()],
}

impl LogWriter {
    /// # Errors
    ///
    /// When the time limit cannot be set.
    pub(crate) fn new(ends: LogEnds) -> io::Result<Self> {
        Ok(Self {
            lines: Way::new(ends.lines, SHORT_WAIT)?,
            records: Way::new(ends.records, WAIT)?,
            lost: Default::default(),
        })
    }

    /// Continues with the sockets of this process, after a fork.
    ///
    /// # Errors
    ///
    /// As for [`LogWriter::new`].
    pub(crate) fn use_sockets(&self, ends: LogEnds) -> io::Result<()> {
        self.lines.use_socket(ends.lines)?;
        self.records.use_socket(ends.records)
    }

    /// Sends a line. A client must not be able to have a record lost by a long name.
    ///
    /// # Errors
    ///
    /// When the log process has ended or does not read: the line is lost.
    pub(super) fn append(&self, file: LogFile, line: &[u8]) -> io::Result<()> {
        let (line, cut) = match line.len() < LONGEST {
            true => (line, &b""[..]),
            false => (&line[..LONGEST - 1 - CUT.len()], CUT),
        };
        let told = self.tell_lost(file);
        let kind = [Content::Line(file).byte()];
        let sent = told.and_then(|()| self.way(file).line(&[&kind, line, cut]));
        if sent.is_err() {
            self.lost[file as usize].fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    /// Tells the log process how many lines were lost before.
    fn tell_lost(&self, file: LogFile) -> io::Result<()> {
        let lost = &self.lost[file as usize];
        let untold = lost.swap(0, Ordering::Relaxed);
        if untold == 0 {
            return Ok(());
        }
        let told = self.way(file).line(&[&number(Content::Lost(file), untold)]);
        if told.is_err() {
            lost.fetch_add(untold, Ordering::Relaxed);
        }
        told
    }

    /// Makes the log process continue a file in this one, and waits until it does. Only the login process's sockets may.
    ///
    /// # Errors
    ///
    /// When the log process has ended or does not answer in time.
    pub(super) fn replace(&self, file: LogFile, opened: &File) -> io::Result<()> {
        let kind = [Content::Replacement(file).byte()];
        self.way(file).pass(&kind, opened.as_fd())?;
        self.way(file).flush()
    }

    /// Waits, for a bounded time, until all lines that this process has sent are in the files.
    ///
    /// # Errors
    ///
    /// When the log process has ended or does not answer in time.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let told = LogFile::ALL.map(|file| self.tell_lost(file));
        self.records.flush()?;
        self.lines.flush()?;
        told.into_iter().collect()
    }

    /// All lines for a file go one way, so that they stay in order.
    fn way(&self, file: LogFile) -> &Way {
        match file {
            LogFile::Log => &self.lines,
            LogFile::Audit | LogFile::Transfers => &self.records,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use gridhaul_accounts::socket::{Received, receive};

    use super::super::log_keeper::{LogKeeper, LogSource};
    use super::super::shared_memory::SharedMemory;
    use super::super::whole_lines::{Gaps, WholeLines};
    use super::*;

    #[test]
    fn a_log_process_that_does_not_read_is_waited_for_once() {
        let (here, _there) = LogEnds::pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        let begun = Instant::now();
        let line = [b'x'; 200];
        let lost = (0..MANY).filter(|_| writer.append(LogFile::Audit, &line).is_err());
        assert!(lost.count() > 0);
        assert!(begun.elapsed() < 3 * WAIT, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_long_line_is_cut_and_not_lost() {
        let (here, there) = LogEnds::pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        let mut buffer = vec![0; LONGEST];
        for length in [LONGEST - 1, LONGEST, 3 * LONGEST] {
            let line = vec![b'x'; length];
            writer.append(LogFile::Audit, &line).expect("sent");
            let received = receive(&there.records, &mut buffer, &mut Vec::new()).expect("received");
            assert!(
                matches!(received, Received::Message(LONGEST)),
                "{received:?}"
            );
            assert_eq!(buffer.ends_with(CUT), length >= LONGEST);
        }
    }

    #[test]
    fn a_line_is_lost_when_the_log_process_has_ended() {
        let (here, there) = LogEnds::pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        drop(there);
        writer
            .append(LogFile::Log, b"x\n")
            .expect_err("nothing reads");
        writer.flush().expect_err("nothing answers");
    }

    /// More than any queue of a socket holds.
    const MANY: usize = 5000;

    /// A log process for an audit log and a log at these paths, which runs until the other ends are closed.
    fn keep(ends: LogEnds, [log, audit]: [&Path; 2]) {
        let open = |path: &Path, gaps| {
            let mut options = File::options();
            let file = options
                .append(true)
                .create(true)
                .open(path)
                .expect("opened");
            WholeLines::new(file, gaps)
        };
        let files = vec![
            (LogFile::Log, open(log, Gaps::Text)),
            (LogFile::Audit, open(audit, Gaps::Json)),
        ];
        let keeper = LogKeeper::new(files, SharedMemory::new().expect("memory"));
        let sources = [ends.lines, ends.records].map(|socket| LogSource {
            socket,
            may_replace: false,
        });
        keeper.run(sources.into(), || {}).expect("threads");
    }

    #[test]
    fn lost_lines_leave_a_mark_and_many_lines_leave_room_for_audit_records() {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = ["log", "audit"].map(|name| directory.path().join(name));
        let (here, there) = LogEnds::pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        let send = |file| {
            (0..MANY)
                .filter(|_| writer.append(file, b"{}\n").is_err())
                .count()
        };
        let lines_lost = send(LogFile::Log);
        assert!(lines_lost > 0);
        writer
            .append(LogFile::Audit, b"{}\n")
            .expect("there is room");
        let records_lost = send(LogFile::Audit);
        assert!(records_lost > 0);
        std::thread::scope(|scope| {
            scope.spawn(|| keep(there, [&paths[0], &paths[1]]));
            // An error, unless the log process has made room for the marks by now.
            let _ = writer.flush();
            writer.flush().expect("answered");
            drop(writer);
        });
        let [log, audit] = paths.map(|path| std::fs::read_to_string(path).expect("read"));
        let marked = log
            .lines()
            .last()
            .is_some_and(|line| line.ends_with(&format!("lost={lines_lost}")));
        assert!(marked, "{:?}", log.lines().last());
        let mark = audit.lines().last().expect("lines");
        assert!(
            mark.contains(&format!("\"lost\":{records_lost},")),
            "{mark}"
        );
    }

    /// The cost of a line: `cargo test --release -p gridhaul-server --lib cost_of_a_line -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_a_line() {
        const LINES: u32 = 200_000;

        let directory = tempfile::tempdir().expect("a directory");
        let paths = ["log", "audit", "direct"].map(|name| directory.path().join(name));
        let line = [[b'x'; 199].as_slice(), b"\n"].concat();
        let (here, there) = LogEnds::pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        std::thread::scope(|scope| {
            scope.spawn(|| keep(there, [&paths[0], &paths[1]]));
            let begun = Instant::now();
            for _ in 0..LINES {
                writer.append(LogFile::Audit, &line).expect("sent");
            }
            println!("to the log process: {:?} a line", begun.elapsed() / LINES);
            writer.flush().expect("answered");
            println!(
                "until it is in the file: {:?} a line",
                begun.elapsed() / LINES
            );
            drop(writer);
        });
        let mut options = File::options();
        let file = options
            .append(true)
            .create(true)
            .open(&paths[2])
            .expect("opened");
        let mut file = WholeLines::new(file, Gaps::Json);
        let begun = Instant::now();
        for _ in 0..LINES {
            file.append(&line).expect("written");
        }
        println!(
            "appended by the same process: {:?} a line",
            begun.elapsed() / LINES
        );
    }
}
