//! The actions: `POST /api/...`.

use std::sync::Arc;

use bytes::Bytes;
use gridhaul_nodes::cluster::Cluster;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::nodes::set_drained;
use super::orders::{Done, DrainReport, Order, ReloadReport, ServerAction};
use crate::http::{self, Answer};
use crate::live::Live;

/// The body of `/api/log-level`.
#[derive(Debug, Deserialize)]
struct Level {
    level: String,
}

#[derive(Debug, Serialize)]
struct Drained {
    ok: bool,
    #[serde(flatten)]
    report: DrainReport,
}

#[derive(Debug, Serialize)]
struct Reloaded {
    ok: bool,
    #[serde(flatten)]
    report: ReloadReport,
}

/// A resource that takes actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    EndSession(u64),
    EndTransfer(u64),
    Drain,
    Reload,
    Upgrade,
    LogLevel,
    DrainNode,
    ResumeNode,
}

impl Action {
    /// The action of a path.
    pub(super) fn of(path: &str) -> Option<Self> {
        let words: Vec<&str> = path.strip_prefix("/api/")?.split('/').collect();
        Some(match words[..] {
            ["sessions", id, "end"] => Self::EndSession(id.parse().ok()?),
            ["transfers", id, "end"] => Self::EndTransfer(id.parse().ok()?),
            ["drain"] => Self::Drain,
            ["reload"] => Self::Reload,
            ["upgrade"] => Self::Upgrade,
            ["log-level"] => Self::LogLevel,
            ["nodes", "drain"] => Self::DrainNode,
            ["nodes", "resume"] => Self::ResumeNode,
            _ => return None,
        })
    }
}

/// Carries out actions.
#[derive(Debug)]
pub(super) struct Actions {
    pub(super) live: Arc<Live>,
    /// The data nodes of the server, if it has some.
    pub(super) nodes: Option<Arc<Cluster>>,
    pub(super) orders: mpsc::Sender<Order>,
}

impl Actions {
    /// Carries out an action of an administrator.
    pub(super) async fn act(&self, by: String, action: Action, body: &Bytes) -> Answer {
        let live = &self.live;
        match action {
            Action::EndSession(session) => {
                let found = live.end_session(session);
                if found {
                    warn!(session, by, "an administrator ends a session");
                }
                ended(found, "session", session)
            }
            Action::EndTransfer(transfer) => {
                let found = live.end_transfer(transfer);
                if found {
                    warn!(transfer, by, "an administrator ends a transfer");
                }
                ended(found, "transfer", transfer)
            }
            Action::Drain => self.order(by, ServerAction::Drain).await,
            Action::Reload => self.order(by, ServerAction::Reload).await,
            Action::Upgrade => self.order(by, ServerAction::Upgrade).await,
            Action::LogLevel => match serde_json::from_slice::<Level>(body) {
                Ok(Level { level }) => self.order(by, ServerAction::LogLevel(level)).await,
                Err(error) => failed(StatusCode::BAD_REQUEST, &error.to_string()),
            },
            Action::DrainNode | Action::ResumeNode => match serde_json::from_slice(body) {
                Ok(named) => {
                    let drained = action == Action::DrainNode;
                    match set_drained(self.nodes.as_deref(), &named, drained, &by) {
                        Ok(node) => {
                            http::json(StatusCode::OK, &json!({ "ok": true, "node": node }))
                        }
                        Err(error) => failed(StatusCode::NOT_FOUND, &error),
                    }
                }
                Err(error) => failed(StatusCode::BAD_REQUEST, &error.to_string()),
            },
        }
    }

    /// Has the loop of the server carry out an action.
    async fn order(&self, by: String, action: ServerAction) -> Answer {
        let (done, result) = oneshot::channel();
        let gone = || {
            failed(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is shutting down",
            )
        };
        if self.orders.send(Order { by, action, done }).await.is_err() {
            return gone();
        }
        match result.await {
            Ok(Done::Success) => http::json(StatusCode::OK, &json!({ "ok": true })),
            Ok(Done::Draining(report)) => http::json(StatusCode::OK, &Drained { ok: true, report }),
            Ok(Done::Reloaded(report)) => {
                let ok = report.errors.is_empty();
                let status = if ok {
                    StatusCode::OK
                } else {
                    StatusCode::UNPROCESSABLE_ENTITY
                };
                http::json(status, &Reloaded { ok, report })
            }
            Ok(Done::Upgraded(process)) => {
                http::json(StatusCode::OK, &json!({ "ok": true, "process": process }))
            }
            Ok(Done::Failed(error)) => failed(StatusCode::UNPROCESSABLE_ENTITY, &error),
            Err(_) => gone(),
        }
    }
}

fn ended(found: bool, kind: &str, number: u64) -> Answer {
    if found {
        http::json(StatusCode::OK, &json!({ "ok": true }))
    } else {
        failed(
            StatusCode::NOT_FOUND,
            &format!("there is no {kind} {number}"),
        )
    }
}

/// The answer to an action that was not carried out.
pub(super) fn failed(status: StatusCode, error: &str) -> Answer {
    let body: Value = json!({ "ok": false, "error": error });
    http::json(status, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_actions() {
        for (path, expected) in [
            ("/api/sessions/7/end", Some(Action::EndSession(7))),
            ("/api/transfers/12/end", Some(Action::EndTransfer(12))),
            ("/api/drain", Some(Action::Drain)),
            ("/api/reload", Some(Action::Reload)),
            ("/api/upgrade", Some(Action::Upgrade)),
            ("/api/log-level", Some(Action::LogLevel)),
            ("/api/nodes/drain", Some(Action::DrainNode)),
            ("/api/nodes/resume", Some(Action::ResumeNode)),
            ("/api/nodes/dtn1/drain", None),
            ("/api/sessions/-7/end", None),
            ("/api/sessions/7", None),
            ("/api/reload/", None),
            ("/reload", None),
        ] {
            assert_eq!(Action::of(path), expected, "{path}");
        }
    }
}
