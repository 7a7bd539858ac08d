//! The status of the server, collected when an administrator asks.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use super::nodes::list;
use crate::config::{Reload, Source};
use crate::shared::Shared;
use crate::status::{
    Counts, CredentialStatus, ErrorStatus, KeySource, KeyStatus, MOST_PROBLEMS, NodeStatus,
    ProcessStatus, ServerPhase, ServerStatus, Status, TakesEffect, utc,
};
use crate::telemetry::{PROBLEMS, log_lines_lost};
use crate::version::VERSION_NUMBER;

/// What does not change while the server runs.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) started: SystemTime,
    pub(crate) begun: Instant,
    pub(crate) user: String,
    pub(crate) listening: Vec<SocketAddr>,
    pub(crate) processes: Vec<ProcessStatus>,
}

/// The whole document.
pub(super) fn status(shared: &Shared, facts: &Facts, phase: ServerPhase) -> Status {
    Status {
        server: server(shared, facts, phase),
        counts: counts(shared),
        sessions: shared.live.sessions(),
        transfers: shared.live.transfers(),
        history: shared.journal.history.status(),
        refusals: shared.journal.refusals.list(),
        errors: errors(SystemTime::now()),
        credentials: credentials(shared, SystemTime::now()),
        rdma: shared.devices.get().cloned().unwrap_or_default(),
        configuration: configuration(shared),
        nodes: nodes(shared),
    }
}

fn nodes(shared: &Shared) -> Vec<NodeStatus> {
    let nodes = shared.data_nodes.as_ref();
    nodes.map_or_else(Vec::new, |nodes| list(&nodes.cluster))
}

/// The latest warnings and errors of the log, and what the log itself cannot say.
fn errors(now: SystemTime) -> Vec<ErrorStatus> {
    let lost = log_lines_lost();
    let unwritten = (lost > 0).then(|| ErrorStatus {
        time: utc(now),
        level: "ERROR".to_owned(),
        message: "a log line could not be written: free space on the disks of log-file, audit-log and transfer-log"
            .to_owned(),
        count: lost,
    });
    let told = PROBLEMS.list().into_iter();
    unwritten
        .into_iter()
        .chain(told)
        .take(MOST_PROBLEMS)
        .collect()
}

fn server(shared: &Shared, facts: &Facts, phase: ServerPhase) -> ServerStatus {
    ServerStatus {
        version: VERSION_NUMBER.to_owned(),
        pid: std::process::id(),
        host: shared.host.clone(),
        user: facts.user.clone(),
        started: utc(facts.started),
        uptime_seconds: facts.begun.elapsed().as_secs(),
        phase,
        listening: facts.listening.iter().map(ToString::to_string).collect(),
        log_level: shared.settings().config.log.level.clone(),
        processes: facts.processes.clone(),
    }
}

/// What ends, the soonest first.
fn credentials(shared: &Shared, now: SystemTime) -> Vec<CredentialStatus> {
    /// A trust directory may have more files than a page shows.
    const MOST: usize = 1000;
    const DAY: f64 = 24.0 * 3600.0;

    let mut entries = shared.inventory.entries();
    entries.sort_by_key(|entry| entry.expires);
    let credentials = entries
        .into_iter()
        .take(MOST)
        .map(|entry| CredentialStatus {
            kind: entry.kind.name().to_owned(),
            file: entry
                .file
                .as_ref()
                .map_or_else(String::new, |file| file.display().to_string()),
            expires: utc(entry.expires),
            days_left: match entry.expires.duration_since(now) {
                Ok(left) => left.as_secs_f64() / DAY,
                Err(past) => -past.duration().as_secs_f64() / DAY,
            },
            state: entry.state(now),
            name: entry.name,
        });
    credentials.collect()
}

fn configuration(shared: &Shared) -> Vec<KeyStatus> {
    let config = shared.settings().config;
    let keys = config.keys.all().iter();
    keys.map(|key| KeyStatus {
        key: key.key.clone(),
        value: key.value.clone(),
        source: match key.source {
            Source::Default => KeySource::Default,
            Source::File => KeySource::File,
            Source::Flag => KeySource::Flag,
        },
        takes_effect: match key.reload {
            Reload::Live => TakesEffect::Reload,
            Reload::Restart => TakesEffect::Restart,
        },
    })
    .collect()
}

fn counts(shared: &Shared) -> Counts {
    let now = shared.snapshot();
    Counts {
        sessions: now.sessions,
        sessions_before_login: now.sessions_before_login,
        transfers_running: now.transfers_running,
        transfers_waiting: now.transfers_waiting,
        brokers: now.brokers,
        // Of data nodes they are numbers of other machines.
        workers_busy: now
            .node
            .senders
            .busy
            .saturating_add(now.node.receivers.busy),
        workers_limit: now
            .node
            .senders
            .limit
            .saturating_add(now.node.receivers.limit),
        buffer_bytes: now.node.buffer_bytes,
        buffer_bytes_limit: now.node.buffer_bytes_limit,
    }
}
