//! What the running server says of itself, over its administration socket.

use crate::admin::path_of;
use crate::config::Config;
use crate::status::{ServerPhase, Status, TransferStatus};
use crate::terminal::{TerminalError, status_of};

use super::findings::Findings;

const ABOUT: &str = "server";

/// Asks the server, if it has a socket.
pub(super) fn check(report: &mut Findings, config: &Config) {
    let Some(path) = path_of(config) else {
        report.ok(
            ABOUT,
            "there is no administration socket (admin-socket), so the server is not asked what it does",
        );
        return;
    };
    match status_of(&path) {
        Ok(status) if is_the_server(&status, config) => tell(report, &status),
        Ok(status) => report.warning(
            ABOUT,
            format!(
                "the administration socket is that of another server, which listens at {}",
                status.server.listening.join(", ")
            ),
            "give the admin-socket of the server that is meant",
        ),
        Err(TerminalError::Connect { path, error }) => report.warning(
            ABOUT,
            format!(
                "the administration socket {} does not answer: {error}",
                path.display()
            ),
            "give the admin-socket of the server, and run this as root or as the account that started it",
        ),
        Err(error) => report.warning(
            ABOUT,
            format!("it does not tell what it does: {error}"),
            "look into its log",
        ),
    }
}

/// Whether the status is of the server with this configuration. A port of 0 was chosen by the kernel.
fn is_the_server(status: &Status, config: &Config) -> bool {
    let listening = &status.server.listening;
    let mut all = config.listen.iter();
    all.any(|listen| listen.port() == 0 || listening.contains(&listen.to_string()))
}

fn tell(report: &mut Findings, status: &Status) {
    let counts = &status.counts;
    let text = format!(
        "{} sessions; {} transfers run and {} wait; {} of {} worker threads are busy",
        counts.sessions,
        counts.transfers_running,
        counts.transfers_waiting,
        counts.workers_busy,
        counts.workers_limit
    );
    if counts.transfers_waiting > 0 {
        report.warning(
            ABOUT,
            text,
            "raise max-transfers if processors, disks and network have room",
        );
    } else {
        report.ok(ABOUT, text);
    }
    if status.server.phase == ServerPhase::Draining {
        report.warning(
            ABOUT,
            "it accepts no connections: an administrator has asked it to drain",
            "start it again after its transfers",
        );
    }
    let disturbed = status.transfers.iter().filter(|one| is_disturbed(one));
    for transfer in disturbed.take(MOST) {
        report.warning(
            ABOUT,
            format!(
                "transfer {} ({} {}) has {} stalls, and replaced {} queue pairs",
                transfer.id, transfer.verb, transfer.path, transfer.stalls, transfer.restarts
            ),
            "the path drops its messages: look for flow control, a policer and the options rate and message of rdma",
        );
    }
}

/// The transfers that get a line.
const MOST: usize = 10;

fn is_disturbed(transfer: &TransferStatus) -> bool {
    transfer.stalls > 0 || transfer.restarts > 0
}
