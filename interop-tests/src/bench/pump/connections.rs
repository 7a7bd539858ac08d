//! Moves the ranges of all connections at once, and counts processor time.

use std::io::{self, Write};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Runs `work` for each connection on a separate thread, and returns the processor time.
pub(super) fn each_connection<T: Send>(
    connections: Vec<T>,
    work: impl Fn(T) -> io::Result<()> + Sync,
) -> io::Result<Duration> {
    let before = processor_time();
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || work(connection)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread of the pump panicked")))
        })
    })?;
    Ok(processor_time().saturating_sub(before))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

pub(super) fn print_line(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}
