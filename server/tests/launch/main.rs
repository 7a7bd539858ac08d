//! The program as people, scripts and test wrappers start it.

mod admin;
mod audit;
mod client;
mod contract;
mod doctor;
#[cfg(feature = "rdma")]
mod doctor_rdma;
mod faults;
mod front;
mod grid;
mod grid_client;
mod group_limits;
mod inetd;
mod journal;
mod logs;
mod name_server;
mod network;
mod node;
mod node_certificates;
mod node_check;
mod node_enrol;
mod node_names;
mod node_watching;
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
mod ssh;
mod upgrade;
mod uploads;
