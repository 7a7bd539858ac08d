//! The command `nodes`.

use serde::Deserialize;

use super::client::{Client, TerminalError};
use super::commands::{ask, print, wait};
use super::node_table::table;
use super::screen::Screen;
use super::words::harmless;
use crate::config::{NodeArguments, NodesAction, NodesArguments};
use crate::enrolment;
use crate::status::NodeStatus;

/// The answer to an order.
#[derive(Debug, Deserialize)]
struct Answer {
    node: NodeStatus,
}

/// `nodes`, `nodes drain`, `nodes resume`, `nodes invite`.
///
/// # Errors
///
/// When the server cannot be asked, or has no such node.
pub fn nodes(arguments: &NodesArguments) -> Result<(), TerminalError> {
    match &arguments.action {
        None => list(arguments),
        Some(NodesAction::Invite(invite)) => Ok(enrolment::invite(invite)?),
        Some(NodesAction::Drain(node)) => {
            let node = order("/api/nodes/drain", node)?;
            print(&format!(
                "draining {}: {}, {} left there; new ones go to other nodes, until nodes resume, or a restart or upgrade of the server\n",
                harmless(&node.name),
                counted(node.sessions, "session"),
                counted(node.transfers, "transfer"),
            ))
        }
        Some(NodesAction::Resume(node)) => {
            let node = order("/api/nodes/resume", node)?;
            let reason = node
                .reason
                .map(|reason| format!(", but {}", harmless(&reason)));
            let name = harmless(&node.name);
            print(&format!("resumed {name}{}\n", reason.unwrap_or_default()))
        }
    }
}

fn list(arguments: &NodesArguments) -> Result<(), TerminalError> {
    let client = Client::new(&arguments.server)?;
    let status = wait(ask(&client))?;
    if arguments.json {
        let text = serde_json::to_string(&status.nodes);
        let text = text.map_err(|error| TerminalError::Answer(error.to_string()))?;
        return print(&format!("{text}\n"));
    }
    if status.nodes.is_empty() {
        return print("this server has no data nodes\n");
    }
    print(&(table(&status.nodes, Screen::columns()).join("\n") + "\n"))
}

fn order(path: &str, arguments: &NodeArguments) -> Result<NodeStatus, TerminalError> {
    let client = Client::new(&arguments.server)?;
    let body = serde_json::json!({ "node": arguments.node }).to_string();
    let Answer { node } = wait(client.post(path, body))?;
    Ok(node)
}

fn counted(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}
