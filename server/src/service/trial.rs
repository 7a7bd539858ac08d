//! The new version examines the configuration, before anything changes.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use gridhaul_accounts::process::fork;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open, waitpid,
};

use super::program::{Named, Program, Purpose, become_program};
use super::wait::{Unfinished, until_readable};

/// The time for the whole examination. It reads certificates and asks name services.
const TIME: Duration = Duration::from_secs(60);

/// More output is not read.
const MOST_OUTPUT: u64 = 256 * 1024;

/// The most of it that the administrator sees.
const MOST_TOLD: usize = 8 * 1024;

/// Runs `check` of the program.
///
/// # Errors
///
/// The errors that it found, or the reason why it found nothing.
pub(super) fn examine(
    program: &Program,
    sockets: &[Named<'_>],
    serving: BorrowedFd<'_>,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("the new version cannot check the configuration: {error}")
    };
    let deadline = Instant::now() + TIME;
    let (pid, output) = start(program, sockets).map_err(|error| failed(&error))?;
    let output = read(output, serving, deadline);
    let ended = output.and_then(|output| {
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(Unfinished::Kernel)?;
        until_readable(process.as_fd(), serving, deadline).map(|()| output)
    });
    if ended.is_err() {
        // The number is not used again before the process was waited for.
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = waitpid(Some(pid), WaitOptions::empty());
    let output = ended.map_err(|error| failed(&error))?;
    let status = status.ok().flatten().map(|(_, status)| status);
    match status.and_then(WaitStatus::exit_status) {
        Some(0) => Ok(()),
        _ => Err(format!(
            "the new version refuses the configuration:\n{}",
            errors(&output)
        )),
    }
}

fn start(program: &Program, sockets: &[Named<'_>]) -> io::Result<(Pid, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let mut command = program.command(Purpose::Check);
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut command = Some(command);
    let pid = fork(|| {
        if let Some(command) = command.take() {
            become_program(command, sockets);
        }
    })?;
    Ok((pid, reader))
}

/// What the program writes, until it closes its output.
fn read(
    mut output: PipeReader,
    serving: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<String, Unfinished> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        until_readable(output.as_fd(), serving, deadline)?;
        match output.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) if bytes.len() as u64 <= MOST_OUTPUT => bytes.extend(&piece[..count]),
            Ok(_) => {}
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines with errors; everything, where a program that does not know the arguments says something else.
fn errors(output: &str) -> String {
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with("error"))
        .collect();
    let mut told = match lines.is_empty() {
        true => output.trim_end().to_owned(),
        false => lines.join("\n"),
    };
    told.truncate(told.floor_char_boundary(MOST_TOLD));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrators_see_the_errors() {
        let report =
            "ok       root: there\nerror    trust: not there\nwarning  x\nerror    key: wrong\n";
        let found = errors(report);
        assert_eq!(found, "error    trust: not there\nerror    key: wrong");
        assert_eq!(errors("Segmentation fault\n"), "Segmentation fault");
        assert!(errors(&"\u{e9}".repeat(MOST_TOLD)).len() <= MOST_TOLD);
    }
}
