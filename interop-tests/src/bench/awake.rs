//! Keeps a processor out of idle states.
//!
//! An idle processor halts and wakes up late: on a virtual machine the wake-up goes through the hypervisor. Where
//! a millisecond matters, a program of the lowest priority keeps the processor busy.

use std::io;
use std::process::{Command, Stdio};

use crate::support::process_group::ProcessGroup;

/// A busy program, which is killed when this is dropped.
#[derive(Debug)]
pub struct Awake {
    _group: ProcessGroup,
}

impl Awake {
    /// Starts it on this processor.
    ///
    /// # Errors
    ///
    /// When the program does not start.
    pub fn keep(processor: usize) -> io::Result<Self> {
        let mut busy = Command::new("taskset");
        // sched(7): SCHED_IDLE is below every nice value.
        busy.args(["-c", &processor.to_string(), "chrt", "--idle", "0"])
            .args(["sh", "-c", "while :; do :; done"])
            .stdin(Stdio::null());
        let group = ProcessGroup::start(busy)?;
        Ok(Self { _group: group })
    }
}
