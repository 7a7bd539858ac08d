//! The program as people, scripts and test wrappers start it.

mod client;
mod contract;
mod front;
mod group_limits;
mod processes;
mod program;
mod reload;
mod renewal;
mod roots;
mod sandbox;
mod security;
mod ssh;
mod uploads;
