//! Files as the account that owns them.
//!
//! The server has no rights of its own worth having. A [`Monitor`], started as root before there is a
//! thread or a network, starts a broker for each active account: a process with the account's user, its
//! groups, and nothing else. The broker opens, lists and renames beneath the account's root, and passes
//! open descriptors back, over which the server moves bytes without further requests. So the kernel
//! decides what an account may do, and files belong to it.
//!
//! [`Accounts`] is the server's side: brokers are started at the first login, end when they are idle,
//! and come back. [`AccountStorage`] is a [`Storage`](gridhaul_storage::Storage) like any other.
//! Without root there is one account, the server's own ([`open_own`]).
//!
//! The monitor also opens files for the server itself that only root may read, from a list that it was
//! started with: a host key that was renewed, a password file.
//!
//! What it will not do: pass judgement on passwords. No login happens here.

mod account;
mod broker;
mod children;
mod client;
mod facts;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod listed;
mod messages;
mod monitor;
mod options;
mod own;
mod pam;
mod policy;
pub mod process;
mod refusal;
pub mod socket;

pub use client::{
    AccountError, AccountRequest, AccountStorage, Accounts, BrokerLimits, BrokerSource,
};
pub use listed::{OpenError, may_be_opened};
pub use monitor::{Monitor, MonitorError};
pub use options::MonitorOptions;
pub use own::{open_own, own_directory};
pub use pam::pam_service_is_described;
pub use policy::AccountPolicy;
pub use refusal::Refusal;
