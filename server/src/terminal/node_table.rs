//! Data nodes as a table.

use super::words::{fit, harmless, size};
use crate::status::{NodeState, NodeStatus};

/// The columns before the last one, with their widths; the first one is as wide as the names.
const HEADINGS: [(&str, usize); 8] = [
    ("STATE", 8),
    ("VERSION", 9),
    ("SESS", 5),
    ("TRANS", 5),
    ("BUSY", 9),
    ("BUFFERS", 11),
    ("IN/s", 5),
    ("OUT/s", 5),
];

/// Names are cut to so many columns in a terminal.
const LONGEST_NAME: usize = 32;

/// The last column has at least so many columns in a terminal.
const LEAST_REASON: usize = 16;

/// A line for each node. In a terminal with so many columns, lines are cut to fit.
pub(super) fn table(nodes: &[NodeStatus], columns: Option<usize>) -> Vec<String> {
    let names = nodes.iter().map(|node| node.name.chars().count());
    let longest = names.max().unwrap_or(0).max("NODE".len());
    let width = columns.map_or(longest, |_| longest.min(LONGEST_NAME));
    let headings = HEADINGS.map(|(heading, width)| fit(heading, width));
    let heading = format!("{} {} REASON", fit("NODE", width), headings.join(" "));
    let lines = nodes.iter().map(|node| line(node, width, columns));
    std::iter::once(heading).chain(lines).collect()
}

fn line(node: &NodeStatus, width: usize, columns: Option<usize>) -> String {
    let load = &node.load;
    let version = node.told.as_ref().map_or("-", |told| told.version.as_str());
    let busy = load.senders_busy.saturating_add(load.receivers_busy);
    let limit = load.workers_limit.saturating_mul(2);
    let buffers = load.buffer_bytes as f64;
    let cells = [
        state(node).to_owned(),
        version.to_owned(),
        node.sessions.to_string(),
        node.transfers.to_string(),
        format!("{busy}/{limit}"),
        format!("{}/{}", size(buffers), size(load.buffer_bytes_limit as f64)),
        size(node.bytes_per_second.received as f64),
        size(node.bytes_per_second.sent as f64),
    ];
    let cells = cells.iter().zip(HEADINGS);
    let cells: Vec<_> = cells.map(|(cell, (_, width))| fit(cell, width)).collect();
    let begin = format!("{} {}", fit(&node.name, width), cells.join(" "));
    let reason = harmless(&reason(node));
    let reason = match columns {
        None => reason,
        Some(columns) => {
            let room = columns.saturating_sub(begin.chars().count() + 1);
            fit(&reason, room.max(LEAST_REASON))
        }
    };
    format!("{begin} {reason}").trim_end().to_owned()
}

fn state(node: &NodeStatus) -> &'static str {
    match node.state {
        NodeState::Up => "up",
        NodeState::Draining if node.drained => "drained",
        NodeState::Draining => "draining",
        NodeState::Same => "same",
        NodeState::Down => "down",
    }
}

/// Why it is not up, or else why it was down the last time.
fn reason(node: &NodeStatus) -> String {
    match (&node.reason, &node.last_error) {
        (Some(reason), _) => format!("since {}: {reason}", node.since),
        (None, Some(last)) => format!("down at {}: {}", last.time, last.reason),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{NodeError, NodeLoadStatus, NodeTold, NodeTraffic};

    fn node(name: &str, state: NodeState) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            state,
            since: "2026-11-25T21:00:00Z".to_owned(),
            reason: None,
            drained: false,
            last_error: None,
            losses: 0,
            addresses: Vec::new(),
            told: Some(NodeTold {
                version: "1.2\u{1b}[2J".to_owned(),
                host: String::new(),
                stack: String::new(),
                drivers: Vec::new(),
                clock_ahead_seconds: 0.0,
            }),
            sessions: 3,
            transfers: 2,
            bytes_per_second: NodeTraffic {
                received: 0,
                sent: 100 << 20,
            },
            bytes: NodeTraffic {
                received: 0,
                sent: 0,
            },
            load: NodeLoadStatus {
                sessions: 0,
                transfers: 0,
                senders_busy: 4,
                receivers_busy: 1,
                workers_limit: 64,
                workers_awaited: 0,
                buffer_bytes: 3 << 20,
                buffer_bytes_limit: 1 << 30,
                ring_bytes: 0,
                ring_bytes_limit: 0,
                cards: Vec::new(),
            },
        }
    }

    #[test]
    fn a_line_has_state_load_rates_and_the_last_error() {
        let up = node("dtn1.example.org:7512", NodeState::Up);
        let mut drained = node("dtn2.example.org:7512", NodeState::Draining);
        drained.drained = true;
        drained.reason = Some("an administrator".to_owned());
        let mut back = node("dtn3.example.org:7512", NodeState::Up);
        back.told = None;
        back.last_error = Some(NodeError {
            time: "2026-11-25T20:00:00Z".to_owned(),
            reason: "Connection refused\n".repeat(20),
        });
        let nodes = [up, drained, back];
        let whole = table(&nodes, None);
        let words: Vec<_> = whole[1].split_whitespace().collect();
        let expected = [
            "dtn1.example.org:7512",
            "up",
            "1.2?[2J",
            "3",
            "2",
            "5/128",
            "3.00M/1.00G",
            "0",
            "100M",
            "-",
        ];
        assert_eq!(words, expected);
        assert!(whole[2].contains(" drained "), "{whole:?}");
        let reason = "since 2026-11-25T21:00:00Z: an administrator";
        assert!(whole[2].ends_with(reason), "{whole:?}");
        assert!(
            whole[3].contains("down at 2026-11-25T20:00:00Z: Connection refused?"),
            "{whole:?}"
        );
        for line in table(&nodes, Some(110)) {
            assert!(line.chars().count() <= 110, "{line}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}
