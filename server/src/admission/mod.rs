//! Room for strangers: what a peer may take before it has proved who it is.
//!
//! A peer that has not logged in is unknown, and a connection costs it nothing. So everything that such a peer can
//! take is counted by [`Network`] and given out so that many connections of few networks, or few of many, leave
//! room for the next one:
//!
//! - [`Connections`] counts control connections and bounds those that have not logged in on their own; when that
//!   room is full, the network that has most of it gives a place back.
//! - [`penalties`] refuses networks that fail to log in, again and again, for a while.
//! - [`Workers`] does the computing (handshakes, passwords) for one network after the other.
//!
//! What is remembered of peers that are gone is in [`Debts`](crate::debts::Debts), which have a bound on memory. All functions take the
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
