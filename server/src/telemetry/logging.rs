//! The log: events of the server and its crates, as text, as JSON or in the journal; and the audit log, a selection of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry};

use super::append_file::{AppendFile, OpenLogs};
use super::escape::harmless;
use super::journald::{self, Journal};
use super::json_lines::JsonLines;
use super::log_message::LogFile;
use super::log_writer::LogWriter;
use super::recent::{PROBLEMS, collect};
use super::shared_memory::{Counter, SharedMemory};
use super::whole_lines::{Gaps, WholeLines};
use crate::config::{Log, LogFormat};

/// Lines that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Those of all processes with a log file, where another process writes them.
static LOST_BY_ALL: OnceLock<SharedMemory<Counter>> = OnceLock::new();

/// The number of log lines that could not be written: of this process, and of all those that write through the log process.
pub(crate) fn log_lines_lost() -> u64 {
    let all = LOST_BY_ALL.get().map_or(0, |all| all.value());
    LOST.load(Ordering::Relaxed).saturating_add(all)
}

fn count_lost() {
    match LOST_BY_ALL.get() {
        Some(all) => all.add_one(),
        None => {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The target of audit records: logins, refusals, transfers, and changes of names and attributes.
pub(super) const AUDIT: &str = "audit";

/// The running log.
#[derive(Debug)]
pub(crate) struct Logging {
    file: Option<Arc<AppendFile>>,
    audit: Option<Arc<AppendFile>>,
    filter: Rules,
}

/// A log that cannot be written, or rules that cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The file cannot be opened.
    #[error("the log file {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// The journal of systemd is configured, and not there.
    #[error("log-format 'journald': the journal's socket {}: {error}", path.display())]
    Journal {
        /// The socket.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// The journal has no file.
    #[error("log-format 'journald' and log-file exclude each other: leave one of them out")]
    JournalAndFile,
    /// The level is not valid.
    #[error("log-level '{level}': {error}")]
    Level {
        /// The configured level.
        level: String,
        /// The reason.
        error: ParseError,
    },
    /// The process has a log already.
    #[error(transparent)]
    Running(#[from] TryInitError),
    /// The log cannot be changed any more.
    #[error("log-level: {0}")]
    Reload(#[from] reload::Error),
}

impl Logging {
    /// Starts the log of this process. `opener` opens its files.
    ///
    /// # Errors
    ///
    /// When a file or the journal cannot be opened, or the rules cannot be parsed.
    pub(crate) fn start(log: &Log, opener: &dyn OpenLogs) -> Result<Self, LoggingError> {
        let open = |path: &Option<PathBuf>, gaps| {
            let path = path.as_deref();
            path.map(|path| open(path, opener, gaps)).transpose()
        };
        let gaps = match log.format {
            LogFormat::Json => Gaps::Json,
            LogFormat::Auto | LogFormat::Text | LogFormat::Journald => Gaps::Text,
        };
        let (file, audit) = (open(&log.file, gaps)?, open(&log.audit, Gaps::Json)?);
        let (layers, handle) = layers(log, file.clone(), audit.clone())?;
        tracing_subscriber::registry().with(layers).try_init()?;
        Ok(Self {
            file,
            audit,
            filter: handle,
        })
    }

    /// Checks whether the log could be written to the journal, if that is configured.
    ///
    /// # Errors
    ///
    /// The reason if not.
    pub(crate) fn check_journal(log: &Log) -> Result<(), LoggingError> {
        match log.format {
            LogFormat::Journald => journal(log.file.is_some()).map(drop),
            LogFormat::Auto | LogFormat::Text | LogFormat::Json => Ok(()),
        }
    }

    /// Opens the files again.
    ///
    /// # Errors
    ///
    /// When one of them cannot be opened: it stays in use, and the other one is opened.
    pub(crate) fn reopen(&self, opener: &dyn OpenLogs) -> Result<(), LoggingError> {
        let reopen = |file: &Option<Arc<AppendFile>>| match file {
            Some(file) => file.reopen(opener).map_err(|error| LoggingError::File {
                path: file.path().to_owned(),
                error,
            }),
            None => Ok(()),
        };
        let (log_file, audit) = (reopen(&self.file), reopen(&self.audit));
        log_file.and(audit)
    }

    /// Applies other rules.
    ///
    /// # Errors
    ///
    /// When they cannot be parsed or applied.
    pub(crate) fn set_level(&self, level: &str) -> Result<(), LoggingError> {
        Ok(self.filter.reload(rules(level)?)?)
    }

    /// Sends lines for files to the log process from now on, which counts those that it cannot write in `lost`.
    pub(crate) fn write_through(&self, writer: &Arc<LogWriter>, lost: SharedMemory<Counter>) {
        for (file, append) in self.files() {
            append.write_through(writer, file);
        }
        // A second log of this process does not start.
        let _ = LOST_BY_ALL.set(lost);
    }

    /// Duplicates of the files, for the log process.
    ///
    /// # Errors
    ///
    /// When the limit of descriptors is reached.
    pub(crate) fn duplicates(&self) -> io::Result<Vec<(LogFile, WholeLines)>> {
        let files = self.files();
        let opened = files.map(|(file, append)| Ok((file, append.duplicate()?)));
        opened.collect()
    }

    fn files(&self) -> impl Iterator<Item = (LogFile, &AppendFile)> {
        let log = self.file.as_deref().map(|file| (LogFile::Log, file));
        let audit = self.audit.as_deref().map(|file| (LogFile::Audit, file));
        log.into_iter().chain(audit)
    }
}

type Lines = Box<dyn Layer<Registry> + Send + Sync>;
type Rules = reload::Handle<EnvFilter, Registry>;

/// Everything that takes events, and the rules for the log.
fn layers(
    log: &Log,
    file: Option<Arc<AppendFile>>,
    audit: Option<Arc<AppendFile>>,
) -> Result<(Vec<Lines>, Rules), LoggingError> {
    let (filter, handle) = reload::Layer::new(rules(&log.level)?);
    let lines = lines(log.format, file)?.with_filter(filter).boxed();
    // Not filtered by the level: an audit log has all records.
    let records = audit.map(|file| {
        let layer = tracing_subscriber::fmt::layer().with_ansi(false);
        let layer = layer
            .event_format(JsonLines)
            .with_writer(Output(Some(file)));
        // Without the hint, every event of every level would be made for this filter.
        let is_record =
            filter_fn(|metadata| metadata.target() == AUDIT).with_max_level_hint(LevelFilter::INFO);
        layer.with_filter(is_record).boxed()
    });
    let recent = collect(&PROBLEMS).boxed();
    Ok(([lines, recent].into_iter().chain(records).collect(), handle))
}

/// The connection to the journal that is configured.
fn journal(has_file: bool) -> Result<Journal, LoggingError> {
    if has_file {
        return Err(LoggingError::JournalAndFile);
    }
    Journal::connect().map_err(|(path, error)| LoggingError::Journal { path, error })
}

/// The layer that writes all lines.
fn lines(format: LogFormat, file: Option<Arc<AppendFile>>) -> Result<Lines, LoggingError> {
    let is_journal = file.is_none() && journald::is_standard_error();
    match format {
        LogFormat::Journald => return Ok(journal(file.is_some())?.boxed()),
        LogFormat::Auto if is_journal => {
            // Without its socket there are lines with priorities.
            if let Ok(journal) = Journal::connect() {
                return Ok(journal.boxed());
            }
        }
        LogFormat::Auto | LogFormat::Text | LogFormat::Json => {}
    }
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(Output(file));
    let text = tracing_subscriber::fmt::format().with_ansi(false);
    Ok(match (format, is_journal) {
        (LogFormat::Json, true) => layer.event_format(Prioritized(JsonLines)).boxed(),
        (LogFormat::Json, false) => layer.event_format(JsonLines).boxed(),
        // The journal has a time of its own.
        (_, true) => layer.event_format(Prioritized(text.without_time())).boxed(),
        (_, false) => layer.event_format(text).boxed(),
    })
}

/// Lines with the priority in front (sd-daemon(3)), for a standard error that leads to the journal.
struct Prioritized<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        let priority = journald::priority(*event.metadata().level());
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}

fn open(path: &Path, opener: &dyn OpenLogs, gaps: Gaps) -> Result<Arc<AppendFile>, LoggingError> {
    let file = AppendFile::open(path, opener, gaps).map_err(|error| LoggingError::File {
        path: path.to_owned(),
        error,
    })?;
    Ok(Arc::new(file))
}

fn rules(level: &str) -> Result<EnvFilter, LoggingError> {
    EnvFilter::builder()
        .parse(level)
        .map_err(|error| LoggingError::Level {
            level: level.to_owned(),
            error,
        })
}

/// The destination of log lines: a file, or standard error.
struct Output(Option<Arc<AppendFile>>);

impl<'a> MakeWriter<'a> for Output {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter(self.0.as_deref())
    }
}

/// Writes one line, which the subscriber passes as a whole. All log lines pass through here, so no field can add a line or
/// control a terminal.
struct LineWriter<'a>(Option<&'a AppendFile>);

impl io::Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line {
            [text @ .., b'\n'] => (text, b"\n".as_slice()),
            text => (text, b"".as_slice()),
        };
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~');
        let shown;
        // Most lines need no escapes.
        let harmless = if text.iter().all(is_plain) {
            line
        } else {
            let text = harmless(&String::from_utf8_lossy(text)).into_owned();
            shown = [text.as_bytes(), end].concat();
            &shown
        };
        let written = match self.0 {
            Some(file) => file.append(harmless),
            None => io::stderr().lock().write_all(harmless),
        };
        if written.is_err() {
            count_lost();
        }
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harmful::is_harmful;
    use crate::telemetry::OwnRights;

    #[test]
    fn events_that_no_log_takes_are_not_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let audit = open(&directory.path().join("audit"), &OwnRights, Gaps::Text).expect("opened");
        let log = Log {
            file: None,
            format: LogFormat::Text,
            level: "info".to_owned(),
            audit: None,
        };
        let (layers, _rules) = layers(&log, None, Some(audit)).expect("layers");
        let subscriber = tracing_subscriber::registry().with(layers);
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::enabled!(tracing::Level::INFO));
            assert!(!tracing::enabled!(tracing::Level::DEBUG));
        });
    }

    #[test]
    fn nothing_that_is_logged_makes_another_line_or_moves_a_terminal() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let file = open(&path, &OwnRights, Gaps::Text).expect("opened");
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(Output(Some(file)));
        let subscriber = tracing_subscriber::registry().with(lines);
        let hostile = "a\n2026-11-23T00:00:00Z INFO forged\r\u{1b}[2J\u{9b}1m\u{2028}\u{202e}b";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(quoted = hostile, shown = %hostile, debugged = ?hostile, "{hostile}");
            tracing::info!(name = "ünï-漢字", "second");
        });
        let log = std::fs::read_to_string(path).expect("read");
        assert_eq!(log.lines().count(), 2, "{log}");
        let is_harmless = |c: char| c == '\n' || !is_harmful(c);
        assert!(log.chars().all(is_harmless), "{log:?}");
        assert!(
            log.contains("shown=a\\u000a2026")
                && log.contains("\\u2028\\u202eb")
                && log.contains("ünï-漢字"),
            "{log}"
        );
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let full = open(Path::new("/dev/full"), &OwnRights, Gaps::Text).expect("opened");
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .log_internal_errors(false)
            .with_writer(Output(Some(full)));
        let subscriber = tracing_subscriber::registry().with(lines);
        let before = log_lines_lost();
        tracing::subscriber::with_default(subscriber, || tracing::info!("lost"));
        assert_eq!(log_lines_lost(), before + 1);
    }

    #[test]
    fn levels_and_rules_are_understood() {
        for level in [
            "error",
            "INFO",
            "debug",
            "info,gridhaul_server=debug",
            "off",
        ] {
            assert!(rules(level).is_ok(), "{level}");
        }
        let error = rules("gridhaul_server=loud")
            .expect_err("no level")
            .to_string();
        assert!(
            error.contains("log-level 'gridhaul_server=loud'"),
            "{error}"
        );
    }
}
