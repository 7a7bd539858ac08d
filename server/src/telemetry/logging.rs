//! The log: events of the server and its crates, as text or JSON.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry};

use super::append_file::AppendFile;
use super::recent::{Collect, PROBLEMS};
use crate::config::{Log, LogFormat};

/// The running log.
#[derive(Debug)]
pub(crate) struct Logging {
    file: Option<Arc<AppendFile>>,
    filter: reload::Handle<EnvFilter, Registry>,
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
    /// Starts the log of this process.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or the rules cannot be parsed.
    pub(crate) fn start(log: &Log) -> Result<Self, LoggingError> {
        let file = match &log.file {
            Some(path) => Some(Arc::new(open(path)?)),
            None => None,
        };
        let (filter, handle) = reload::Layer::new(rules(&log.level)?);
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(Output(file.clone()));
        let lines = match log.format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .with(Collect(&PROBLEMS))
            .try_init()?;
        Ok(Self {
            file,
            filter: handle,
        })
    }

    /// Reopens the file, and applies the rules in `log`.
    ///
    /// # Errors
    ///
    /// When one of the two fails; the other takes effect.
    pub(crate) fn reload(&self, log: &Log) -> Result<(), LoggingError> {
        let reopened = match &self.file {
            Some(file) => file.reopen().map_err(|error| LoggingError::File {
                path: file.path().to_owned(),
                error,
            }),
            None => Ok(()),
        };
        self.filter.reload(rules(&log.level)?)?;
        reopened
    }

    /// Applies other rules.
    ///
    /// # Errors
    ///
    /// When they cannot be parsed or applied.
    pub(crate) fn set_level(&self, level: &str) -> Result<(), LoggingError> {
        Ok(self.filter.reload(rules(level)?)?)
    }

    /// Continues with a file that another process has opened, and applies the rules in `log`.
    ///
    /// # Errors
    ///
    /// When the rules cannot be applied.
    pub(crate) fn go_on(&self, log: &Log, file: Option<File>) -> Result<(), LoggingError> {
        if let (Some(current), Some(file)) = (&self.file, file) {
            current.replace(file);
        }
        self.filter.reload(rules(&log.level)?)?;
        Ok(())
    }

    /// The descriptor of the file, for another process.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        self.file.as_ref()?.descriptor()
    }
}

fn open(path: &std::path::Path) -> Result<AppendFile, LoggingError> {
    AppendFile::open(path).map_err(|error| LoggingError::File {
        path: path.to_owned(),
        error,
    })
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
        let harmless = harmless(line);
        match self.0 {
            Some(file) => file.append(&harmless)?,
            None => io::stderr().lock().write_all(&harmless)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line with control characters escaped as `\u000a`, except for the line end. Quoted fields have none; fields without
/// quotes, such as errors, may contain names from clients. In JSON the escape means the same character.
fn harmless(line: &[u8]) -> Cow<'_, [u8]> {
    let (text, end) = match line {
        [text @ .., b'\n'] => (text, "\n"),
        text => (text, ""),
    };
    let text = String::from_utf8_lossy(text);
    let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(is_control) {
        return Cow::Borrowed(line);
    }
    let mut harmless = String::with_capacity(line.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            // Writing to a String cannot fail.
            let _ = write!(harmless, "\\u{:04x}", u32::from(c));
        } else {
            harmless.push(c);
        }
    }
    Cow::Owned((harmless + end).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_logged_makes_another_line_or_moves_a_terminal() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let file = Arc::new(open(&path).expect("opened"));
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(Output(Some(file)));
        let subscriber = tracing_subscriber::registry().with(lines);
        let hostile = "a\n2026-11-23T00:00:00Z INFO forged\r\u{1b}[2J\u{9b}1m\u{2028}b";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(quoted = hostile, shown = %hostile, debugged = ?hostile, "{hostile}");
            tracing::info!(name = "ünï-漢字", "second");
        });
        let log = std::fs::read_to_string(path).expect("read");
        assert_eq!(log.lines().count(), 2, "{log}");
        let is_harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{2028}';
        assert!(log.chars().all(is_harmless), "{log:?}");
        assert!(
            log.contains("shown=a\\u000a2026") && log.contains("ünï-漢字"),
            "{log}"
        );
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
