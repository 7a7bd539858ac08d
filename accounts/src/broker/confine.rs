//! What a broker gives up before it reads the first request.
//!
//! The account's own rights are the first fence, and `openat2` beneath the root is the second. What
//! is here holds if the broker's own code is made to do something else: the kernel opens nothing outside the
//! root (Landlock), and does nothing but what files need (seccomp).
//!
//! A forbidden system call fails with `EPERM` and does not end the process: a C library that one day
//! uses another call for the same thread or memory work then costs one call, not every session of
//! the account.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope, make_bitflags,
};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// What root needs to be root in a file system. The monitor keeps it if root is allowed.
pub(crate) const ROOTS_RIGHTS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Gives up what the monitor had. The kernel has done so already for any account but root's. Other
/// processes of the account may not look into this one, which the kernel leaves to `fs.suid_dumpable`.
pub(super) fn keep_rights_of(uid: u32) -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let kept = match uid {
        0 => ROOTS_RIGHTS,
        _ => CapabilitySet::empty(),
    };
    let permitted = rustix::thread::capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)
}

/// Leaves this thread, and those that it starts, the files beneath `root` as far as the kernel can: not
/// at all before Linux 5.19, where Landlock would forbid every rename between directories.
pub(super) fn to_directory(root: OwnedFd, read_only: bool) -> Result<(), String> {
    /// The newest that is known here. Kernels with an older one enforce what they know.
    const NEWEST: ABI = ABI::V7;

    // Files may be renamed and removed whatever they are; that devices and the like are made is
    // forbidden among the calls.
    let all = AccessFs::from_all(NEWEST);
    let needless = AccessFs::Execute | AccessFs::IoctlDev;
    let beneath: BitFlags<AccessFs> = if read_only {
        make_bitflags!(AccessFs::{ReadFile | ReadDir})
    } else {
        all & !needless
    };
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)
        .map(|rules| rules.set_compatibility(CompatLevel::BestEffort))
        .and_then(|rules| rules.handle_access(all))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.add_rule(PathBeneath::new(root, beneath)))
        .and_then(|rules| rules.restrict_self());
    restricted.map(drop).map_err(|error| error.to_string())
}

