//! A simulated fabric: two hosts and the path between them, in simulated time.
//!
//! It behaves like hardware: a reliable connection that goes back to the first missing packet, over
//! a path with a rate, a delay, a queue, a policer and losses. So the engine and its pacing run on
//! paths that a test machine does not have, and simulated seconds take milliseconds. A seed
//! determines a run. The whole driver runs over it as well ([`driver`]), in real time.
//!
//! Receive buffers are always available: the engine never sends more than the peer's queue pair
//! holds. Headers are not counted: rates are those of the payload.
//!
//! It is compiled for tests, and with the feature `sim` for the benchmark; never into a server.

mod delivery;
mod endpoint;
mod event;
mod experiment;
mod fabric;
mod lifecycle;
mod link;
mod provider;
mod queue_pair;
mod random;
mod regions;
mod run;
mod settings;

#[cfg(test)]
pub(crate) use endpoint::SharedFabric;
pub use experiment::{Experiment, ExperimentError, Interval, Outcome, Pace};
pub use link::{Link, Policer, Queue};
pub use provider::driver;
pub use settings::{FabricSettings, Naps};

#[cfg(test)]
mod tests;
