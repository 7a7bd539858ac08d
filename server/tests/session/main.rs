//! Sessions of a server in this process, driven over real sockets.

mod client;
mod control;
mod listings;
mod login;
mod names;
mod ports;
mod served;
mod transfers;
