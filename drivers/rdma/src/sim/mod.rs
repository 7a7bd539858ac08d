//! A simulated fabric: two hosts and the path between them, in a time of its own.
//!
//! It carries what hardware would, in the way hardware would: a reliable connection that goes back to the first packet
//! that is missing, over a path with a rate, a delay, a queue, a policer, and losses. So the engine and its pacing are
//! tried on paths that nobody here has, and in seconds that take milliseconds. Everything follows from a seed. The whole
//! driver runs over it as well ([`driver`]), in the time of the clock then.
//!
//! Receives are always there: the engine never sends more than the peer's queue pair holds. Headers count
//! nothing: rates are those of the payload.
//!
//! It is compiled for tests, and with the feature `sim` for the program that measures; never into a server.

mod delivery;
mod endpoint;
mod experiment;
mod fabric;
mod lifecycle;
mod link;
mod meeting;
mod queue_pair;
mod random;
mod regions;
mod run;

pub use experiment::{Experiment, ExperimentError, Interval, Outcome, Pace};
pub use fabric::{FabricSettings, Naps};
pub use link::{Link, Policer, Queue};
pub use meeting::driver;

#[cfg(test)]
mod tests;
