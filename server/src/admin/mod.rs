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
//!        │    └─ nodes    data nodes
//!        └─ page       the files of the page
//! ```

mod access;
mod actions;
mod document;
mod doors;
mod nodes;
mod orders;
mod page;
mod site;
mod socket;
mod tls;

pub use access::AdminTokenError;
pub(crate) use document::Facts;
pub use doors::AdminError;
pub(crate) use doors::{Doors, MetricsSite, examine};
pub(crate) use orders::{Done, DrainReport, Order, ReloadReport, ServerAction};
pub use socket::AdminSocketError;
pub(crate) use socket::{RUN, default_path, examine as examine_socket, path_of, run_directory_of};
pub use tls::AdminTlsError;
