//! The program, as a child of the test.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use gridhaul_skip::skipped;

pub(crate) fn program() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_gridhaul-server")))
}

/// Without the variables and the input that the test may have.
pub(crate) fn clean(mut command: Command) -> Command {
    for variable in [
        "CREDENTIALS_DIRECTORY",
        "GLOBUS_TCP_PORT_RANGE",
        "GRIDMAP",
        "GRIDMAPDIR",
        "GSI_AUTHZ_CONF",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "NOTIFY_SOCKET",
        "SSH_CONNECTION",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        "X509_CERT_DIR",
        "X509_USER_CERT",
        "X509_USER_KEY",
        "X509_USER_PROXY",
        "X509_VOMS_DIR",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// A server that is killed when the value is dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// A server of `root` at a free port.
    pub(crate) fn start(root: &Path, flags: &[&str]) -> Self {
        Self::of(
            program()
                .args(["serve", "--listen", "127.0.0.1:0", "--root"])
                .arg(root)
                .args(flags),
        )
    }

    /// A server with a command line of its own.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::spawn(command, Stdio::piped())
    }

    /// A server whose standard error is on a full disk.
    pub(crate) fn without_standard_error(command: &mut Command) -> Self {
        let full = File::options().write(true).open("/dev/full");
        Self::spawn(command, full.expect("a device").into())
    }

    fn spawn(command: &mut Command, stderr: Stdio) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let address = line
            .strip_prefix("Server listening at ")
            .or_else(|| line.strip_prefix("Node listening at "))
            .expect("the contract");
        let address = address.trim_end().parse().expect("an address");
        Self {
            child,
            stdout,
            address,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process number");
        kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("sent");
    }

    /// What the server has logged on standard error until some words come.
    pub(crate) fn log_until(&mut self, words: &str) -> String {
        let mut log = String::new();
        let mut stderr = BufReader::new(self.child.stderr.as_mut().expect("piped"));
        while !log.contains(words) {
            if stderr.buffer().is_empty() {
                wait_for_bytes(stderr.get_ref(), &log);
            }
            assert!(stderr.read_line(&mut log).expect("UTF-8") > 0, "{log}");
        }
        log
    }

    /// Waits until the process has ended by itself, and returns its exit status. Others may go on.
    pub(crate) fn wait(&mut self) -> i32 {
        let status = self.child.wait().expect("ended");
        status.code().expect("an exit status")
    }

    pub(crate) fn stop(mut self) -> (i32, String) {
        self.signal(Signal::TERM);
        let status = self.child.wait().expect("ended");
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut log).expect("UTF-8");
        (status.code().expect("an exit status"), log)
    }

    /// Waits until the server and all its processes have ended by themselves: the exit status, and the rest of the log.
    pub(crate) fn ended(mut self) -> (i32, String) {
        let mut stderr = self.child.stderr.take().expect("piped");
        let mut log = Vec::new();
        loop {
            let mut piece = [0; 4096];
            wait_for_bytes(&stderr, &String::from_utf8_lossy(&log));
            match stderr.read(&mut piece).expect("a pipe") {
                0 => break,
                bytes => log.extend(&piece[..bytes]),
            }
        }
        let status = self.child.wait().expect("ended");
        let log = String::from_utf8(log).expect("UTF-8");
        (status.code().expect("an exit status"), log)
    }

    /// Stops the server and waits for all its processes: the exit status, and the rest of the log.
    pub(crate) fn stop_all(self) -> (i32, String) {
        self.signal(Signal::TERM);
        self.ended()
    }

    pub(crate) fn dialogue(&self, lines: &[&str]) -> Vec<String> {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        let mut replies = BufReader::new(stream.try_clone().expect("a handle"));
        let mut reply = || {
            let mut line = String::new();
            replies.read_line(&mut line).expect("a reply");
            line.trim_end().to_owned()
        };
        let mut all = vec![reply()];
        for line in lines {
            stream
                .write_all(format!("{line}\r\n").as_bytes())
                .expect("sent");
            all.push(reply());
        }
        all
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended in tests that passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fails when nothing more is logged for long.
fn wait_for_bytes(stderr: impl AsFd, log: &str) {
    let mut polled = [PollFd::new(&stderr, PollFlags::IN)];
    let time_limit = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ready = poll(&mut polled, Some(&time_limit)).expect("polled");
    assert!(ready > 0, "nothing more after {log}");
}

pub(crate) fn fails(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("started");
    let stderr = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(1), "{stderr}");
    stderr
}

/// A directory that any account can read.
pub(crate) fn public_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().expect("a directory");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), all).expect("set");
    directory
}

/// Writes a program that can be started at once. Another process writes it: a server that another test starts meanwhile has the
/// descriptors of this process for a moment, and a file that is open for writing cannot be executed (ETXTBSY).
pub(crate) fn write_program(path: &Path, text: &str) {
    let (source, new) = (path.with_extension("text"), path.with_extension("new"));
    std::fs::write(&source, text).expect("written");
    let mut install = Command::new("install");
    install.args(["-m", "755"]).args([&source, &new]);
    assert!(install.status().expect("started").success());
    std::fs::remove_file(source).expect("removed");
    std::fs::rename(new, path).expect("renamed");
}

/// Asks again until the answer is as wanted.
pub(crate) fn wait_for<T: Display>(
    what: &str,
    ask: impl Fn() -> T,
    is_wanted: impl Fn(&T) -> bool,
) -> T {
    /// What takes longer never happens. The first sample of the history comes after ten seconds.
    const TIME_LIMIT: Duration = Duration::from_secs(60);
    /// Leaves the processors to the server.
    const PAUSE: Duration = Duration::from_millis(20);

    let begun = Instant::now();
    loop {
        let answer = ask();
        if is_wanted(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < TIME_LIMIT, "never {what}: {answer}");
        std::thread::sleep(PAUSE);
    }
}

/// A file of `src/security/samples`.
pub(crate) fn sample(name: &str) -> PathBuf {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/security/samples");
    samples.join(name)
}

/// A path for a command line.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this is root, which the server needs for a monitor, and to read files and directories of root. Without it the
/// test is skipped.
pub(crate) fn has_root() -> bool {
    let root = is_root();
    if !root {
        skipped("this needs root");
    }
    root
}
