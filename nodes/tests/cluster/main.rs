//! Clusters of nodes in the test process, over one directory.

mod choice;
mod copies;
mod failover;
mod fake;
mod late;
mod random;
#[path = "../read_only/mod.rs"]
mod read_only;
mod simulation;
mod site;
mod stripes;
mod uploads;
mod watching;
