//! The configuration and the command line of globus-gridftp-server: `import`, `gct` and the name `globus-gridftp-server`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gridhaul-server");

/// Configurations, with what `import` makes of them and its exit status. `debian` is like the file of the package of Debian 12.
const GOLDEN: [(&str, i32); 4] = [("debian", 0), ("site", 0), ("public", 3), ("everything", 3)];

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import")
}

/// The program, without variables that change what it does.
fn program(name: &Path) -> Command {
    let mut command = Command::new(name);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

fn import(arguments: &[&str]) -> Output {
    program(Path::new(PROGRAM))
        .arg("import")
        .args(arguments)
        .current_dir(place())
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn configurations_become_what_they_always_became() {
    for (name, status) in GOLDEN {
        let output = import(&[&format!("{name}.conf")]);
        let expected =
            fs::read_to_string(place().join(format!("{name}.toml"))).expect("it is there");
        assert_eq!(
            text(&output.stdout),
            expected,
            "if this is right, run `gridhaul-server import {name}.conf > {name}.toml` in server/tests/import"
        );
        assert_eq!(output.status.code(), Some(status), "{name}");
        let told = text(&output.stderr);
        assert_eq!(told.contains("ATTENTION"), status == 3, "{name}: {told}");
    }
}

#[test]
fn check_finds_only_what_this_machine_lacks() {
    const LACKING: [&str; 6] = [
        "No such file or directory",
        "Cannot assign requested address",
        "there is no certificate of this server",
        "there are no certificate authorities",
        "there is no grid-mapfile",
        "there is no account",
    ];
    for (name, _) in GOLDEN {
        let output = program(Path::new(PROGRAM))
            .args(["check", "--config", &format!("{name}.toml")])
            .current_dir(place())
            .output()
            .expect("started");
        let report = text(&output.stdout);
        let mut errors = report.lines().filter(|line| line.starts_with("error "));
        let other = errors.find(|line| !LACKING.iter().any(|words| line.contains(words)));
        assert_eq!(other, None, "{name}");
    }
}

#[test]
fn mistakes_are_named_with_file_and_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("gridftp.conf");
    let shown = file.display();
    for (lines, words) in [
        (
            "port 1\nprot 2\n",
            format!("{shown}:2: globus-gridftp-server has no option \"prot\""),
        ),
        (
            "port 99999\n",
            format!("{shown}:1: port 99999: a port is a number"),
        ),
        (
            "perms rw\n",
            format!("{shown}:1: perms rw: this is no octal mode"),
        ),
        (
            "$GLOBUS_TCP_PORT_RANGE x\n",
            format!("{shown}:1: $GLOBUS_TCP_PORT_RANGE x: this is no range"),
        ),
        (
            "control_interface no.such.invalid\n",
            format!("{shown}:1: control_interface no.such.invalid: the host"),
        ),
    ] {
        fs::write(&file, lines).expect("written");
        let output = import(&[file.to_str().expect("UTF-8")]);
        let told = text(&output.stderr);
        assert!(told.contains(&words), "{told}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    }
    let output = import(&["/nonexistent/gridftp.conf"]);
    assert!(text(&output.stderr).contains("cannot read /nonexistent/gridftp.conf"));
}

#[test]
fn files_override_directories_and_variables() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("d")).expect("made");
    fs::write(
        path("d/1"),
        "port 2811\nconnections_max 7\n$GRIDMAP /from/directory\n",
    )
    .expect("written");
    fs::write(path("conf"), "port 2812\n").expect("written");
    fs::write(
        path("default"),
        "GRIDMAP=/from/default\nGLOBUS_TCP_PORT_RANGE=\"5000,6000\"\n",
    )
    .expect("written");
    let named = |name: &str| path(name).display().to_string();
    let output = import(&[
        &named("conf"),
        "--config-dir",
        &named("d"),
        "--environment",
        &named("default"),
    ]);
    let written = text(&output.stdout);
    for line in [
        "listen = 2812\n",
        "max-connections = 7\n",
        "gridmap = \"/from/directory\"\n",
        "port-range = \"5000-6000\"\n",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
    assert!(
        written.contains(&format!("replaced by {}:1", named("conf"))),
        "{written}"
    );
}

/// A directory that the server may serve, with a link to the program that has the name of the other one.
struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("set");
        symlink(PROGRAM, directory.path().join("globus-gridftp-server")).expect("made");
        fs::write(directory.path().join("file"), "content").expect("written");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = program(&self.path("globus-gridftp-server"));
        command.current_dir(self.directory.path());
        command
    }

    /// What the program says when it refuses a command line.
    fn refusal(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command().args(arguments).output().expect("started");
        assert_eq!(text(&output.stdout), "");
        (
            output.status.code().expect("a status"),
            text(&output.stderr),
        )
    }
}

