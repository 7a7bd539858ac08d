//! The status as text.

use std::fmt::Write as _;

use super::node_table;
use super::words::{duration, end_of, fit, harmless, size, wrapped};
use crate::status::{
    CredentialState, RdmaState, ServerPhase, SessionStatus, Status, TransferState, TransferStatus,
};

/// Problems of each kind in the summary.
const PROBLEMS: usize = 10;

/// Terminals with so many columns have room for the stack.
const WIDE: usize = 100;

/// More columns than any line has: a file or another program gets whole lines.
const ENDLESS: usize = 1 << 20;

/// The least columns of a terminal for tables.
const LEAST: usize = 80;

/// The summary of `status`: the server, its sessions and transfers, and problems. In a terminal with so many columns, tables
/// fit and texts are wrapped.
pub(super) fn summary(status: &Status, columns: Option<usize>) -> String {
    let mut lines = server(status);
    let width = columns.map_or(ENDLESS, |columns| columns.max(LEAST));
    if !status.nodes.is_empty() {
        lines.push(String::new());
        lines.extend(node_table::table(&status.nodes, columns));
    }
    lines.push(String::new());
    lines.extend(transfers(status, width));
    lines.push(String::new());
    lines.extend(sessions(status, width));
    let problems = problems(status).into_iter();
    let problems: Vec<String> = problems.flat_map(|line| wrapped(&line, width)).collect();
    lines.push(String::new());
    if problems.is_empty() {
        lines.push("No problems.".to_owned());
    } else {
        lines.push("PROBLEMS".to_owned());
        lines.extend(problems);
    }
    lines.join("\n") + "\n"
}

/// One screen of `top`.
pub(super) fn frame(status: &Status, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = server(status);
    if !status.nodes.is_empty() {
        // A quarter of the screen.
        lines.push(String::new());
        let nodes = node_table::table(&status.nodes, Some(columns));
        lines.extend(clipped(nodes, rows / 4));
    }
    lines.push(String::new());
    let transfers = transfers(status, columns);
    // The sessions get a third of the screen, or what the transfers leave.
    let most = rows.saturating_sub(lines.len() + 2);
    let share = (most / 3 * 2).max(most.saturating_sub(status.sessions.len() + 1));
    lines.extend(clipped(transfers, share));
    lines.push(String::new());
    let left = rows.saturating_sub(lines.len());
    lines.extend(clipped(sessions(status, columns), left));
    lines.truncate(rows);
    let lines = lines.iter().map(|line| fit(line, columns));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// At most so many lines; the last one then tells how many more there are.
fn clipped(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most && most > 0 {
        let more = lines.len() - most + 1;
        lines.truncate(most - 1);
        lines.push(format!("... and {more} more"));
    }
    lines.truncate(most);
    lines
}

fn server(status: &Status) -> Vec<String> {
    let (server, counts) = (&status.server, &status.counts);
    let phase = match server.phase {
        ServerPhase::Serving => "serving",
        ServerPhase::Draining => "draining: no more connections",
    };
    let first = format!(
        "gridhaul-server {} at {} as {}, process {}, up {}, {phase}",
        server.version,
        server.host,
        server.user,
        server.pid,
        duration(server.uptime_seconds)
    );
    let second = format!(
        "listening {}; log {}",
        server.listening.join(" "),
        server.log_level
    );
    let mut third = format!(
        "sessions {} ({} before login)  transfers {} ({} waiting)",
        counts.sessions,
        counts.sessions_before_login,
        counts.transfers_running,
        counts.transfers_waiting
    );
    // Writing to a String cannot fail.
    let _ = write!(
        third,
        "  workers {}/{}  buffers {}/{}  brokers {}",
        counts.workers_busy,
        counts.workers_limit,
        size(counts.buffer_bytes as f64),
        size(counts.buffer_bytes_limit as f64),
        counts.brokers
    );
    [first, second, third].map(|line| harmless(&line)).into()
}

/// Transfers, the fastest first.
fn transfers(status: &Status, columns: usize) -> Vec<String> {
    let stack = if columns < WIDE { "" } else { "STACK    " };
    let heading =
        format!("ID     SESSION USER       VERB DONE  OF    RATE/s  LEFT    CH {stack}PATH");
    let mut transfers: Vec<_> = status.transfers.iter().collect();
    transfers.sort_by(|a, b| b.bytes_per_second.total_cmp(&a.bytes_per_second));
    let lines = transfers.iter().map(|transfer| line(transfer, columns));
    std::iter::once(heading).chain(lines).collect()
}

fn line(transfer: &TransferStatus, columns: usize) -> String {
    let left = transfer.remaining_seconds;
    // A finite number of seconds fits, since the rate is at least one byte.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let left = left.map_or_else(
        || "-".to_owned(),
        |seconds| duration(seconds.clamp(0.0, 1e12) as u64),
    );
    let rate = match transfer.state {
        TransferState::Waiting => "waiting".to_owned(),
        TransferState::Running => size(transfer.bytes_per_second),
    };
    let total = transfer.total_bytes;
    let total = total.map_or_else(|| "?".to_owned(), |total| size(total as f64));
    let mut begin = vec![
        fit(&transfer.id.to_string(), 6),
        fit(&transfer.session.to_string(), 7),
        fit(&transfer.user, 10),
        fit(&transfer.verb, 4),
        fit(&size(transfer.bytes as f64), 5),
        fit(&total, 5),
        fit(&rate, 7),
        fit(&left, 7),
        fit(&transfer.channels.to_string(), 2),
    ];
    if columns >= WIDE {
        begin.push(fit(&transfer.stack, 8));
    }
    let begin = begin.join(" ");
    let room = columns.saturating_sub(begin.chars().count() + 1);
    format!("{begin} {}", end_of(&transfer.path, room.max(8)))
}

