//! The commands of the control channel, typed.
//!
//! [`Command::parse`] turns a line into a valid value: numbers are in range, addresses are addresses, names contain
//! neither NUL nor a line end. [`Command::encode`] is the inverse, for the client. The session decides what a command
//! does, and [`crate::negotiated`] whether it may come now.

mod arguments;
mod commands;
mod encode;
mod error;
mod grammar;
mod options;
mod parse;
mod rdma;
mod site;
mod site_arguments;
mod syntax;

pub use arguments::{
    AlgorithmName, Base64, Checksum, DataChannelAuthentication, DataChannelContext, EpsvRequest,
    ListPath, MarkerEvent, Password, ProtectionLevel, Representation, Restart, StripeLayout, Text,
    TransferMode,
};
pub use commands::Command;
pub use error::{ArgumentFault, CommandError};
pub use options::{OptsCommand, Parallelism, RetrieveOptions};
pub use rdma::{BufferBytes, RdmaCommand};
pub use site::SiteCommand;
pub use site_arguments::{
    Assertion, BufferSide, BufferVerb, FileMode, StackRequest, StoreAttributes,
};

#[cfg(test)]
mod tests;
