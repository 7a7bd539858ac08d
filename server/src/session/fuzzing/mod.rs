//! Fuzz targets for what a client sends.

mod client;
mod lines;
mod pattern;
mod whole;

pub use pattern::pattern;
pub use whole::session;
