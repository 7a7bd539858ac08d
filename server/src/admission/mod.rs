//! Limits for peers before authentication.
//!
//! A peer before login is unknown, and connections cost it little. So all resources of such peers are counted by [`Network`]
//! and shared so that many connections of few networks, or few connections of many, leave room for the next one:
//!
//! - [`Connections`] limits control connections, and separately those before login. When that limit is reached, the network
//!   with most connections before login loses one.
//! - [`penalties`] refuses networks whose logins fail repeatedly, for a while.
//! - [`Workers`] computes (handshakes, passwords) round-robin by network.
//!
//! The record of peers that are gone is in [`Debts`](crate::debts::Debts), with a bound on memory. All functions take the
//! time as an argument.

mod connections;
mod dice;
mod fair_queue;
mod penalties;
mod startups;
mod workers;

pub(crate) use gridhaul_shares::Network;

pub(crate) use connections::{Connections, Place, Room};
pub(crate) use penalties::Misconduct;
pub(crate) use workers::{Refused, Workers};
