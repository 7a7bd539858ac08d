//! The status of the server as the administration interface tells it: the types of `/status.json`.
//!
//! The page, the commands of the terminal and the tests read the same document. It has no links to the running server, so
//! the parts of the server fill it without knowing each other. Times are in UTC, as in `2026-11-24T22:00:00Z`.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The most samples of [`History`].
pub(crate) const MOST_SAMPLES: usize = 360;

/// The most entries of [`Status::refusals`], and of [`Status::errors`].
pub(crate) const MOST_PROBLEMS: usize = 200;

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) server: ServerStatus,
    pub(crate) counts: Counts,
    pub(crate) sessions: Vec<SessionStatus>,
    pub(crate) transfers: Vec<TransferStatus>,
    pub(crate) history: History,
    /// Newest first.
    pub(crate) refusals: Vec<RefusalStatus>,
    /// Newest first.
    pub(crate) errors: Vec<ErrorStatus>,
    pub(crate) credentials: Vec<CredentialStatus>,
    pub(crate) rdma: Vec<RdmaStatus>,
    pub(crate) configuration: Vec<KeyStatus>,
    /// Data nodes on other machines, in the order of the configuration.
    pub(crate) nodes: Vec<NodeStatus>,
}

/// The program and its processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) host: String,
    /// The account that serves.
    pub(crate) user: String,
    pub(crate) started: String,
    pub(crate) uptime_seconds: u64,
    pub(crate) phase: ServerPhase,
    pub(crate) listening: Vec<String>,
    pub(crate) log_level: String,
    pub(crate) processes: Vec<ProcessStatus>,
}

/// Whether the server accepts connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerPhase {
    #[default]
    Serving,
    Draining,
}

/// A process that belongs to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessStatus {
    pub(crate) role: String,
    pub(crate) pid: u32,
}

/// Numbers of what there is now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) sessions: usize,
    pub(crate) sessions_before_login: usize,
    pub(crate) transfers_running: usize,
    pub(crate) transfers_waiting: usize,
    pub(crate) brokers: usize,
    pub(crate) workers_busy: usize,
    pub(crate) workers_limit: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) buffer_bytes_limit: usize,
}

/// A client that the serving process serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionStatus {
    pub(crate) id: u64,
    pub(crate) peer: String,
    pub(crate) user: String,
    pub(crate) identity: Option<String>,
    pub(crate) attributes: Vec<String>,
    /// The mechanism, the version of TLS and the cipher; `None` in clear.
    pub(crate) protection: Option<String>,
    /// From `CLIENTINFO`.
    pub(crate) client: Option<String>,
    pub(crate) started: String,
    pub(crate) idle_seconds: u64,
    pub(crate) activity: Activity,
    pub(crate) read_only: bool,
}

/// What a session does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Activity {
    Idle,
    Command,
    Transfer,
}

/// A transfer that waits or runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TransferStatus {
    pub(crate) id: u64,
    pub(crate) session: u64,
    pub(crate) user: String,
    pub(crate) identity: Option<String>,
    pub(crate) peer: String,
    pub(crate) verb: String,
    pub(crate) direction: TransferDirection,
    pub(crate) path: String,
    pub(crate) state: TransferState,
    pub(crate) started: String,
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    /// The bytes that this transfer is to move, if that is known.
    pub(crate) total_bytes: Option<u64>,
    /// Over the last seconds.
    pub(crate) bytes_per_second: f64,
    pub(crate) remaining_seconds: Option<f64>,
    pub(crate) channels: usize,
    pub(crate) stripes: usize,
    pub(crate) stack: String,
    pub(crate) data_peers: Vec<String>,
    /// From `SITE TASKID`.
    pub(crate) task_id: Option<String>,
    pub(crate) restarts: u64,
    pub(crate) stalls: u64,
    pub(crate) details: Vec<DetailStatus>,
}

/// What a transfer moves, and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TransferDirection {
    Send,
    Receive,
    List,
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TransferState {
    Waiting,
    Running,
}

/// A value that a driver reports of the channels of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DetailStatus {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Samples at equal intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) interval_seconds: u64,
    /// Oldest first, at most [`MOST_SAMPLES`].
    pub(crate) samples: Vec<Sample>,
}

/// One interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) time: String,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) sessions: u64,
    pub(crate) transfers: u64,
    pub(crate) refusals: u64,
    pub(crate) errors: u64,
}