fn sessions(status: &Status, columns: usize) -> Vec<String> {
    let mut lines =
        vec!["SESSION USER     PEER                   NOW      IDLE    IDENTITY".to_owned()];
    lines.extend(status.sessions.iter().map(|one| session(one, columns)));
    lines
}

fn session(session: &SessionStatus, columns: usize) -> String {
    let activity = format!("{:?}", session.activity).to_ascii_lowercase();
    let begin = [
        fit(&session.id.to_string(), 7),
        fit(&session.user, 8),
        fit(&session.peer, 22),
        fit(&activity, 8),
        fit(&duration(session.idle_seconds), 7),
    ]
    .join(" ");
    let identity = session.identity.as_deref().or(session.client.as_deref());
    let room = columns.saturating_sub(begin.chars().count() + 1);
    let identity = harmless(identity.unwrap_or_default());
    let identity = match identity.chars().count() > room {
        true => fit(&identity, room.max(8)),
        false => identity,
    };
    format!("{begin} {}", identity.trim_end())
        .trim_end()
        .to_owned()
}

fn problems(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    for credential in &status.credentials {
        let state = match credential.state {
            CredentialState::Ok => continue,
            CredentialState::Soon => format!("expires in {:.0} days", credential.days_left),
            CredentialState::Expired => "has expired".to_owned(),
        };
        lines.push(format!(
            "{} {} {state}: {}",
            credential.kind, credential.name, credential.file
        ));
    }
    for device in &status.rdma {
        if device.state == RdmaState::Unusable {
            lines.push(format!("RDMA device {}: {}", device.device, device.text));
        }
    }
    for error in status.errors.iter().take(PROBLEMS) {
        lines.push(format!(
            "{} {} {} ({} times)",
            error.time, error.level, error.message, error.count
        ));
    }
    for refusal in status.refusals.iter().take(PROBLEMS) {
        lines.push(format!(
            "{} {} {}: {}",
            refusal.time, refusal.peer, refusal.event, refusal.reason
        ));
    }
    lines.iter().map(|line| harmless(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Activity, Counts, ErrorStatus, History, ServerStatus, TransferDirection};

    fn transfer(id: u64) -> TransferStatus {
        TransferStatus {
            id,
            session: 3,
            user: "al\u{1b}[2Jice".to_owned(),
            identity: None,
            peer: "192.0.2.1:40000".to_owned(),
            verb: "RETR".to_owned(),
            direction: TransferDirection::Send,
            path: "/a/long/path/\r\nof/a/file/that/does/not/fit/into/the/rest/of/the/line"
                .to_owned(),
            state: TransferState::Running,
            started: String::new(),
            seconds: 2.0,
            bytes: 1 << 20,
            total_bytes: Some(10 << 20),
            bytes_per_second: 1e6,
            remaining_seconds: Some(9.4),
            channels: 4,
            stripes: 1,
            stack: "tcp".to_owned(),
            data_peers: Vec::new(),
            task_id: None,
            restarts: 0,
            stalls: 0,
            details: Vec::new(),
        }
    }

    fn status() -> Status {
        let session = SessionStatus {
            id: 3,
            peer: "192.0.2.1:40000".to_owned(),
            user: "alice".to_owned(),
            identity: Some("/CN=\u{9b}31mAlice".to_owned()),
            attributes: Vec::new(),
            protection: None,
            client: None,
            started: String::new(),
            idle_seconds: 61,
            activity: Activity::Transfer,
            read_only: false,
        };
        Status {
            server: ServerStatus::default(),
            counts: Counts::default(),
            sessions: vec![session; 30],
            transfers: (1..=40).map(transfer).collect(),
            history: History::default(),
            refusals: Vec::new(),
            errors: vec![ErrorStatus {
                time: "2026-11-24T22:00:00Z".to_owned(),
                level: "ERROR".to_owned(),
                message: "a\nb".to_owned(),
                count: 2,
            }],
            credentials: Vec::new(),
            rdma: Vec::new(),
            configuration: Vec::new(),
            nodes: Vec::new(),
        }
    }

    #[test]
    fn a_frame_fits_the_screen_and_names_do_not_control_it() {
        for (columns, rows) in [(80, 24), (200, 60), (20, 5), (80, 0), (80, usize::MAX)] {
            let frame = frame(&status(), columns, rows);
            assert!(frame.len() <= rows, "{frame:#?}");
            for line in &frame {
                assert!(line.chars().count() <= columns, "{line}");
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
        let frame = frame(&status(), 80, 24);
        assert!(frame.iter().any(|line| line.contains("more")), "{frame:#?}");
        assert!(
            frame.iter().any(|line| line.starts_with("SESSION")),
            "{frame:#?}"
        );
    }

    #[test]
    fn reasons_are_wrapped_in_a_terminal_and_whole_elsewhere() {
        let mut status = status();
        let reason = "a reason with words ".repeat(20);
        status.refusals.push(crate::status::RefusalStatus {
            time: "2026-11-24T22:00:00Z".to_owned(),
            event: "login failed".to_owned(),
            peer: "192.0.2.1:1".to_owned(),
            user: None,
            identity: None,
            reason: reason.clone(),
        });
        let identity = format!("/CN={}", "x".repeat(300));
        status.sessions[0].identity = Some(identity.clone());
        let whole = summary(&status, None);
        assert!(
            whole.contains(reason.trim_end()) && whole.contains(&identity),
            "{whole}"
        );
        let narrow = summary(&status, Some(90));
        assert!(!narrow.contains(&identity), "{narrow}");
        let (_, problems) = narrow.split_once("PROBLEMS\n").expect("a heading");
        for line in problems.lines() {
            assert!(line.chars().count() <= 90, "{line}");
        }
        let words = |text: &str| {
            text.split_whitespace()
                .filter(|word| *word == "reason")
                .count()
        };
        assert_eq!(words(problems), 20, "{problems}");
    }

    #[test]
    fn a_summary_has_everything_once() {
        let summary = summary(&status(), Some(120));
        assert!(
            summary.contains("1.00M") && summary.contains("977K"),
            "{summary}"
        );
        assert!(summary.contains("ERROR a?b (2 times)"), "{summary}");
        assert!(summary.lines().all(|line| !line.contains(char::is_control)));
    }
}
