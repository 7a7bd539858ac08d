//! Our server under the name and with the command line of globus-gridftp-server: globus-url-copy, and the trial that compares
//! both servers.

use std::env::temp_dir;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gridhaul_interop::support::scratch::Scratch;
use gridhaul_interop::{Client, Pki, UserKind, chown_to_nobody, content, gridhaul_program};

/// Options of anonymous users, which root must give an account.
fn anonymous() -> Vec<&'static str> {
    match rustix::process::geteuid().is_root() {
        true => vec!["-aa", "-anonymous-user", "nobody"],
        false => vec!["-aa"],
    }
}

/// A directory with `root`, which users may write to, `ours`, and a link with the other program's name.
struct Stage(Scratch);

impl Stage {
    fn new() -> Self {
        let stage = Self(Scratch::beneath(&temp_dir()).unwrap());
        for name in ["root", "ours"] {
            fs::create_dir(stage.path(name)).unwrap();
        }
        chown_to_nobody(&stage.path("root")).unwrap();
        symlink(
            gridhaul_program().unwrap(),
            stage.path("globus-gridftp-server"),
        )
        .unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The server, as the test suites of the toolkit start it: its first line has the port.
struct Running {
    child: Child,
    port: String,
}

impl Running {
    fn start(stage: &Stage, arguments: &[&str], environment: &[(OsString, OsString)]) -> Self {
        let mut child = Command::new(stage.path("globus-gridftp-server"))
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(environment.iter().cloned())
            .current_dir(stage.path("ours"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let port = line.trim_end().rsplit(':').next().unwrap().to_owned();
        assert!(line.starts_with("Server listening at "), "{line}");
        Self { child, port }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // As the test suites of the toolkit end it.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

/// Puts and gets a file.
fn round_trip(stage: &Stage, base: &str, options: &[&str], environment: &[(OsString, OsString)]) {
    const BYTES: u64 = 3_000_001;

    let (sent, returned) = (stage.path("ours/sent"), stage.path("ours/returned"));
    content::write(&sent, BYTES).unwrap();
    let file = |path: &Path| format!("file://{}", path.display());
    let remote = format!("{base}{}", stage.path("root/file").display());
    for (from, to) in [(file(&sent), remote.clone()), (remote, file(&returned))] {
        let copy = Client::new("globus-url-copy").args(options.iter().copied());
        let copy = copy.envs(environment.iter().cloned());
        let finished = copy.args([&from, &to]).run().unwrap();
        assert!(finished.status.success(), "{from} to {to}: {finished}");
    }
    content::same(&sent, &stage.path("root/file")).unwrap();
    content::same(&sent, &returned).unwrap();
}

#[test]
fn anonymous_copies() {
    let stage = Stage::new();
    let mut arguments = vec!["-c", "none", "-no-cas", "-p", "0", "-l", "log"];
    arguments.extend(anonymous());
    let server = Running::start(&stage, &arguments, &[]);
    let base = format!("ftp://127.0.0.1:{}", server.port);
    round_trip(&stage, &base, &["-p", "2"], &[]);
}

/// The command lines of the test suites in `gridftp/client/source/test` and `gass/copy/source/test` of the toolkit.
#[test]
fn copies_with_certificates() {
    let pki = Pki::shared().unwrap();
    let environment: Vec<(OsString, OsString)> = vec![
        ("X509_USER_CERT".into(), pki.host_certificate().into()),
        ("X509_USER_KEY".into(), pki.host_key().into()),
        ("X509_CERT_DIR".into(), pki.trust().into()),
        ("GRIDMAP".into(), pki.gridmap().into()),
    ];
    let stage = Stage::new();
    let arguments = [
        "-no-chdir",
        "-no-exit",
        "-d",
        "0",
        "-auth-level",
        "4",
        "-p",
        "0",
    ];
    let arguments = [&arguments[..], &["-c", "none", "-allow-disabled-login"]].concat();
    let server = Running::start(&stage, &arguments, &environment);
    let base = format!("gsiftp://localhost:{}", server.port);
    for options in [&["-dcpriv"][..], &["-nodcau", "-fast"], &["-p", "4"]] {
        round_trip(&stage, &base, options, &pki.environment(UserKind::Plain));
    }
}

#[test]
fn the_trial_compares_both_servers() {
    let trial = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/trial/trial");
    let stage = Stage::new();
    let root = stage.path("root").display().to_string();
    let list = stage.path("list");
    let lines = format!("# copies\n{root}/file\nput 300K {root}/stored\nget {root}/missing\n");
    fs::write(&list, lines).unwrap();
    fs::write(stage.path("gridftp.conf"), "port 2811\nlog_level ALL\n").unwrap();
    content::write(&stage.path("root/file"), 100_000).unwrap();
    let compare = |options: &[&str]| {
        Client::new(&trial)
            .args(["--anonymous", "--host", "127.0.0.1", "--gridhaul"])
            .arg(gridhaul_program().unwrap())
            .args(["--list".into(), list.clone().into_os_string()])
            .args(["--conf".into(), stage.path("gridftp.conf").into_os_string()])
            .args(options.iter().copied())
            .run()
            .unwrap()
    };
    let same = compare(&["--server-options", &anonymous().join(" ")]);
    assert!(same.status.success(), "{same}");
    assert!(same.output().contains("3 of 3 copies"), "{same}");
    // A server that sees less than the other one fails the trial.
    let config = stage.path("gridhaul.toml");
    fs::write(&config, format!("root = \"{root}\"\nanonymous = true\n")).unwrap();
    let config = config.display().to_string();
    let less = [
        "--config",
        &config,
        "--server-options",
        &anonymous().join(" "),
    ];
    let different = compare(&less);
    assert_eq!(different.status.code(), Some(1), "{different}");
    assert!(different.output().contains("FAILED"), "{different}");
}
