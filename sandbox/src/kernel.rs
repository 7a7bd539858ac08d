//! What the kernel offers to confine processes with.

/// The version of Landlock's interface; `None` where the kernel has no Landlock, it is off, or it is older than
/// Linux 5.19, where it would forbid every rename between directories.
pub fn landlock_abi() -> Option<i32> {
    /// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h.
    const VERSION: libc::c_uint = 1;
    /// The first that knows `LANDLOCK_ACCESS_FS_REFER`.
    const WITH_RENAMES: libc::c_long = 2;

    // SAFETY: with this flag the call reads no memory, and changes nothing.
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

/// Whether the kernel filters system calls by programs (`CONFIG_SECCOMP_FILTER`).
pub fn has_seccomp_filters() -> bool {
    /// `SECCOMP_GET_ACTION_AVAIL` of linux/seccomp.h, since Linux 4.14.
    const ACTION_AVAIL: libc::c_uint = 2;

    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one number, which outlives it, and changes nothing.
    let available =
        unsafe { libc::syscall(libc::SYS_seccomp, ACTION_AVAIL, 0_u32, &raw const action) };
    available == 0
}
