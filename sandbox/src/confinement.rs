//! Confines a process, and records what this kernel enforces.

use crate::calls::Filter;
use crate::error::SandboxError;
use crate::files::{Allowed, Enforced, Files};
use crate::kernel::has_seccomp_filters;
use crate::place::Place;
use crate::privileges::give_up_new_rights;

/// What is enforced for a process that has confined itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Why there is no filter of system calls, if there is none.
    pub without_calls: Option<String>,
    /// The Landlock ABI version that is enforced; `None` without Landlock.
    pub landlock: Option<i32>,
    allowed: Allowed,
}

impl Confinement {
    /// Descriptions of the protections that this kernel does not offer; empty if all are enforced.
    pub fn missing(&self) -> Vec<String> {
        let calls = self
            .without_calls
            .as_ref()
            .map(|reason| format!("no filter of system calls ({reason})"));
        let files = self.landlock.is_none().then(|| {
            "no rules about files (Landlock with Linux 5.19 or later, and landlock in lsm=)"
                .to_owned()
        });
        calls.into_iter().chain(files).collect()
    }

    /// Whether the process may use this place. A place that was configured later and is not covered needs a restart.
    pub fn covers(&self, place: &Place) -> bool {
        self.landlock.is_none() || self.allowed.covers(place)
    }
}

/// Confines a process that has one thread. Threads that it starts later inherit the confinement.
pub(crate) fn confine(filter: &Filter, files: Files) -> Result<Confinement, SandboxError> {
    if !has_one_thread() {
        return Err(SandboxError::Threads);
    }
    give_up_new_rights()?;
    let Enforced { version, allowed } = files.enforce()?;
    let without_calls = match has_seccomp_filters() {
        true => {
            filter.enforce()?;
            None
        }
        false => Some("the kernel has none".to_owned()),
    };
    Ok(Confinement {
        without_calls,
        landlock: version,
        allowed,
    })
}

/// False if `/proc` cannot be read: the number of threads is unknown then.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}
