//! Clusters of nodes in the test process, over one directory.

mod choice;
mod copies;
mod failover;
mod fake;
mod late;
mod random;
mod simulation;
mod site;
mod stripes;
mod uploads;
mod watching;
