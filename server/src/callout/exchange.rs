//! One question to the program or the service: written, answered and ended within the time limit.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::config::Callout;
use crate::harmful::is_harmful;

/// The maximum length of an answer in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// The part of the error output that goes to the log, in bytes.
const MAX_COMPLAINT: usize = 500;

/// The search path of the program.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Asks the callout, and returns the answer as it was received. The error is a reason for the log.
pub(super) fn ask(callout: &Callout, question: &[u8], within: Duration) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + within;
    match callout {
        Callout::Program(path) => ask_program(path, question, deadline),
        Callout::Socket(path) => ask_service(path, question, deadline),
    }
    .map_err(|failure| failure.describe(within))
}

enum Failure {
    TimedOut,
    TooLong,
    Io(io::Error),
    Status(String),
}

impl Failure {
    fn describe(&self, within: Duration) -> String {
        match self {
            Self::TimedOut => format!("it did not answer within {} s", within.as_secs()),
            Self::TooLong => format!("its answer is longer than {MAX_ANSWER} bytes"),
            Self::Io(error) => error.to_string(),
            Self::Status(status) => status.clone(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// A program in a process group of its own, which is killed at the end: a program that left processes behind must not exhaust
/// the machine.
struct Program {
    child: Child,
    group: Pid,
}

impl Drop for Program {
    fn drop(&mut self) {
        // The group may have ended.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
    }
}

fn ask_program(path: &Path, question: &[u8], deadline: Instant) -> Result<Vec<u8>, Failure> {
    let mut child = Command::new(path)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let group = Pid::from_child(&child);
    let mut program = Program { child, group };
    let (Some(input), Some(output), Some(mut errors)) = pipes else {
        return Err(io::Error::from(Errno::PIPE).into());
    };
    set_nonblocking(errors.as_fd())?;
    let mut complaint = Vec::new();
    let answer = converse(
        Some(input),
        output,
        question,
        deadline,
        Some((&mut errors, &mut complaint)),
    )?;
    let status = loop {
        if let Some(status) = program.child.try_wait()? {
            break status;
        }
        // The output is closed, so the end is near.
        wait_for(
            errors.as_fd(),
            PollFlags::empty(),
            deadline.min(Instant::now() + Duration::from_millis(5)),
        )?;
        if Instant::now() >= deadline {
            return Err(Failure::TimedOut);
        }
    };
    if !status.success() {
        collect(&mut errors, &mut complaint);
        let complaint = String::from_utf8_lossy(&complaint);
        let complaint = complaint.trim().replace(is_harmful, " ");
        return Err(Failure::Status(format!(
            "it ended with {status}: {complaint}"
        )));
    }
    Ok(answer)
}

fn ask_service(path: &Path, question: &[u8], deadline: Instant) -> Result<Vec<u8>, Failure> {
    // A full backlog blocks: the connection is made without waiting.
    let stream = connect(path)?;
    let mut writer = stream.try_clone()?;
    write_all(&mut writer, question, deadline)?;
    stream.shutdown(Shutdown::Write)?;
    converse(None::<UnixStream>, stream, &[], deadline, None)
}

/// A connection whose calls do not block. `EAGAIN` if the service does not accept connections fast enough.
fn connect(path: &Path) -> Result<UnixStream, Failure> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Writes the question, closes the input, and reads until the end.
fn converse<I: Write + AsFd, O: Read + AsFd>(
    input: Option<I>,
    mut output: O,
    question: &[u8],
    deadline: Instant,
    mut errors: Option<(&mut ChildStderr, &mut Vec<u8>)>,
) -> Result<Vec<u8>, Failure> {
    set_nonblocking(output.as_fd())?;
    if let Some(mut input) = input {
        set_nonblocking(input.as_fd())?;
        match write_all(&mut input, question, deadline) {
            // A program may answer without reading.
            Err(Failure::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(bytes) if answer.len() + bytes > MAX_ANSWER => return Err(Failure::TooLong),
            Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A program that fills its error output must not block.
                let until = match &mut errors {
                    Some((errors, complaint)) => {
                        collect(errors, complaint);
                        deadline.min(Instant::now() + Duration::from_millis(100))
                    }
                    None => deadline,
                };
                wait_for(output.as_fd(), PollFlags::IN, until)?;
                if Instant::now() >= deadline {
                    return Err(Failure::TimedOut);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn write_all(
    output: &mut (impl Write + AsFd),
    mut text: &[u8],
    deadline: Instant,
) -> Result<(), Failure> {
    while !text.is_empty() {
        match output.write(text) {
            Ok(0) => return Err(io::Error::from(Errno::PIPE).into()),
            Ok(bytes) => text = &text[bytes..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(output.as_fd(), PollFlags::OUT, deadline)?;
                if Instant::now() >= deadline {
                    return Err(Failure::TimedOut);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads what has arrived, and keeps the beginning.
fn collect(errors: &mut ChildStderr, complaint: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = errors.read(&mut buffer) {
        let room = MAX_COMPLAINT.saturating_sub(complaint.len());
        complaint.extend_from_slice(&buffer[..bytes.min(room)]);
    }
}

fn set_nonblocking(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(descriptor)?;
    fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)
}

/// Waits for the descriptor, or until the time has come.
fn wait_for(descriptor: BorrowedFd<'_>, flags: PollFlags, until: Instant) -> Result<(), Errno> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    let mut polled = [PollFd::from_borrowed_fd(descriptor, flags)];
    match poll(&mut polled, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Long enough for a loaded machine.
    const LONG: Duration = Duration::from_secs(60);

    /// Another process writes the program: what another test starts meanwhile has the descriptors of this process for a moment, and
    /// a file that is open for writing cannot be executed (ETXTBSY).
    fn program(script: &str) -> (TempDir, Callout) {
        let directory = tempfile::tempdir().expect("a directory");
        let [text, path] = ["text", "callout"].map(|name| directory.path().join(name));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("written");
        let mut install = Command::new("install");
        install.args(["-m", "755"]).args([&text, &path]);
        assert!(install.status().expect("started").success());
        (directory, Callout::Program(path))
    }

    fn answer(script: &str, within: Duration) -> Result<String, String> {
        let (_directory, callout) = program(script);
        let answer = ask(&callout, b"question\n", within);
        answer.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn a_program_reads_the_question_and_answers() {
        assert_eq!(answer("cat", LONG), Ok("question\n".to_owned()));
        assert_eq!(answer("echo yes", LONG), Ok("yes\n".to_owned()));
        let environment = answer("env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD=", LONG);
        assert_eq!(environment, Ok(format!("PATH={PATH}\n")));
    }

    #[test]
    fn every_failure_of_a_program_is_an_error() {
        for (script, within, words) in [
            ("echo yes; exit 3", LONG, "exit status: 3"),
            ("echo no such site >&2; exit 1", LONG, "no such site"),
            ("echo yes; kill -9 $$", LONG, "signal: 9"),
            ("sleep 1000", SECOND, "did not answer within 1 s"),
            ("echo yes; sleep 1000", SECOND, "did not answer"),
            ("sleep 1000 & echo yes", SECOND, "did not answer"),
            ("echo yes; exec >&-; sleep 1000", SECOND, "did not answer"),
            ("yes", LONG, "longer than"),
            ("yes >&2", SECOND, "did not answer"),
        ] {
            let error = answer(script, within).expect_err(script);
            assert!(error.contains(words), "{script}: {error}");
        }
        let missing = Callout::Program("/nonexistent/callout".into());
        ask(&missing, b"q", LONG).expect_err("missing");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let (directory, callout) =
            program("sleep 1000 & echo $! > \"$(dirname \"$0\")/pid\"; wait");
        // On a busy machine it may be killed before it begins.
        let pid = [1, 4, 16, 60].into_iter().find_map(|seconds| {
            ask(&callout, b"q", Duration::from_secs(seconds)).expect_err("it hangs");
            let pid = fs::read_to_string(directory.path().join("pid")).ok()?;
            pid.trim().parse::<u32>().ok()
        });
        let status = format!("/proc/{}/stat", pid.expect("written"));
        // Without a parent it is a zombie until init collects it.
        while let Ok(stat) = fs::read_to_string(&status) {
            if stat.contains(") Z ") {
                break;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_service_is_asked_over_its_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let callout = Callout::Socket(path.clone());
        ask(&callout, b"q", LONG).expect_err("there is none");
        let listener = UnixListener::bind(&path).expect("bound");
        let service = thread::spawn(move || {
            for reply in [&b"fine"[..], &[b'x'; MAX_ANSWER + 1]] {
                let (mut client, _) = listener.accept().expect("a client");
                let mut question = String::new();
                client.read_to_string(&mut question).expect("read");
                assert_eq!(question, "question\n");
                // The client does not read all of a long answer.
                let _ = client.write_all(reply);
            }
            listener
        });
        assert_eq!(ask(&callout, b"question\n", LONG), Ok(b"fine".to_vec()));
        let error = ask(&callout, b"question\n", LONG).expect_err("too long");
        assert!(error.contains("longer than"), "{error}");
        let listener = service.join().expect("no panic");
        let error = ask(&callout, b"question\n", SECOND).expect_err("nothing accepts");
        assert!(error.contains("did not answer"), "{error}");
        drop(listener);
        ask(&callout, b"q", LONG).expect_err("it is gone");
    }
}
