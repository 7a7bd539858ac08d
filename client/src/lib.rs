//! A GridFTP client.
//!
//! A [`session::Session`] is a login at a server. [`transfer`] copies a file between a server and this machine, whose files and
//! data channels are those of [`local::LocalMachine`], or between two servers.
//!
//! ```text
//!   listing             the entries of a directory of a server
//!     └──> transfer     a file: two ends, their agreement
//!            ├──> local        this machine: storage, drivers, data channels (gridhaul_transfer)
//!            └──> session      a server: features, settings, data ports
//!                   ├──> login       certificates, passwords
//!                   └──> control     commands, replies, their protection
//!   location            paths and URLs
//! ```
//!
//! Names in replies of a server are not trusted: local files are opened beneath a root that no name leads out of.
//!
//! The example `fetch` logs in with a certificate, and fetches files and listings. The size of a file of an anonymous server:
//!
//! ```no_run
//! use gridhaul_client::location::Location;
//! use gridhaul_client::login::{Account, Login};
//! use gridhaul_client::session::{Session, SessionConfig};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! if let Location::Remote(url) = Location::parse("ftp://dtn.example.org/data/run42.h5")? {
//!     let login = Login::Clear(Account::Anonymous);
//!     let mut session = Session::open(&url.server, login, SessionConfig::default()).await?;
//!     println!("{:?} bytes", session.size(&url.argument()?).await?);
//!     session.close().await;
//! }
//! # Ok(())
//! # }
//! ```

pub mod control;
pub mod listing;
pub mod local;
pub mod location;
pub mod login;
#[doc(hidden)]
pub mod program;
pub mod session;
pub mod transfer;
