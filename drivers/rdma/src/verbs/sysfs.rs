//! Where sysfs is, and how the kernel writes numbers there.

use std::path::PathBuf;

/// `SYSFS_PATH` names another directory than `/sys`, as for libibverbs (sysfs.c of rdma-core), which must find the same devices.
pub(super) fn root() -> PathBuf {
    std::env::var_os("SYSFS_PATH").map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// The directory of RDMA devices.
pub(super) fn devices() -> PathBuf {
    root().join("class/infiniband")
}

/// A P_Key such as `0xffff`.
pub(super) fn hexadecimal(text: &str) -> Option<u16> {
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}
