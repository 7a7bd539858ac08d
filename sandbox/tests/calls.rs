//! System calls that each process can and cannot make under its filter. Each test runs in a thread of its own, because a
//! filter cannot be removed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::time::Duration;

use gridhaul_sandbox::server::Needs;
use gridhaul_sandbox::{Filter, broker, front, launcher, login, logs, measuring, monitor, server};

const EPERM: Option<i32> = Some(libc::EPERM);
const ENOSYS: Option<i32> = Some(libc::ENOSYS);

/// Runs `work` in a thread of its own, under the filter.
fn under(filter: &Filter, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            filter.enforce_on_this_thread().unwrap();
            work();
        });
        confined.join().unwrap();
    });
}

/// The error of a system call with these arguments; `None` if it succeeds.
fn call(number: i64, arguments: [usize; 4]) -> Option<i32> {
    let [a, b, c, d] = arguments;
    // SAFETY: every call of the tests is refused by a filter, or has arguments that the kernel refuses, and none has pointers
    // to memory.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    (result == -1).then(|| io::Error::last_os_error().raw_os_error().unwrap())
}

fn number<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn socket(family: i32, kind: i32, protocol: i32) -> Option<i32> {
    let argument = |value: i32| usize::try_from(value).unwrap();
    call(
        libc::SYS_socket,
        [argument(family), argument(kind), argument(protocol), 0],
    )
}

/// Calls that would escape a sandbox. They are made with arguments that have no effect.
const NEVER: &[(&str, i64)] = &[
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("kcmp", libc::SYS_kcmp),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("setns", libc::SYS_setns),
    ("unshare", libc::SYS_unshare),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("personality", libc::SYS_personality),
    ("acct", libc::SYS_acct),
    ("quotactl", libc::SYS_quotactl),
    ("syslog", libc::SYS_syslog),
    ("clock_settime", libc::SYS_clock_settime),
];

/// Further calls that processes other than the monitor must not make.
const NEVER_BUT_MONITOR: &[(&str, i64)] = &[
    ("kill", libc::SYS_kill),
    ("tkill", libc::SYS_tkill),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("setuid", libc::SYS_setuid),
    ("setgid", libc::SYS_setgid),
    ("setresuid", libc::SYS_setresuid),
    ("setresgid", libc::SYS_setresgid),
    ("setgroups", libc::SYS_setgroups),
    ("capset", libc::SYS_capset),
    ("mknodat", libc::SYS_mknodat),
    ("memfd_create", libc::SYS_memfd_create),
    ("shmat", libc::SYS_shmat),
    ("seccomp", libc::SYS_seccomp),
];

fn refuses_all(calls: &[(&str, i64)]) {
    for (name, number) in calls {
        assert_eq!(call(*number, [usize::MAX; 4]), EPERM, "{name}");
    }
}

fn confined() -> Vec<(&'static str, Filter)> {
    let all = Needs {
        rdma: true,
        io_uring: true,
    };
    vec![
        ("server", server::filter(Needs::default()).unwrap()),
        ("server with everything", server::filter(all).unwrap()),
        ("front", front::filter().unwrap()),
        ("login", login::filter().unwrap()),
        ("logs", logs::filter().unwrap()),
        ("broker", broker::filter(false).unwrap()),
        ("broker to read", broker::filter(true).unwrap()),
        ("measuring", measuring::filter().unwrap()),
    ]
}

#[test]
fn no_process_gets_out() {
    let parent = rustix::process::getppid().unwrap().as_raw_pid();
    let parent = usize::try_from(parent).unwrap();
    for (process, filter) in confined() {
        eprintln!("{process}");
        under(&filter, || {
            refuses_all(NEVER);
            refuses_all(NEVER_BUT_MONITOR);
            assert_eq!(number(Command::new("/bin/true").spawn()), EPERM);
            assert_eq!(call(libc::SYS_tgkill, [parent, parent, 0, 0]), EPERM);
        });
    }
}

