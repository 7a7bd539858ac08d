//! Hostile connections, and what a client of another address notices of them.
//!
//! A crowd of connections from three addresses does one thing that costs the server something and the crowd nothing.
//! Meanwhile a client of a fourth address logs in and fetches 1 MiB, which is timed, as it was before the crowd came.

mod attack;
mod client;
mod measure;
mod site;

pub use attack::Attack;
pub use measure::{Outcome, Size, measure};
