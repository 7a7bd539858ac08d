//! The journal of systemd: log lines with their fields, over the journal's own protocol.
//!
//! An entry is a datagram of fields. The socket is connected when the log starts, before the process is confined: later it
//! could not be opened. The crate `tracing-journald` names the socket in each message, which a confined process may not do.
//!
//! Protocol: systemd.io/JOURNAL_NATIVE_PROTOCOL.

use std::error::Error;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::FormatFields as _;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;

use super::escape::harmless;
use super::list::List;

/// The socket of the journal, unless the variable [`SOCKET_VARIABLE`] names another one.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Names another socket, for tests.
const SOCKET_VARIABLE: &str = "GRIDHAUL_JOURNAL_SOCKET";

/// The device and inode of standard error, if it leads to the journal (systemd.exec(5)).
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";

/// Before the names of fields, so that none is one of the journal's own.
const PREFIX: &str = "GRIDHAUL_";

/// A text is cut off behind this many bytes, so that an entry fits into a datagram.
const LONGEST_TEXT: usize = 8 * 1024;

/// An entry that the journal does not take in this time goes to standard error.
const SEND: Duration = Duration::from_secs(1);

/// The connection to the journal.
#[derive(Debug)]
pub(super) struct Journal(UnixDatagram);

/// Whether standard error leads to the journal.
pub(super) fn is_standard_error() -> bool {
    let stream = std::env::var(STREAM_VARIABLE).ok();
    let Ok(found) = rustix::fs::fstat(io::stderr()) else {
        return false;
    };
    stream.is_some_and(|stream| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

/// The priority of syslog(3) for a level.
pub(super) fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl Journal {
    /// Connects to the journal of this machine.
    ///
    /// # Errors
    ///
    /// When there is none, with the path of its socket.
    pub(super) fn connect() -> Result<Self, (PathBuf, io::Error)> {
        let socket = std::env::var_os(SOCKET_VARIABLE);
        let socket = socket.map_or_else(|| PathBuf::from(SOCKET), PathBuf::from);
        Self::to(&socket).map_err(|error| (socket, error))
    }

    fn to(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(SEND))?;
        Ok(Self(socket))
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut text = String::new();
        let fields = DefaultFields::new();
        if fields.format_fields(Writer::new(&mut text), event).is_err() {
            return;
        }
        let priority = priority(*event.metadata().level());
        let mut entry = Entry(Vec::with_capacity(1024));
        let text = harmless(&text);
        entry.put("MESSAGE", &text);
        entry.put("PRIORITY", &priority.to_string());
        entry.put("SYSLOG_IDENTIFIER", "gridhaul-server");
        entry.put("TARGET", event.metadata().target());
        event.record(&mut entry);
        if let Err(error) = self.0.send(&entry.0) {
            // Not silently: standard error leads to the same place, by another way.
            let line = format!("<{priority}>{text} (not in the journal: {error})\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

/// The fields of an entry.
struct Entry(Vec<u8>);

impl Entry {
    fn put(&mut self, name: &str, text: &str) {
        let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
        self.0.extend(name.as_bytes());
        if text.contains('\n') {
            self.0.push(b'\n');
            self.0.extend((text.len() as u64).to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend(text.as_bytes());
        self.0.push(b'\n');
    }

    /// The names of fields are constants of the program; the journal takes upper-case letters, digits and underscores.
    fn put_field(&mut self, field: &Field, text: &str) {
        // It is the entry's text already.
        if field.name() == "message" {
            return;
        }
        let name = field.name().to_ascii_uppercase();
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        self.put(&format!("{PREFIX}{name}"), text);
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_field(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        match List::in_value(value) {
            // A field may occur several times.
            Some(list) => list.iter().for_each(|item| self.put_field(field, item)),
            None => self.put_field(field, &value.to_string()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_field(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn an_entry_has_the_text_and_each_field() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let receiver = UnixDatagram::bind(&path).expect("bound");
        let journal = Journal::to(&path).expect("connected");
        let subscriber = tracing_subscriber::registry().with(journal);
        tracing::subscriber::with_default(subscriber, || {
            let peers = List::of(["192.0.2.7", "192.0.2.8"]);
            tracing::warn!(
                target: "audit",
                session = 7_u64,
                path = "a\nPRIORITY=0",
                peers = peers.as_ref().map(List::value),
                "name\n{}", "changed"
            );
        });
        let mut entry = vec![0; 4096];
        let length = receiver.recv(&mut entry).expect("an entry");
        let entry = &entry[..length];
        let text = String::from_utf8_lossy(entry);
        for line in [
            "PRIORITY=4",
            "TARGET=audit",
            "GRIDHAUL_SESSION=7",
            "GRIDHAUL_PEERS=192.0.2.7",
            "GRIDHAUL_PEERS=192.0.2.8",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        // A text with line ends has its length in front, so that it cannot forge fields.
        let forged = [
            b"GRIDHAUL_PATH\n".as_slice(),
            &12_u64.to_le_bytes(),
            b"a\nPRIORITY=0\n",
        ]
        .concat();
        assert!(
            entry.windows(forged.len()).any(|window| window == forged),
            "{text}"
        );
    }
}