#[test]
fn later_calls_fail_as_on_older_kernels() {
    for (process, filter) in confined() {
        eprintln!("{process}");
        under(&filter, || {
            for late in [
                libc::SYS_clone3,
                libc::SYS_pidfd_open,
                libc::SYS_pidfd_getfd,
                libc::SYS_open_tree,
                libc::SYS_mount_setattr,
                libc::SYS_process_madvise,
                libc::SYS_memfd_secret,
                // A number without a call.
                511,
            ] {
                assert_eq!(call(late, [usize::MAX; 4]), ENOSYS, "{late}");
            }
        });
    }
}

#[test]
fn the_monitor_and_its_children_do_not_get_out_either() {
    for executes in [false, true] {
        under(&monitor::filter(executes).unwrap(), || {
            let calls = NEVER
                .iter()
                .filter(|(name, _)| !executes || !name.starts_with("exec"));
            refuses_all(&calls.copied().collect::<Vec<_>>());
            for late in [
                libc::SYS_pidfd_getfd,
                libc::SYS_open_tree,
                libc::SYS_io_uring_setup,
            ] {
                assert_eq!(call(late, [usize::MAX; 4]), EPERM, "{late}");
            }
            let ran = Command::new("/bin/true").status();
            assert_eq!(ran.is_ok(), executes, "{ran:?}");
        });
    }
}

#[test]
fn the_launcher_executes_programs_and_does_nothing_else_that_the_server_does_not() {
    under(&launcher::filter().unwrap(), || {
        let calls = NEVER.iter().filter(|(name, _)| !name.starts_with("exec"));
        refuses_all(&calls.copied().collect::<Vec<_>>());
        let ran = Command::new("/bin/true").status();
        assert!(ran.unwrap().success());
    });
}

#[test]
fn a_server_has_networks_files_and_threads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    under(&server::filter(Needs::default()).unwrap(), || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        drop(client.join().unwrap());
        drop(UdpSocket::bind("127.0.0.1:0").unwrap());
        drop(UnixStream::pair().unwrap());
        drop(UnixDatagram::unbound().unwrap());
        fs::write(&path, "x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        std::panic::catch_unwind(|| panic!("it is told")).unwrap_err();
    });
}

#[test]
fn a_server_has_exact_timers_and_a_front_process_has_not() {
    let exact = || call(libc::SYS_prctl, [29, 1, 0, 0]);
    assert_eq!(libc::PR_SET_TIMERSLACK, 29);
    under(&server::filter(Needs::default()).unwrap(), || {
        assert_eq!(exact(), None);
    });
    under(&front::filter().unwrap(), || assert_eq!(exact(), EPERM));
}

