//! A data node that consists of several nodes.
//!
//! ```text
//!   Cluster ── attach ──> ClusterSession ──┬─ storage ──> one member; another one when it is lost
//!      │                                   ├─ port ─────> the members that hold listeners, peers and channels
//!      └─ members, choice                  └─ transfer ─> one member: single
//!                                                         several:    joint ──> companions, merge
//! ```
//!
//! All members see the same files: Lustre, GPFS, NFS. The cluster does not know how a member is reached. It takes its state
//! from a [`StateHandle`], and expects three things of a member besides the contract of [`gridhaul_transfer::DataNode`]:
//!
//! - `connect`, `release`, `look_ahead`, `load`, `check_stack` and `listens_at` do not block;
//! - a transfer on a member that is lost ends with an event like any other one;
//! - a storage call that was not sent fails with `EHOSTDOWN`. Any other error counts as an answer, or as that of a call that may
//!   have been carried out.
//!
//! # Checksums
//!
//! Each member remembers checksums for itself, by identity, size, mtime and ctime of a file. What another member writes
//! changes the ctime, so a remembered value of the old content does not match. `set_modified` and `relabel` keep the values of
//! the member that carries them out; the others compute theirs again. A file system whose clients see changes of attributes late (NFS
//! with `actimeo`) must not delay them beyond an open of the file, which close-to-open consistency provides.
//!
//! # Data ports
//!
//! A member that drains, or that an administrator has drained, keeps the data ports whose addresses clients have, and gets none after
//! that.

mod attachments;
mod choice;
mod joint;
mod member;
mod meter;
mod node;
mod port;
mod ports;
mod reasons;
mod session;
mod shared;
mod single;
mod storage;
mod uploads;

pub use member::{Member, MemberError, MemberReport, MemberState, StateHandle};
pub use node::{Cluster, DuplicateMember, NoMember};
pub use shared::ClusterConfig;
pub use single::NODE_DETAIL;
