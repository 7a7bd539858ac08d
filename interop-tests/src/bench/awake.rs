//! Keeps a processor awake.
//!
//! One that has nothing to do goes to sleep, and wakes up late: on a virtual machine its host has to be asked. Where
//! a millisecond matters, a program of the lowest priority keeps the processor busy.

use std::io;
use std::process::{Command, Stdio};

use crate::support::process_group::ProcessGroup;

/// A program that is busy for as long as this lives.
#[derive(Debug)]
pub struct Awake {
    _group: ProcessGroup,
}

impl Awake {
    /// Keeps this processor awake.
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
