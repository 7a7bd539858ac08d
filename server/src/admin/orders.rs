//! Actions that concern the whole server. The loop that also serves signals carries them out.

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// An action, and where its result goes.
#[derive(Debug)]
pub(crate) struct Order {
    /// The administrator, for the log.
    pub(crate) by: String,
    pub(crate) action: ServerAction,
    pub(crate) done: oneshot::Sender<Done>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerAction {
    /// Accept no more connections. A second one ends the server.
    Drain,
    /// Read the configuration again.
    Reload,
    /// Have the new version of the program take over.
    Upgrade,
    /// Change the level of the log until the next reload.
    LogLevel(String),
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Done {
    Success,
    Draining(DrainReport),
    Reloaded(ReloadReport),
    /// The main process of the new version.
    Upgraded(u32),
    Failed(String),
}

/// How far a drain is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrainReport {
    /// When the server stopped accepting connections.
    pub(crate) draining_since: String,
    /// Sessions that are left.
    pub(crate) sessions: usize,
    /// The server ends now, because this is not the first order.
    pub(crate) is_ending: bool,
}

/// What a reload has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReloadReport {
    /// Keys with a new value in force.
    pub(crate) applied: Vec<String>,
    /// Keys with a new value that needs a restart.
    pub(crate) needs_restart: Vec<String>,
    /// What the files that decide logins have now, as the process that reads them reports it.
    pub(crate) files: Vec<String>,
    /// Sessions of users who are refused now, which are ended.
    pub(crate) sessions_ended: usize,
    pub(crate) errors: Vec<String>,
}
