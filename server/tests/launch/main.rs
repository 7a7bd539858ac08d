//! The program as people, scripts and test wrappers start it.

mod admin;
mod audit;
mod client;
mod contract;
mod doctor;
mod faults;
mod front;
mod grid;
mod grid_client;
mod group_limits;
mod journal;
mod logs;
mod passphrase;
mod processes;
mod program;
mod recent;
mod reload;
mod renewal;
mod roots;
mod sandbox;
mod security;
mod service;
mod skipped;
mod ssh;
mod upgrade;
mod uploads;
