//! Why a process could not be confined.

use rustix::io::Errno;

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The seccomp filter was not installed.
    #[error("seccomp: {0}")]
    Calls(String),
    /// The Landlock rules were not installed.
    #[error("Landlock: {0}")]
    Files(String),
    /// `no_new_privs`, a capability set or the dumpable flag was not set.
    #[error("prctl: {0}")]
    Process(#[from] Errno),
    /// Landlock confines a thread and its later children only, and the process has other threads already.
    #[error("the process has more than one thread already")]
    Threads,
}
