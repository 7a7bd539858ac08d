//! The administration interface: what the server does now, and actions on it, over HTTP.
//!
//! ```text
//! doors            the listeners: address and Unix socket, opened before root is given up
//!   ├─ socket, tls   what they need
//!   └─ site        the resources
//!        ├─ access     who may use them
//!        ├─ actions    POST /api/...
//!        │    └─ orders   for the loop of the server
//!        ├─ document   /status.json
//!        └─ page, form    the files of the page, and the form for the secret
//! ```

mod access;
mod actions;
mod document;
mod doors;
mod form;
mod orders;
mod page;
mod site;
mod socket;
mod tls;

pub use access::AdminTokenError;
pub(crate) use document::Facts;
pub use doors::AdminError;
pub(crate) use doors::{Doors, MetricsSite, examine, socket_path};
pub(crate) use orders::{Done, Order, ReloadReport, ServerAction};
pub use socket::AdminSocketError;
pub(crate) use socket::default_path;
pub use tls::AdminTlsError;
