//! Data nodes on other machines.
//!
//! `Cluster` is a [`gridhaul_transfer::DataNode`] that spreads sessions and transfers over several nodes.

pub mod cluster;
