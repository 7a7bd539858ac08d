//! The processor time of processes.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The processor time that a process and its threads have used; zero if the process has ended. No file is read, so that it
/// works in a confined process (`clock_getcpuclockid(3)`). Children are not included.
pub(crate) fn processor_time(process: u32) -> Duration {
    let time = || {
        let process = Pid::from_raw(i32::try_from(process).ok()?);
        let clock = ClockId::pid_cpu_clock_id(process).ok()?;
        clock_gettime(clock).ok()
    };
    time().map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_time_of_another_process_is_known_until_it_ends() {
        let mut busy = Command::new("sh");
        let mut busy = busy
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh");
        while processor_time(busy.id()) < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        busy.kill().expect("killed");
        busy.wait().expect("ended");
        assert_eq!(processor_time(busy.id()), Duration::ZERO);
    }

    #[test]
    fn work_takes_time_and_processes_that_do_not_exist_take_none() {
        let me = std::process::id();
        let before = processor_time(me);
        let mut sum = 0_u64;
        while processor_time(me) < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert_eq!(processor_time(u32::MAX), Duration::ZERO);
    }
}
