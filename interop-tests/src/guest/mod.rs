//! A guest: a Linux kernel that runs as a program, user-mode Linux, with RDMA devices in software.
//!
//! The kernels of most machines have no such devices, and a test must not reconfigure their networks. A guest boots in
//! two seconds, needs neither privileges nor virtualization, and sees the host's files, which it cannot change. Its
//! kernel is built once, from Debian's source (`guest/build-kernel`). A guest that does not boot is an error,
//! never a reason to skip a test.

mod boot;
mod end;
mod error;
mod inside;
mod kernel;
mod neighbour;

pub use self::boot::{Guest, Report};
pub use self::error::GuestError;
pub use self::inside::{inside, inside_with_disk, on_two_hosts};
pub use self::neighbour::Neighbour;
pub use crate::support::guest_network::{DISK, LEFT, LEFT_6, Network, RIGHT, RIGHT_6};
pub use crate::support::policer::Policer;