/// Leaves all threads of this process the system calls that files need.
pub(super) fn to_calls(read_only: bool) -> Result<(), String> {
    let program = program(read_only).map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

/// Who needs what. Anything else fails.
fn program(read_only: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.extend(ALWAYS.iter().map(|&call| (call, Vec::new())));
    if !read_only {
        rules.extend(CHANGING.iter().map(|&call| (call, Vec::new())));
    }
    // The words of a panic, on standard error.
    rules.insert(libc::SYS_write, vec![argument(0, STANDARD_ERROR)?]);
    // std asks whether descriptors are still open in debug builds; nothing else is done with fcntl.
    rules.insert(libc::SYS_fcntl, vec![argument(1, GET_FLAGS)?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}

const STANDARD_ERROR: u64 = 2;
const GET_FLAGS: u64 = 1;

/// The call with this value in an argument.
fn argument(index: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let is = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![is])
}

const ALWAYS: &[i64] = &[
    // Requests and answers. There is no way to another socket.
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    // Whether a removal of a tree is cancelled.
    libc::SYS_recvfrom,
    // Every path: `openat2` beneath the root.
    libc::SYS_openat2,
    libc::SYS_close,
    // Sizes and kinds of opened files.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    // Whether a file is one of the kernel's own file systems.
    libc::SYS_fstatfs,
    // Facts and listings.
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    // The checksums that files carry.
    libc::SYS_getxattr,
    // A large file is read from one end to the other.
    libc::SYS_fadvise64,
    // Locks between threads.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    // The end of a thread, and of the process.
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // A call that a stopped and continued process repeats; a signal handler's end.
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    // A panic names its thread.
    libc::SYS_gettid,
];

const CHANGING: &[i64] = &[
    // Removal of trees, which goes by names in held directories.
    libc::SYS_openat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    #[cfg(not(target_arch = "riscv64"))]
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_ftruncate,
    libc::SYS_setxattr,
    libc::SYS_removexattr,
];

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use gridhaul_storage::{PosixOptions, PosixStorage, Storage as _, StorageError};

    use super::*;

    /// In a thread of its own: it is confined for good.
    fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    fn number(result: std::io::Result<impl Sized>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    /// Whether this kernel can keep a thread in a directory; says so if not.
    fn kernel_has_landlock() -> bool {
        let directory = tempfile::tempdir().unwrap();
        let root = File::open(directory.path()).unwrap();
        let confined = alone(|| {
            to_directory(root.into(), false).unwrap();
            File::open("/etc/passwd").is_err()
        });
        if !confined {
            eprintln!("skipped: this kernel has no Landlock, or an old one");
        }
        confined
    }

    #[test]
    fn files_outside_the_root_cannot_be_opened_whoever_owns_them() {
        if !kernel_has_landlock() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("inside"), "x").unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        let root = File::open(directory.path()).unwrap();
        alone(|| {
            to_directory(root.as_fd().try_clone_to_owned().unwrap(), false).unwrap();
            fs::read(directory.path().join("inside")).unwrap();
            fs::write(directory.path().join("new"), "x").unwrap();
            fs::create_dir(directory.path().join("d")).unwrap();
            fs::rename(directory.path().join("new"), directory.path().join("d/new")).unwrap();
            fs::remove_dir_all(directory.path().join("d")).unwrap();
            let refused = Some(libc::EACCES);
            assert_eq!(number(fs::read(outside.path())), refused);
            assert_eq!(number(fs::write(outside.path(), "y")), refused);
            assert_eq!(number(fs::remove_file(outside.path())), refused);
            assert_eq!(number(fs::read_dir("/etc")), refused);
            let program = std::process::Command::new("/bin/true").status();
            assert_eq!(number(program), refused);
        });
    }

    #[test]
    fn a_read_only_root_cannot_be_written() {
        if !kernel_has_landlock() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("inside");
        fs::write(&inside, "x").unwrap();
        let root = File::open(directory.path()).unwrap();
        alone(|| {
            to_directory(root.into(), true).unwrap();
            fs::read(&inside).unwrap();
            let refused = Some(libc::EACCES);
            assert_eq!(number(fs::write(&inside, "y")), refused);
            assert_eq!(number(fs::remove_file(&inside)), refused);
            assert_eq!(number(fs::create_dir(directory.path().join("d"))), refused);
        });
    }

    #[test]
    fn calls_that_files_do_not_need_fail() {
        let directory = tempfile::tempdir().unwrap();
        let storage = PosixStorage::open(directory.path(), PosixOptions::default()).unwrap();
        fs::write(directory.path().join("f"), "x").unwrap();
        for read_only in [false, true] {
            let program = program(read_only).unwrap();
            alone(|| {
                let own = rustix::process::getpid();
                seccompiler::apply_filter(&program).unwrap();
                storage.open_read("f".as_ref()).unwrap();
                storage.stat("f".as_ref()).unwrap();
                let made = storage.make_directory("d".as_ref()).is_ok();
                let removed = storage.remove_tree("d".as_ref(), &|| false).is_ok();
                assert_eq!((made, removed), (!read_only, !read_only));
                let is_allowed = |result: Result<(), StorageError>| {
                    result.err().is_none_or(|error| error.errno != Errno::PERM)
                };
                let read = storage.checksum_attribute("f".as_ref());
                assert!(is_allowed(read.map(drop)));
                for value in [Some(&b"x"[..]), None] {
                    let set = storage.set_checksum_attribute("f".as_ref(), value);
                    assert_eq!(is_allowed(set), !read_only);
                }

                let refused = Some(libc::EPERM);
                let listener = std::net::TcpListener::bind("127.0.0.1:0");
                assert_eq!(number(listener), refused);
                let socket = std::os::unix::net::UnixDatagram::unbound();
                assert_eq!(number(socket), refused);
                assert_eq!(
                    number(std::process::Command::new("/bin/true").spawn()),
                    refused
                );
                assert_eq!(number(std::thread::Builder::new().spawn(|| {})), refused);
                let kill = rustix::process::test_kill_process(own);
                assert_eq!(number(kill.map_err(Into::into)), refused);
                let chroot = rustix::process::chroot("/");
                assert_eq!(number(chroot.map_err(Into::into)), refused);
                // SAFETY: it attaches to no process, even if it is allowed.
                let traced = unsafe { libc::ptrace(libc::PTRACE_ATTACH, 0, 0, 0) };
                assert_eq!(
                    (traced, std::io::Error::last_os_error().raw_os_error()),
                    (-1, refused)
                );
            });
        }
    }
}
