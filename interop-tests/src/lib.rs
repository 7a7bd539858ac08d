//! gridhaul against programs of other projects.
//!
//! ```text
//!   cases                    bench                    guest                    kills
//!   the table of cases,      measurements:            user-mode Linux with     data nodes that are
//!   run against both         make bench, soak,        RDMA devices in          killed, and networks
//!   servers, and its report  bench-rdma, bench-crowds software                 that are cut: make kills
//!        |                        |                        |                        |
//!        +------------------------+------------------------+------------------------+
//!                                             |
//!                                          support
//!                      client programs, servers, certificates, raw sessions
//! ```
//!
//! The [table](cases::table) of cases drives `globus-url-copy`, gfal2, `curl`, `lftp` and Python's `ftplib`
//! against our server and against the real `globus-gridftp-server`. The real server is the oracle: a
//! case that it fails is worthless, unless the case documents the deviation of the real server and the
//! correct behaviour. The tests of this crate run the table; `interop-report` prints it.
//!
//! [`Pki`] has certificates, keys and proxies of users that both servers accept, and of some that no
//! server may accept. [`Launch`] starts either server with the same calls, and [`Client`] runs a
//! client program within a time limit. Both kill their processes when they are dropped, also after a panic.
//! [`raw`] is a client that sends any bytes that a test chooses.
//!
//! ```no_run
//! use gridhaul_interop::raw::{Control, get_stream};
//! use gridhaul_interop::{Kind, Launch};
//!
//! let root = tempfile::tempdir()?;
//! std::fs::write(root.path().join("file"), "content")?;
//! let server = Launch::new(Kind::Gridhaul, root.path()).start()?;
//! let mut control = Control::anonymous(server.address())?;
//! assert_eq!(get_stream(&mut control, "/file")?, b"content");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bench;
pub mod cases;
pub mod guest;
pub mod kills;
pub mod support;

pub use support::{
    Accounts, BadCredential, BadKind, Client, ClientError, Cluster, Copier, Failure, Finished,
    HOST, Kind, Launch, LaunchError, Node, NodeLaunch, NodeSite, PASSWORD, PASSWORD_USER, Pki,
    PkiError, ProgramError, Relay, Server, SshHost, UserCredential, UserKind, check,
    chown_to_nobody, content, gridhaul_client, gridhaul_program, raw, url, write_program,
};
