//! Privileges that a broker drops before the first request. `gridhaul-sandbox` restricts files and system calls.

use gridhaul_sandbox::SandboxError;
use rustix::thread::CapabilitySet;

/// The capabilities that make root a superuser in file systems. The monitor keeps them if root logins are allowed.
pub(crate) const ROOTS_RIGHTS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Drops the monitor's capabilities, which the kernel has done already for all accounts except root. Also makes the process
/// not dumpable, so that other processes of the account cannot trace it; the default depends on `fs.suid_dumpable`.
pub(super) fn keep_rights_of(uid: u32) -> Result<(), SandboxError> {
    let kept = match uid {
        0 => ROOTS_RIGHTS,
        _ => CapabilitySet::empty(),
    };
    gridhaul_sandbox::keep_capabilities(kept)?;
    gridhaul_sandbox::give_up_new_rights()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use gridhaul_storage::{PosixOptions, PosixStorage, Storage as _, StorageError};

    use gridhaul_sandbox::broker::{filter, to_directory};
    use gridhaul_sandbox::landlock_abi;
    use rustix::io::Errno;

    /// Runs `work` in a thread of its own, because confinement cannot be undone.
    fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    fn number(result: std::io::Result<impl Sized>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    /// Whether this kernel has Landlock; prints a message if not.
    fn kernel_has_landlock() -> bool {
        let has = landlock_abi().is_some();
        if !has {
            gridhaul_skip::skipped("this kernel has no Landlock, or an old one");
        }
        has
    }

    #[test]
    fn files_outside_the_root_cannot_be_opened() {
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
            let filter = filter(read_only).unwrap();
            alone(|| {
                let own = rustix::process::getpid();
                filter.enforce_on_this_thread().unwrap();
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