/// A client that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusalStatus {
    pub(crate) time: String,
    pub(crate) event: String,
    pub(crate) peer: String,
    pub(crate) user: Option<String>,
    pub(crate) identity: Option<String>,
    pub(crate) reason: String,
}

/// A line of the log at the level WARN or ERROR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ErrorStatus {
    pub(crate) time: String,
    pub(crate) level: String,
    pub(crate) message: String,
    /// How often it came.
    pub(crate) count: u64,
}

/// A certificate or a list that expires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CredentialStatus {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) expires: String,
    pub(crate) days_left: f64,
    pub(crate) state: CredentialState,
}

/// How soon a credential expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CredentialState {
    Ok,
    Soon,
    Expired,
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RdmaStatus {
    pub(crate) device: String,
    pub(crate) state: RdmaState,
    pub(crate) text: String,
}

/// Whether a device can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RdmaState {
    Ok,
    Unusable,
}

/// A key of the configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyStatus {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) source: KeySource,
    pub(crate) takes_effect: TakesEffect,
}

/// Where the value of a key is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeySource {
    Default,
    File,
    Flag,
}

/// When a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TakesEffect {
    Reload,
    Restart,
}

/// A data node, as this server sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    pub(crate) name: String,
    pub(crate) state: NodeState,
    pub(crate) since: String,
    /// Why it is not up.
    pub(crate) reason: Option<String>,
    /// An administrator of this server has drained it.
    pub(crate) drained: bool,
    /// Why it was down the last time.
    pub(crate) last_error: Option<NodeError>,
    /// How often it was lost since the start of this server.
    pub(crate) losses: u64,
    /// Where data channels listen.
    pub(crate) addresses: Vec<String>,
    /// Absent until it has answered.
    pub(crate) told: Option<NodeTold>,
    /// Sessions of this server whose files are opened there.
    pub(crate) sessions: usize,
    /// Transfers of this server, and data ports that wait for one.
    pub(crate) transfers: usize,
    /// Of transfers of this server there, over the last seconds.
    pub(crate) bytes_per_second: NodeTraffic,
    /// Since the start of this server.
    pub(crate) bytes: NodeTraffic,
    pub(crate) load: NodeLoadStatus,
}

/// Whether a data node gets sessions and transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeState {
    Up,
    Draining,
    /// Another name of a node that is used under that name.
    Same,
    Down,
}

/// Why a data node was down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeError {
    pub(crate) time: String,
    pub(crate) reason: String,
}

/// What a data node tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeTold {
    pub(crate) version: String,
    pub(crate) host: String,
    pub(crate) stack: String,
    pub(crate) drivers: Vec<String>,
    /// How far its clock is ahead of that of this machine.
    pub(crate) clock_ahead_seconds: f64,
}

/// Bytes of a data node, or bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeTraffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// The load of a data node, from all control servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeLoadStatus {
    pub(crate) sessions: u64,
    pub(crate) transfers: u64,
    pub(crate) senders_busy: usize,
    pub(crate) receivers_busy: usize,
    /// In each direction.
    pub(crate) workers_limit: usize,
    pub(crate) workers_awaited: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) buffer_bytes_limit: usize,
    pub(crate) ring_bytes: u64,
    pub(crate) ring_bytes_limit: u64,
    /// The network cards that have the addresses.
    pub(crate) cards: Vec<CardStatus>,
}

/// A network card of a data node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CardStatus {
    pub(crate) name: String,
    /// All traffic, not only that of transfers.
    pub(crate) bytes_per_second: NodeTraffic,
    /// In each direction, if it is known.
    pub(crate) link_bytes_per_second: Option<u64>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            interval_seconds: 10,
            samples: Vec::new(),
        }
    }
}

impl Status {
    /// Whether the lists that grow with time are as short as they are meant to be.
    pub(crate) fn is_bounded(&self) -> bool {
        self.history.samples.len() <= MOST_SAMPLES
            && self.refusals.len() <= MOST_PROBLEMS
            && self.errors.len() <= MOST_PROBLEMS
    }
}

/// A time as the document has it.
pub(crate) fn utc(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        // Beyond the year 9999.
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_in_utc_with_seconds() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_764_021_600_999);
        assert_eq!(utc(time), "2025-11-24T22:00:00Z");
    }
}
