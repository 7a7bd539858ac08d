//! A simulated fabric: two hosts and the path between them, in simulated time.
//!
//! It behaves like hardware: a reliable connection that goes back to the first missing packet, or repeats
//! only what is missing, over a path with a rate, a delay, a queue, a policer and losses. The queue may mark
//! packets, upon which devices cut the rates of queue pairs ([`Dcqcn`]). So the engine and its pacing run on
//! paths that a test machine does not have, and simulated seconds take milliseconds. A seed
//! determines a run. The whole driver runs over it as well ([`driver`]), in real time.
//!
//! Receive buffers are always available: the engine never sends more than the peer's queue pair
//! holds. Headers are not counted: rates are those of the payload.
//!
//! It is compiled for tests, and with the feature `sim` for the benchmark; never into a server.

mod congestion;
mod cost;
mod delivery;
mod endpoint;
mod event;
mod experiment;
mod fabric;
mod lifecycle;
mod link;
mod opening;
mod preparation;
mod provider;
mod queue_pair;
mod random;
mod regions;
mod run;
mod selective;
mod settings;
mod supply;

pub use congestion::{Dcqcn, Marking};
pub use cost::{MessageCost, message_cost};
#[cfg(test)]
pub(crate) use endpoint::SharedFabric;
pub use experiment::{Experiment, ExperimentError, Interval, Outcome, Pace};
pub use link::{Link, Policer, Queue};
pub use opening::{Defaults, DefaultsOutcome, Rings};
pub use preparation::Preparation;
pub use provider::driver;
pub use settings::{FabricSettings, Naps, Repeat};

#[cfg(test)]
mod tests;
