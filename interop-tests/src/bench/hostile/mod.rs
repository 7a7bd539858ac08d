//! The effect of hostile connections on a client from another address.
//!
//! A crowd of connections from three addresses does an action that is cheap for the crowd and costs the server resources.
//! Meanwhile a client from a fourth address logs in and fetches 1 MiB. Both are timed without and with the crowd.

mod attack;
mod client;
mod measure;
mod site;

pub use attack::Attack;
pub use measure::{Outcome, Size, measure};
