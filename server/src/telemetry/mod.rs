//! Telemetry: the log, the transfer log and the metrics.
//!
//! The parts of the server publish an [`Event`] in the [`Journal`], which writes the log lines and counts. Present values,
//! such as running transfers, reach the page of metrics as a [`Snapshot`], so telemetry does not depend on the parts.

mod append_file;
mod escape;
mod event;
mod front_counts;
mod history;
mod journal;
mod journald;
mod json_lines;
mod lateness;
mod list;
mod log_keeper;
mod log_message;
mod log_way;
mod log_writer;
mod logging;
mod metrics;
mod notices;
mod recent;
mod repeats;
mod shared_memory;
mod transfer_log;
mod whole_lines;

pub(crate) use append_file::{OpenLogs, OwnRights};
pub(crate) use event::{Client, Event, FailureCause, FileOperation, Transfer};
pub(crate) use front_counts::FrontCounts;
pub(crate) use history::{Reading, Totals, keep_history};
pub(crate) use journal::Journal;
pub(crate) use lateness::watch_lateness;
pub(crate) use log_keeper::{LogKeeper, LogSource};
pub(crate) use log_message::LogFile;
pub(crate) use log_writer::{LogEnds, LogWriter};
pub use logging::LoggingError;
pub(crate) use logging::{Logging, log_lines_lost};
pub(crate) use metrics::{ExpirySummary, Snapshot};
pub(crate) use notices::Notices;
pub(crate) use recent::PROBLEMS;
pub(crate) use repeats::{Repeats, tell};
pub(crate) use shared_memory::{Counter, SharedMemory};
pub(crate) use transfer_log::TransferLog;
pub(crate) use whole_lines::WholeLines;
