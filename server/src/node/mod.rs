//! Connections between control servers and data nodes.

pub mod tls;