#[test]
fn a_server_has_only_the_sockets_that_it_needs() {
    for rdma in [false, true] {
        let needs = Needs {
            rdma,
            ..Needs::default()
        };
        under(&server::filter(needs).unwrap(), || {
            assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), None);
            let devices = socket(libc::AF_NETLINK, libc::SOCK_RAW, 20);
            assert_eq!(devices == EPERM, !rdma, "{devices:?}");
            for (family, kind, protocol) in [
                (libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
                (libc::AF_VSOCK, libc::SOCK_STREAM, 0),
                (libc::AF_PACKET, libc::SOCK_RAW, 0),
                (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
                (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
                (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
                (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
            ] {
                assert_eq!(socket(family, kind, protocol), EPERM, "{family} {protocol}");
            }
        });
    }
}

#[test]
fn a_server_with_adapters_moves_memory_and_threads_to_their_nodes() {
    for rdma in [false, true] {
        let needs = Needs {
            rdma,
            ..Needs::default()
        };
        under(&server::filter(needs).unwrap(), || {
            // Without processors, and from the middle of a page on.
            let moved = call(libc::SYS_sched_setaffinity, [0; 4]);
            assert_eq!(moved == EPERM, !rdma, "{moved:?}");
            // SAFETY: the kernel refuses the address.
            let placed = unsafe { libc::syscall(libc::SYS_mbind, 1, 0, 0, 0, 0, 0) };
            assert_eq!(placed, -1);
            let placed = io::Error::last_os_error().raw_os_error();
            assert_eq!(placed == EPERM, !rdma, "{placed:?}");
            let another = call(libc::SYS_sched_setaffinity, [1, 0, 0, 0]);
            assert_eq!(another, EPERM);
        });
    }
}

#[test]
fn io_uring_is_permitted_if_it_is_requested() {
    for (io_uring, expected) in [(false, ENOSYS), (true, Some(libc::EFAULT))] {
        let needs = Needs {
            io_uring,
            ..Needs::default()
        };
        under(&server::filter(needs).unwrap(), || {
            let made = call(libc::SYS_io_uring_setup, [1, 0, 0, 0]);
            // A kernel may forbid it as well (kernel.io_uring_disabled).
            assert!(made == expected || (io_uring && made == EPERM), "{made:?}");
        });
    }
}

#[test]
fn memory_is_written_or_executed_but_not_both() {
    const EXECUTE: i32 = libc::PROT_EXEC;
    const BOTH: i32 = libc::PROT_WRITE | libc::PROT_EXEC;
    const PAGE: usize = 4096;

    let library = fs::File::open("/proc/self/exe").unwrap();
    let map = |protection: i32, file: Option<&fs::File>| {
        let (kind, file) = match file {
            Some(file) => (0, file.as_raw_fd()),
            None => (libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: it maps new memory, which is not used otherwise.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | kind;
            libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, file, 0)
        };
        (page != libc::MAP_FAILED).then_some(page)
    };
    for (process, filter) in confined() {
        eprintln!("{process}");
        under(&filter, || {
            assert!(map(BOTH, None).is_none());
            assert!(map(BOTH, Some(&library)).is_none());
            assert!(map(EXECUTE | libc::PROT_READ, None).is_none());
            assert!(map(libc::PROT_READ, Some(&library)).is_some());
            // Only these load libraries at run time: modules of name services, and drivers of adapters.
            let loads = process.starts_with("server") || process == "measuring";
            let loaded = map(EXECUTE | libc::PROT_READ, Some(&library)).is_some();
            assert_eq!(loaded, loads);
            let page = map(libc::PROT_WRITE, None).unwrap();
            // SAFETY: the page was mapped above, and is not used otherwise.
            let executable = unsafe { libc::mprotect(page, PAGE, EXECUTE | libc::PROT_READ) };
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!((executable, error), (-1, EPERM));
        });
    }
}

/// linux/fcntl.h.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

fn control(descriptor: &impl AsRawFd, command: i32, argument: i32) -> Option<i32> {
    // SAFETY: none of the tested commands accesses memory.
    let result = unsafe { libc::fcntl(descriptor.as_raw_fd(), command, argument) };
    (result == -1).then(|| io::Error::last_os_error().raw_os_error().unwrap())
}

#[test]
fn no_process_has_the_kernel_signal_others() {
    let (socket, _peer) = UnixStream::pair().unwrap();
    let parent = rustix::process::getppid().unwrap().as_raw_pid();
    for (process, filter) in confined() {
        eprintln!("{process}");
        under(&filter, || {
            for (command, argument) in [
                (libc::F_SETOWN, parent),
                (F_SETOWN_EX, 0),
                (F_SETSIG, libc::SIGURG),
                (libc::F_SETFL, libc::O_RDWR | libc::O_ASYNC),
                (libc::F_SETLEASE, libc::F_RDLCK),
                (libc::F_NOTIFY, 0),
                (libc::F_SETLK, 0),
            ] {
                assert_eq!(control(&socket, command, argument), EPERM, "{command}");
            }
            for request in [FIOASYNC, FIOSETOWN, SIOCSPGRP] {
                assert_eq!(call(libc::SYS_ioctl, [usize::MAX, request, 0, 0]), EPERM);
            }
        });
    }
}

/// asm-generic/ioctls.h and asm-generic/sockios.h.
const FIOASYNC: usize = 0x5452;
const FIOSETOWN: usize = 0x8901;
const SIOCSPGRP: usize = 0x8902;

#[test]
fn a_server_copies_descriptors_and_sets_whether_they_block() {
    let (socket, _peer) = UnixStream::pair().unwrap();
    let (_reader, writer) = io::pipe().unwrap();
    under(&server::filter(Needs::default()).unwrap(), || {
        drop(socket.try_clone().unwrap());
        assert_eq!(control(&socket, libc::F_GETFD, 0), None);
        assert_eq!(control(&socket, libc::F_SETFD, libc::FD_CLOEXEC), None);
        assert_eq!(control(&socket, libc::F_GETFL, 0), None);
        let unblocked = libc::O_RDWR | libc::O_NONBLOCK;
        assert_eq!(control(&socket, libc::F_SETFL, unblocked), None);
        assert_eq!(control(&writer, libc::F_SETPIPE_SZ, 4096), None);
    });
}

#[test]
fn sockets_run_no_programs() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let set = |option: i32| {
        let one = 1_i32;
        // SAFETY: the kernel reads at most the four bytes of `one`.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const one).cast(),
                4,
            )
        };
        (result == -1).then(|| io::Error::last_os_error().raw_os_error().unwrap())
    };
    for (process, filter) in confined() {
        eprintln!("{process}");
        under(&filter, || {
            for option in [
                libc::SO_ATTACH_FILTER,
                libc::SO_ATTACH_BPF,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                libc::SO_ATTACH_REUSEPORT_EBPF,
            ] {
                assert_eq!(set(option), EPERM, "{option}");
            }
            let kept = set(libc::SO_KEEPALIVE);
            let has_none = ["broker", "broker to read", "logs"].contains(&process);
            assert_eq!(kept.is_none(), !has_none, "{kept:?}");
        });
    }
}

