//! The bare pump: the upper bound that the kernel sets.
//!
//! Two processes move one file to another over TCP, with as little between as possible: no protocol but a
//! range at the head of each connection, no check, no progress. The benchmark compares the rate and the processor
//! time of a server with those of the pump. The program is the benchmark itself, started
//! with the arguments that [`serve`] takes.

mod connections;
mod options;
mod pair;
mod receive;
mod send;
mod serve;

pub use options::Options;
pub use pair::{Half, Pump, Pumped};
pub use serve::{Side, serve};
