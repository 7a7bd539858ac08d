//! Measurements of a server: what the programs `bench` and `soak` are made of.

pub mod arena;
pub mod ports;
pub mod rows;
pub mod scratch;
pub mod soak;
pub mod table;
pub mod usage;
