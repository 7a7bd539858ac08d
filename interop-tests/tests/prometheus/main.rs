//! The page of metrics, the alert rules and the dashboard, checked with Prometheus' own programs against real servers.

mod alerts;
mod certificates;
mod expiries;
mod faults;
mod files;
mod hosts;
mod prometheus;
mod rings;
mod site;
mod world;
