//! The administration interface: what the server does now, and actions on it, over HTTP.
//!
//! ```text
//! doors          the listeners: address and Unix socket, opened before root is given up
//!   └─ site      who may ask, and what the answers are
//!        ├─ page       the files of the page
//!        └─ document   the status of the server
//! ```

mod document;
mod doors;
mod page;
mod site;

pub(crate) use document::Facts;
pub(crate) use doors::{Doors, MetricsSite};
