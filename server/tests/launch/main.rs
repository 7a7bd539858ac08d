//! The program as people, scripts and test wrappers start it.

mod contract;
mod program;
mod renewal;
mod sandbox;
mod security;
mod ssh;
