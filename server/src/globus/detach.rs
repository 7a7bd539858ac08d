//! A server without a terminal, in the background (`-S`).
//!
//! The caller waits until the server listens, and sees its errors until then. globus-gridftp-server itself ends at once.

use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::path::Path;
use std::process::ExitCode;

use gridhaul_accounts::process::fork;
use rustix::process::Pid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// What the server says when it listens.
const READY: &str = "Server listening at ";

/// Runs `serve` in a process of its own session. `pidfile` gets its number when it listens. `keeps_errors` leaves standard
/// error as it is: that of a service leads to the journal.
///
/// # Errors
///
/// When there is a second thread, or the OS refuses a process or the file.
pub(super) fn detached(
    pidfile: Option<&Path>,
    keeps_errors: bool,
    serve: impl FnOnce(),
) -> io::Result<ExitCode> {
    let (reader, writer) = io::pipe()?;
    let mut reader = Some(reader);
    let mut writer = Some(writer);
    let pid = fork(|| {
        drop(reader.take());
        let Some(writer) = writer.take() else { return };
        let redirected = (|| {
            rustix::process::setsid()?;
            let null = std::fs::File::open("/dev/null")?;
            dup2_stdin(&null)?;
            dup2_stdout(&writer)?;
            if !keeps_errors {
                dup2_stderr(&writer)?;
            }
            io::Result::Ok(())
        })();
        drop(writer);
        // The caller learns of a failure by the end of the pipe.
        if redirected.is_ok() {
            serve();
        }
    })?;
    drop(writer);
    match reader {
        Some(reader) => wait(reader, pid, pidfile),
        None => Ok(ExitCode::FAILURE),
    }
}

/// Waits until the server listens, or has ended.
fn wait(reader: PipeReader, pid: Pid, pidfile: Option<&Path>) -> io::Result<ExitCode> {
    for line in BufReader::new(reader).lines() {
        let line = line?;
        if line.starts_with(READY) {
            if let Some(pidfile) = pidfile {
                std::fs::write(pidfile, format!("{}\n", pid.as_raw_nonzero()))?;
            }
            // The server runs, whether or not its caller reads.
            let _ = writeln!(io::stdout(), "{line}");
            return Ok(ExitCode::SUCCESS);
        }
        let _ = writeln!(io::stderr(), "{line}");
    }
    Ok(ExitCode::FAILURE)
}