#[test]
fn limits_and_terminals_are_left_alone() {
    under(&server::filter(Needs::default()).unwrap(), || {
        let current = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let set = rustix::process::setrlimit(rustix::process::Resource::Nofile, current);
        assert_eq!(set, Err(rustix::io::Errno::PERM));
        let type_in = usize::try_from(libc::TIOCSTI).unwrap();
        assert_eq!(call(libc::SYS_ioctl, [0, type_in, 0, 0]), EPERM);
        let unshared = usize::try_from(libc::CLONE_NEWUSER).unwrap();
        assert_eq!(call(libc::SYS_clone, [unshared, 0, 0, 0]), EPERM);
    });
}

fn descriptor(socket: &impl AsRawFd) -> usize {
    usize::try_from(socket.as_raw_fd()).unwrap()
}

#[test]
fn a_front_process_opens_nothing_and_connects_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    fs::write(&path, "x").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _client = TcpStream::connect(address).unwrap();
    under(&front::filter().unwrap(), || {
        assert_eq!(number(fs::read(&path)), EPERM);
        assert_eq!(number(fs::metadata(&path)), EPERM);
        assert_eq!(number(fs::read_dir(directory.path())), EPERM);
        assert_eq!(number(fs::remove_file(&path)), EPERM);
        assert_eq!(number(TcpStream::connect(address)), EPERM);
        assert_eq!(number(TcpListener::bind("127.0.0.1:0")), EPERM);
        assert_eq!(number(UnixDatagram::unbound()), EPERM);
        assert_eq!(number(UnixDatagram::pair()), EPERM);
        // With MSG_FASTOPEN even a listening socket connects, without a call of connect(2).
        let (socket, fast) = (descriptor(&listener), 0x2000_0000);
        assert_eq!(call(libc::SYS_sendto, [socket, 0, 0, fast]), EPERM);
        assert_eq!(call(libc::SYS_sendmsg, [socket, 0, fast, 0]), EPERM);
        assert_eq!(call(libc::SYS_sendmmsg, [socket, 0, 0, fast]), EPERM);
        let (here, mut there) = UnixStream::pair().unwrap();
        assert_eq!((&here).write(b"x").unwrap(), 1);
        assert_eq!(there.read(&mut [0]).unwrap(), 1);
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        std::thread::spawn(|| {}).join().unwrap();
    });
}

