//! The page of metrics, the alert rules and the dashboard, checked with Prometheus' own programs against the real server.

mod alerts;
mod files;
mod prometheus;
mod site;
