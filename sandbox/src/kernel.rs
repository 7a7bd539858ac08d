//! Detects the kernel's support for confinement.

/// The version of the Landlock ABI. `None` if the kernel has no Landlock, if it is disabled, or before Linux 5.19, where
/// it would forbid every rename between directories.
pub fn landlock_abi() -> Option<i32> {
    /// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h.
    const VERSION: libc::c_uint = 1;
    /// The first version with `LANDLOCK_ACCESS_FS_REFER`.
    const WITH_RENAMES: libc::c_long = 2;

    // SAFETY: with this flag the call accesses no memory and has no side effect.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    i32::try_from(version)
        .ok()
        .filter(|&version| libc::c_long::from(version) >= WITH_RENAMES)
}

/// Whether the kernel supports seccomp filters (`CONFIG_SECCOMP_FILTER`).
pub fn has_seccomp_filters() -> bool {
    /// `SECCOMP_GET_ACTION_AVAIL` of linux/seccomp.h, since Linux 4.14.
    const ACTION_AVAIL: libc::c_uint = 2;

    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one `u32`, which outlives it, and has no side effect.
    let available =
        unsafe { libc::syscall(libc::SYS_seccomp, ACTION_AVAIL, 0_u32, &raw const action) };
    available == 0
}