#[test]
fn a_login_process_has_no_way_to_a_network_and_changes_no_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    fs::write(&path, "x").unwrap();
    under(&login::filter().unwrap(), || {
        assert_eq!(number(TcpListener::bind("127.0.0.1:0")), EPERM);
        assert_eq!(number(UnixDatagram::unbound()), EPERM);
        assert_eq!(number(fs::remove_file(&path)), EPERM);
        assert_eq!(number(fs::create_dir(directory.path().join("d"))), EPERM);
        assert_eq!(fs::read(&path).unwrap(), b"x");
        drop(UnixStream::pair().unwrap());
        std::thread::spawn(|| {}).join().unwrap();
    });
}

#[test]
fn a_measuring_process_listens_and_neither_connects_nor_changes_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    fs::write(&path, "x").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let (connect, connected) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(connected.recv().unwrap()).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read(&mut [0]).unwrap()
    });
    under(&measuring::filter().unwrap(), || {
        assert_eq!(number(TcpStream::connect(address)), EPERM);
        assert_eq!(number(UdpSocket::bind("127.0.0.1:0")), EPERM);
        assert_eq!(number(UnixDatagram::unbound()), EPERM);
        assert_eq!(number(UnixStream::connect("/no/such/socket")), EPERM);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // With MSG_FASTOPEN even a listening socket connects, without a call of connect(2).
        let (listening, fast) = (descriptor(&listener), 0x2000_0000);
        assert_eq!(call(libc::SYS_sendto, [listening, 0, 0, fast]), EPERM);
        assert_eq!(call(libc::SYS_sendmsg, [listening, 0, fast, 0]), EPERM);
        assert_eq!(call(libc::SYS_sendmmsg, [listening, 0, 0, fast]), EPERM);
        assert_eq!(number(fs::remove_file(&path)), EPERM);
        assert_eq!(number(fs::create_dir(directory.path().join("d"))), EPERM);
        assert_eq!(fs::read(&path).unwrap(), b"x");
        // The kernel tells its addresses, and its devices.
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), None);
        assert_ne!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 20), EPERM);
        connect.send(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(accepted.read(&mut [0]).unwrap(), 1);
        accepted.write_all(b"x").unwrap();
        std::thread::spawn(|| {}).join().unwrap();
    });
    assert_eq!(peer.join().unwrap(), 1);
}

/// What a process could do to a log that it has open for appending, without being able to open it. The server may make these
/// calls, so it must not have a log.
#[test]
fn a_log_process_appends_and_neither_cuts_nor_rewrites() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut options = fs::File::options();
    let log = options.append(true).create(true).open(&path).unwrap();
    (&log).write_all(b"who did it\n").unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    under(&logs::filter().unwrap(), || {
        (&log).write_all(b"more\n").unwrap();
        assert_eq!(control(&log, libc::F_SETFL, libc::O_WRONLY), EPERM);
        let file = descriptor(&log);
        assert_eq!(call(libc::SYS_ftruncate, [file, 0, 0, 0]), EPERM);
        let punch = usize::try_from(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE);
        let punched = call(libc::SYS_fallocate, [file, punch.unwrap(), 0, 4]);
        assert_eq!(punched, EPERM);
        for write in [libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2] {
            assert_eq!(call(write, [file, 0, 0, 0]), EPERM);
        }
        assert_eq!(number(fs::File::options().write(true).open(&path)), EPERM);
        assert_eq!(number(fs::remove_file(&path)), EPERM);
        assert_eq!(number(TcpListener::bind("127.0.0.1:0")), EPERM);
        // Lines come by sockets.
        let control = rustix::net::SendFlags::empty();
        rustix::net::send(&here, b"line", control).unwrap();
        std::thread::spawn(|| {}).join().unwrap();
    });
    drop(there);
    assert_eq!(fs::read(&path).unwrap(), b"who did it\nmore\n");
}
