//! Appends whole lines, and says in the file how many could not be written.
//!
//! On a full disk a write may take a part of a line. The next line must not continue it: the two would be one record, and a client
//! could choose the end of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// The form of the line that stands where lines were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// None: the form of all lines is fixed.
    Unmarked,
    /// As a line of the log.
    Text,
    /// As a JSON object with the number as `lost`.
    Json,
}

impl Gaps {
    fn mark(self, lost: u64) -> Option<String> {
        /// The target of the event, for the filters of those who read the log.
        const TARGET: &str = "gridhaul_server::telemetry";

        let mut time = String::new();
        // Writing to a String cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        match self {
            Self::Unmarked => None,
            Self::Text => Some(format!(
                "{time} ERROR {TARGET}: lines were lost lost={lost}\n"
            )),
            Self::Json => Some(format!(
                "{{\"timestamp\":\"{time}\",\"level\":\"ERROR\",\"message\":\"lines were lost\",\"lost\":{lost},\
                 \"target\":\"{TARGET}\"}}\n"
            )),
        }
    }
}

/// A file to which lines are appended by one writer at a time.
#[derive(Debug)]
pub(crate) struct WholeLines<W = File> {
    file: W,
    gaps: Gaps,
    /// The last write took a part of a line.
    is_torn: bool,
    /// Lines without a mark yet.
    lost: u64,
}

impl<W: Write> WholeLines<W> {
    pub(super) fn new(file: W, gaps: Gaps) -> Self {
        Self {
            file,
            gaps,
            is_torn: false,
            lost: 0,
        }
    }

    /// Appends lines that end with a line feed. After a failure the next line that can be written has a mark before it.
    ///
    /// # Errors
    ///
    /// When they cannot be written, or only a part of them.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.mark_gap().and_then(|()| self.write(lines));
        if written.is_err() {
            self.lost = self.lost.saturating_add(1);
        }
        written
    }

    /// Marks that lines were lost on the way to this process: now, or when the file can be written again.
    pub(super) fn add_lost(&mut self, lines: u64) {
        self.lost = self.lost.saturating_add(lines);
        // The next line tries it again.
        let _ = self.mark_gap();
    }

    /// Continues in another file. It may be the same one, opened again, so what has to be written first stays.
    pub(super) fn continue_in(&mut self, file: W) {
        self.file = file;
    }

    fn mark_gap(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.write(b"\n")?;
        }
        if self.lost > 0 {
            if let Some(mark) = self.gaps.mark(self.lost) {
                self.write(mark.as_bytes())?;
            }
            self.lost = 0;
        }
        Ok(())
    }

    fn write(&mut self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    let (written, left) = rest.split_at(bytes);
                    self.is_torn = !written.ends_with(b"\n");
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl WholeLines {
    /// The same file, for the log process.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            ..*self
        })
    }
}

impl AsFd for WholeLines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for some more bytes.
    #[derive(Default)]
    struct Disk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.content.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn content(lines: &WholeLines<Disk>) -> Vec<String> {
        let content = String::from_utf8(lines.file.content.clone()).expect("UTF-8");
        content.lines().map(str::to_owned).collect()
    }

    #[test]
    fn no_line_continues_one_that_a_full_disk_has_cut() {
        for room in 1..4 {
            let mut lines = WholeLines::new(Disk::default(), Gaps::Unmarked);
            lines.file.room = room;
            lines.append(b"one\n").expect_err("no room");
            lines.append(b"two\n").expect_err("no room");
            lines.file.room = 100;
            lines.append(b"three\n").expect("written");
            lines.append(b"four\n").expect("written");
            assert_eq!(content(&lines), [&"one"[..room], "three", "four"]);
        }
    }

    #[test]
    fn lost_lines_leave_a_mark_when_there_is_room_again() {
        let mut lines = WholeLines::new(Disk::default(), Gaps::Json);
        for _ in 0..3 {
            lines.append(b"{}\n").expect_err("no room");
        }
        lines.add_lost(4);
        // Too little for the mark.
        lines.file.room = 10;
        lines.append(b"{}\n").expect_err("no room");
        lines.file.room = 1000;
        lines.append(b"{}\n").expect("written");
        lines.append(b"{}\n").expect("written");
        let content = content(&lines);
        assert_eq!(content.len(), 4, "{content:?}");
        let mark: serde_json::Value = serde_json::from_str(&content[1]).expect("JSON");
        assert_eq!(
            (&mark["lost"], &mark["level"]),
            (&8.into(), &"ERROR".into())
        );
        let mut lines = WholeLines::new(Disk::default(), Gaps::Text);
        lines.file.room = 1000;
        lines.add_lost(2);
        let content = String::from_utf8(lines.file.content).expect("UTF-8");
        assert!(content.ends_with("Z ERROR gridhaul_server::telemetry: lines were lost lost=2\n"));
    }
}
