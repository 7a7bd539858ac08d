//! The program as people, scripts and test wrappers start it.

mod admin;
mod contract;
mod front;
mod processes;
mod program;
mod recent;
mod reload;
mod renewal;
mod roots;
mod sandbox;
mod security;
mod ssh;
