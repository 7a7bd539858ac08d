//! What strangers and other processes send, for the fuzz targets in `fuzz/` and for tests with arbitrary bytes.
//!
//! Programs do not have this: cargo-fuzz sets the `cfg` that it needs. Each function takes bytes that encode messages, and
//! panics when these have an effect that they must not have.

mod client;
mod lines;
mod session;
mod session_values;

pub use crate::login::fuzzing::questions;
pub use crate::session::fuzzing::pattern;
pub use session::session;
pub use session_values::session_values;