/// Options of anonymous users, which root must give an account.
fn anonymous() -> Vec<&'static str> {
    match rustix::process::geteuid().is_root() {
        true => vec!["-aa", "-anonymous-user", "nobody"],
        false => vec!["-aa"],
    }
}

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The port in the line that callers wait for.
fn port(line: &str) -> u16 {
    let address = line
        .strip_prefix("Server listening at ")
        .expect("the contract");
    let port = address.trim_end().rsplit(':').next().expect("a port");
    port.parse().expect("a number")
}

/// The replies to some commands.
fn dialogue(port: u16, lines: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
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

#[test]
fn the_command_line_of_the_toolkit_serves() {
    let stage = Stage::new();
    fs::write(
        stage.path("gridftp.conf"),
        "port 1\nbanner \"hello there\"\n",
    )
    .expect("written");
    let mut child = stage
        .command()
        .args([
            "-c",
            "gridftp.conf",
            "-p",
            "0",
            "-l",
            "log",
            "-no-chdir",
            "-d",
            "ALL",
        ])
        .args(anonymous())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    let running = Running(child);
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let size = format!("SIZE {}", stage.path("file").display());
    let replies = dialogue(
        port(&line),
        &["USER anonymous", "PASS x@", "TYPE I", &size, "QUIT"],
    );
    assert_eq!(replies[0], "220 hello there");
    assert!(replies[2].starts_with("230 "), "{replies:?}");
    assert_eq!(replies[4], "213 7");
    drop(running);
    let log = fs::read_to_string(stage.path("log")).expect("a log");
    assert!(log.contains("session"), "{log}");
}

#[test]
fn a_detached_server_listens_when_its_caller_returns() {
    let stage = Stage::new();
    let pidfile = stage.path("pid");
    let output = stage
        .command()
        .args(["-S", "-c", "none", "-p", "0", "-pidfile", "pid"])
        .args(anonymous())
        .output()
        .expect("started");
    assert!(output.status.success(), "{output:?}");
    let pid = fs::read_to_string(&pidfile).expect("written");
    let pid = pid.trim().parse().expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    let session = rustix::process::getsid(Some(pid)).expect("it runs");
    let greeting = dialogue(port(&text(&output.stdout)), &[]);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    assert_eq!(session, pid);
    assert!(greeting[0].starts_with("220 "), "{greeting:?}");
}

#[test]
fn a_detached_server_that_does_not_start_says_so() {
    let stage = Stage::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port().to_string();
    let mut arguments = vec!["-S", "-c", "none", "-p", &port, "-pidfile", "pid"];
    arguments.extend(["-control-interface", "127.0.0.1"]);
    arguments.extend(anonymous());
    let (status, told) = stage.refusal(&arguments);
    assert_eq!(status, 1);
    assert!(told.contains("in use"), "{told}");
    assert!(!stage.path("pid").exists());
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let stage = Stage::new();
    fs::write(stage.path("closed"), "deny_from 192.0.2.\n").expect("written");
    for (arguments, words) in [
        (
            &["-c", "none", "-r", "host:5000"][..],
            "-r host:5000: data nodes of that server",
        ),
        (
            &["-c", "none", "-allow-from", "10."],
            "-allow-from 10.: admit these addresses",
        ),
        (
            &["-c", "none", "-rp", "/a,/b"],
            "-rp /a,/b: a server has one root",
        ),
        (
            &["-c", "none", "-em", "module"],
            "-em module: modules for access control",
        ),
        (
            &["-c", "none", "-dsi", "hdfs"],
            "-dsi hdfs: modules for storage",
        ),
        (
            &["-c", "closed"],
            "closed:1: deny_from 192.0.2.: refuse these",
        ),
        (&["-bogus"], "Unknown option on command line: -bogus"),
        (&["-p"], "Option -p is missing a value"),
    ] {
        let (status, told) = stage.refusal(arguments);
        assert_eq!(status, 2, "{arguments:?}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

#[test]
fn help_and_version_are_printed_and_gct_is_the_same() {
    let stage = Stage::new();
    let printed = |command: &mut Command| {
        let output = command.output().expect("started");
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let help = printed(stage.command().arg("-help"));
    assert!(help.contains("`-restrict-paths`, `-rp`"), "{help}");
    let version = printed(stage.command().arg("-version"));
    assert!(version.starts_with("gridhaul-server "), "{version}");
    let gct = printed(program(Path::new(PROGRAM)).args(["gct", "-h"]));
    assert_eq!(gct, help);
}

#[test]
fn the_session_of_an_ssh_login_is_served() {
    let stage = Stage::new();
    let mut child = stage
        .command()
        .args(["-c", "none", "-ssh"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"QUIT\r\n").expect("sent");
    drop(input);
    let mut said = String::new();
    let mut output = child.stdout.take().expect("piped");
    output.read_to_string(&mut said).expect("UTF-8");
    assert!(child.wait().expect("ended").success());
    assert!(
        said.starts_with("220 ") && said.contains("\r\n221 "),
        "{said}"
    );
}
