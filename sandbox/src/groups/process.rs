//! Calls about the process itself: memory, threads, queries.

use libc::{
    SYS_brk, SYS_capget, SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_clone,
    SYS_exit, SYS_exit_group, SYS_futex, SYS_getcpu, SYS_getcwd, SYS_getegid, SYS_geteuid,
    SYS_getgid, SYS_getgroups, SYS_getpid, SYS_getppid, SYS_getpriority, SYS_getrandom,
    SYS_getresgid, SYS_getresuid, SYS_getrusage, SYS_gettid, SYS_gettimeofday, SYS_getuid,
    SYS_madvise, SYS_membarrier, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_nanosleep,
    SYS_prctl, SYS_prlimit64, SYS_restart_syscall, SYS_rseq, SYS_rt_sigaction, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_sched_getaffinity, SYS_sched_yield, SYS_set_robust_list, SYS_setpriority,
    SYS_sigaltstack, SYS_sysinfo, SYS_tgkill, SYS_uname,
};

use crate::calls::{Argument, Call, Group, flag};
use Call::{Any, If, OnSelf};

const EXECUTE: u64 = flag(libc::PROT_EXEC);
const WRITE: u64 = flag(libc::PROT_WRITE);

/// Memory for data. Executable mappings are refused, so code that an attacker writes into memory cannot run.
pub(crate) const MEMORY: Group = &[
    Any(SYS_brk),
    Any(SYS_munmap),
    Any(SYS_mremap),
    Any(SYS_madvise),
    If(SYS_mmap, &[&[Argument::bits(2, EXECUTE, 0)]]),
    If(SYS_mprotect, &[&[Argument::bits(2, EXECUTE, 0)]]),
];

/// Libraries that are loaded at run time (dlopen(3)): modules of the name service switch, which look up accounts, and
/// drivers of RDMA adapters. Code is mapped from a file, and is never writable.
pub(crate) const LIBRARIES: Group = &[If(
    SYS_mmap,
    &[&[
        Argument::bits(2, WRITE | EXECUTE, EXECUTE),
        Argument::bits(3, flag(libc::MAP_ANONYMOUS), 0),
    ]],
)];

/// Synchronization, signals and the end of threads.
pub(crate) const THREADS: Group = &[
    Any(SYS_futex),
    Any(SYS_sched_yield),
    Any(SYS_gettid),
    Any(SYS_getpid),
    Any(SYS_sigaltstack),
    Any(SYS_rt_sigprocmask),
    Any(SYS_rt_sigreturn),
    Any(SYS_restart_syscall),
    Any(SYS_exit),
    Any(SYS_exit_group),
    // abort(3). Other processes cannot be signalled.
    OnSelf(SYS_tgkill),
];

/// The flags of `clone` that start a thread of this process, without new namespaces.
const NEW_THREAD: &[&[Argument]] = &[&[Argument::bits(
    0,
    flag(libc::CLONE_THREAD) | NEW_NAMESPACES,
    flag(libc::CLONE_THREAD),
)]];

const NEW_NAMESPACES: u64 = flag(libc::CLONE_NEWNS)
    | flag(libc::CLONE_NEWCGROUP)
    | flag(libc::CLONE_NEWUTS)
    | flag(libc::CLONE_NEWIPC)
    | flag(libc::CLONE_NEWUSER)
    | flag(libc::CLONE_NEWPID)
    | flag(libc::CLONE_NEWNET);

/// New threads, their initialization by the C library, and sleeping.
pub(crate) const NEW_THREADS: Group = &[
    If(SYS_clone, NEW_THREAD),
    Any(SYS_set_robust_list),
    Any(SYS_rseq),
    Any(SYS_membarrier),
    Any(SYS_sched_getaffinity),
    Any(SYS_getcpu),
    Any(SYS_rt_sigaction),
    Any(SYS_nanosleep),
    Any(SYS_clock_nanosleep),
    // Names of threads and, in newer C libraries, of memory.
    If(
        SYS_prctl,
        &[
            &[Argument::is(0, flag(libc::PR_SET_NAME))],
            &[Argument::is(0, flag(libc::PR_GET_NAME))],
            &[Argument::is(0, flag(libc::PR_SET_VMA))],
        ],
    ),
    // The thread that makes keys in advance lowers its priority.
    If(
        SYS_getpriority,
        &[&[Argument::is(0, 0), Argument::is(1, 0)]],
    ),
    If(
        SYS_setpriority,
        &[&[Argument::is(0, 0), Argument::is(1, 0)]],
    ),
];

/// Queries about the process and the machine. Resource limits can be read but not set.
pub(crate) const QUERIES: Group = &[
    Any(SYS_clock_gettime),
    Any(SYS_clock_getres),
    Any(SYS_gettimeofday),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_time),
    Any(SYS_getrandom),
    Any(SYS_uname),
    Any(SYS_sysinfo),
    Any(SYS_getrusage),
    Any(SYS_getuid),
    Any(SYS_geteuid),
    Any(SYS_getgid),
    Any(SYS_getegid),
    Any(SYS_getresuid),
    Any(SYS_getresgid),
    Any(SYS_getgroups),
    Any(SYS_getppid),
    Any(SYS_capget),
    Any(SYS_getcwd),
    If(SYS_prlimit64, &[&[Argument::null(2)]]),
    #[cfg(not(target_arch = "riscv64"))]
    Any(libc::SYS_getrlimit),
];
