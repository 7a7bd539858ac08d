//! The journal of systemd, played by a socket of the test.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::program::{Running, program, public_directory};

/// A journal that nothing reads but the test.
struct Journal {
    directory: TempDir,
    socket: UnixDatagram,
}

impl Journal {
    fn new() -> Self {
        let directory = public_directory();
        let socket = UnixDatagram::bind(directory.path().join("socket")).expect("bound");
        let limit = Some(Duration::from_secs(30));
        socket.set_read_timeout(limit).expect("set");
        Self { directory, socket }
    }

    /// The next entry with this line.
    fn entry_with(&self, line: &str) -> String {
        loop {
            let mut entry = vec![0; 64 * 1024];
            let length = self.socket.recv(&mut entry).expect("an entry");
            let entry = String::from_utf8_lossy(&entry[..length]).into_owned();
            if entry.lines().any(|found| found == line) {
                return entry;
            }
        }
    }
}

fn command(root: &TempDir, socket: &std::path::Path) -> Command {
    let mut command = program();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
        .arg(root.path())
        .env("GRIDHAUL_JOURNAL_SOCKET", socket);
    command
}

#[test]
fn entries_of_all_processes_have_fields() {
    let (root, journal) = (public_directory(), Journal::new());
    let socket = journal.directory.path().join("socket");
    let mut command = command(&root, &socket);
    let server = Running::of(command.args(["--log-format", "journald"]));
    server.dialogue(&["USER wrong", "PASS x", "USER anonymous", "PASS x"]);
    // The front process, which is confined.
    let refused = journal.entry_with("GRIDHAUL_USER=wrong");
    for line in [
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=gridhaul-server",
        "TARGET=audit",
        "GRIDHAUL_PEER=127.0.0.1",
        "GRIDHAUL_SESSION=1",
        "GRIDHAUL_REASON=wrong user name or password",
    ] {
        assert!(
            refused.lines().any(|found| found == line),
            "{line}: {refused}"
        );
    }
    assert!(
        refused.starts_with("MESSAGE=login failed session=1 peer=127.0.0.1 "),
        "{refused}"
    );
    // The process that serves.
    let done = journal.entry_with("GRIDHAUL_USER=anonymous");
    assert!(
        done.contains("PRIORITY=6") && done.contains("logged in"),
        "{done}"
    );
    let (status, log) = server.stop();
    assert_eq!((status, log.as_str()), (0, ""));
}

/// Starts a server whose standard error is a file that leads to the journal, as it is told, and logs in.
fn standard_error(socket: &std::path::Path, flags: &[&str], leads_there: bool) -> String {
    let root = public_directory();
    let path = root.path().join("stderr");
    let file = File::create(&path).expect("made");
    let found = file.metadata().expect("there");
    let inode = found.ino() + u64::from(!leads_there);
    let stream = format!("{}:{inode}", found.dev());
    let mut child = command(&root, socket)
        .args(flags)
        .env("JOURNAL_STREAM", stream)
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .expect("started");
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("a line");
    let pid = i32::try_from(child.id()).expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("not zero");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    assert!(child.wait().expect("ended").success());
    fs::read_to_string(path).expect("read")
}

#[test]
fn a_standard_error_that_leads_to_the_journal_is_recognized() {
    let journal = Journal::new();
    let socket = journal.directory.path().join("socket");
    let missing = journal.directory.path().join("missing");
    assert_eq!(standard_error(&socket, &[], true), "");
    assert!(
        journal
            .entry_with("GRIDHAUL_SESSIONS=0")
            .contains("shutting down")
    );
    // Without the socket, or with another format, lines have priorities.
    let lines = standard_error(&missing, &[], true);
    assert!(
        lines.lines().all(|line| line.starts_with("<6> INFO ")),
        "{lines}"
    );
    let lines = standard_error(&socket, &["--log-format", "json"], true);
    assert!(
        lines.lines().all(|line| line.starts_with("<6>{")),
        "{lines}"
    );
    // A standard error that leads elsewhere, such as a redirected one.
    let lines = standard_error(&socket, &[], false);
    assert!(!lines.is_empty() && !lines.contains("<6>"), "{lines}");
}

#[test]
fn a_journal_that_is_not_there_is_an_error_with_its_path() {
    let root = public_directory();
    let missing = root.path().join("missing");
    let error = crate::program::fails(command(&root, &missing).args(["--log-format", "journald"]));
    assert!(
        error.contains("journald") && error.contains("missing"),
        "{error}"
    );
    let file = root.path().join("log");
    let error = crate::program::fails(
        command(&root, &missing)
            .args(["--log-format", "journald", "--log-file"])
            .arg(file),
    );
    assert!(error.contains("exclude each other"), "{error}");

    let output = program()
        .args(["check", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
        .arg(root.path())
        .args(["--log-format", "journald"])
        .env("GRIDHAUL_JOURNAL_SOCKET", &missing)
        .output()
        .expect("started");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains("error    log-format:"), "{report}");
}
