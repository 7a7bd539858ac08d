//! Configuration files: what they set, what wins, and what they may not have.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use gridhaul_interop::{Kind, chown_to_nobody};
use tempfile::TempDir;

use super::site::{Site, texts};

/// A configuration file of the user.
struct Config {
    place: TempDir,
}

impl Config {
    fn new(content: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let config = Self { place };
        fs::create_dir(config.place.path().join("gridhaul")).unwrap();
        fs::write(config.file(), content).unwrap();
        config.set_mode(0o644);
        config
    }

    fn file(&self) -> String {
        let file = self.place.path().join("gridhaul/config.toml");
        file.to_str().unwrap().to_owned()
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.file(), Permissions::from_mode(mode)).unwrap();
    }

    fn gridhaul(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", "/home/ada")
            .env("XDG_CONFIG_HOME", self.place.path());
        command.output().unwrap()
    }

    /// What `gridhaul config` prints, without the origins.
    fn shown(&self, arguments: &[&str]) -> String {
        let output = self.gridhaul(&[&["config"], arguments].concat());
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
        stdout.replace(&format!("  # {}", self.file()), "")
    }

    fn refused(content: &str) -> String {
        let config = Self::new(content);
        let output = config.gridhaul(&["config"]);
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{stdout}{stderr}");
        stderr.replace(&config.file(), "FILE")
    }
}

const SECTIONS: &str = r#"
[[host]]
match = ["*.example.org", "near"]
parallel = 8
protect = true
proxy = "~/proxy"

[[host]]
match = "slow.example.org"
parallel = 2
protect = false

[defaults]
parallel = 4
dcau = "none"
"#;

#[test]
fn hosts_win_over_defaults_and_later_ones_over_earlier_ones() {
    let config = Config::new(SECTIONS);
    assert_eq!(
        config.shown(&[]),
        "dcau = \"none\":15\nparallel = \"4\":14\n"
    );
    let near = "parallel = \"8\":4\nprotect = true:5\nproxy = \"/home/ada/proxy\":6\n";
    assert_eq!(config.shown(&["gsiftp://near/"]), near);
    assert_eq!(config.shown(&["gsiftp://DTN.Example.org/"]), near);
    let slow = config.shown(&["gsiftp://slow.example.org/"]);
    assert!(slow.contains("parallel = \"2\":10\n"), "{slow}");
    assert!(slow.contains("protect = false:11\n"), "{slow}");
}

#[test]
fn copies_have_the_options_of_the_file_unless_they_are_given() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let config = Config::new("[[host]]\nmatch = \"localhost\"\nchecksum = \"md5\"\nparallel = 3\n");
    let copy = |options: &[&str]| {
        let url = site.server.url("a");
        let url = url.replace("127.0.0.1", "localhost");
        let words = [&["copy", "--json"], options, &["source", &url]].concat();
        let mut command = site.command(&words);
        let output = command
            .env("GRIDHAUL_CONFIG", config.file())
            .output()
            .unwrap();
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{stdout}{stderr}");
        stdout
    };
    let lines = copy(&[]);
    assert!(lines.contains(r#""channels":3"#), "{lines}");
    assert!(lines.contains(r#""checksum":""#), "{lines}");
    let lines = copy(&["--parallel", "2"]);
    assert!(lines.contains(r#""channels":2"#), "{lines}");
}

#[test]
fn the_options_of_a_login_are_those_of_its_server() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let sum = |content: &str, options: &[&str]| {
        let config = Config::new(content);
        let url = site.server.url("a");
        site.must(&["copy", "source", &url]);
        let words = [&["sum"], options, &["md5", &url]].concat();
        let mut command = site.command(&words);
        command.env("GRIDHAUL_CONFIG", config.file());
        texts(&command.output().unwrap())
    };
    let other = "[[host]]\nmatch = \"other\"\nsubject = \"/CN=another\"\n";
    let (stdout, stderr) = sum(other, &[]);
    assert!(!stdout.is_empty(), "{stderr}");
    let this = "[[host]]\nmatch = \"*\"\nsubject = \"/CN=another\"\n";
    let (stdout, stderr) = sum(this, &[]);
    assert!(stdout.is_empty(), "{stdout}");
    assert!(stderr.contains("presents the certificate of"), "{stderr}");
    let missing = "[defaults]\nproxy = \"/nonexistent/proxy\"\n";
    let (_, stderr) = sum(missing, &[]);
    assert!(stderr.contains("/nonexistent/proxy"), "{stderr}");
}

#[test]
fn servers_that_disagree_are_an_error() {
    let config = Config::new(SECTIONS);
    let words = ["copy", "ftp://near/a", "ftp://slow.example.org/b"];
    let output = config.gridhaul(&words);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("give --parallel"), "{stderr}");
    for part in [":4 and ", ":10 set"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn errors_name_the_line_and_the_remedy() {
    for (content, expected) in [
        (
            "[defaults]\nparalel = 4\n",
            "FILE:2: unknown key 'paralel' (did you mean 'parallel'?)",
        ),
        (
            "[default]\n",
            "FILE:1: unknown table 'default' (did you mean 'defaults'?)",
        ),
        (
            "[defaults]\n\nparallel = 65\n",
            "FILE:3: invalid value '65' for '--parallel",
        ),
        (
            "[defaults]\nparallel = true\n",
            "FILE:2: parallel: it is a text or a number",
        ),
        (
            "[defaults]\nprotect = 1\n",
            "FILE:2: protect: it is true or false",
        ),
        (
            "[defaults]\nmode = \"fast\"\n",
            "FILE:2: invalid value 'fast'",
        ),
        ("[defaults]\nproxy = \"proxy\"\n", "begins with / or ~/"),
        (
            "[defaults]\npassword = \"x\"\n",
            "secrets do not belong here",
        ),
        ("[defaults]\nrecursive = true\n", "unknown key 'recursive'"),
        (
            "[[host]]\nparallel = 4\n",
            "FILE:1: the host has no 'match'",
        ),
        ("[[host]]\nmatch = \"[\"\n", "FILE:2: match: "),
        ("[host]\nmatch = \"a\"\n", "tables [[host]]"),
        ("[defaults\n", "FILE:1: "),
        (
            "[defaults]\npassword-file = \"/p\"\n",
            "FILE:2: password-file: a password is for one server",
        ),
    ] {
        let error = Config::refused(content);
        assert!(error.contains(expected), "{content}: {error}");
    }
}

#[test]
fn a_file_that_other_users_write_is_refused() {
    let config = Config::new("[defaults]\n");
    config.set_mode(0o664);
    let output = config.gridhaul(&["ls", "ftp://127.0.0.1:1/"]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("chmod go-w"), "{stderr}");
    config.set_mode(0o644);
    assert_eq!(config.shown(&[]), "");
    // Only root can give a file away.
    chown_to_nobody(config.file().as_ref()).unwrap();
    let about = fs::metadata(config.file()).unwrap();
    let is_foreign = std::os::unix::fs::MetadataExt::uid(&about) == 65534;
    let output = config.gridhaul(&["config"]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.success(), !is_foreign, "{stderr}");
    assert_eq!(stderr.contains("another user"), is_foreign, "{stderr}");
}

#[test]
fn a_named_file_must_exist() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
    command.arg("config").env_clear();
    assert!(command.output().unwrap().status.success());
    command.env("GRIDHAUL_CONFIG", "/nonexistent/config.toml");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("/nonexistent/config.toml"));
}

#[test]
fn standard_streams_leave_out_the_options_of_files() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let config = Config::new("[defaults]\nmode = \"extended\"\nparallel = 3\ntimes = true\n");
    let url = site.server.url("source");
    fs::write(site.served("source"), "text").unwrap();
    for arguments in [&["cat", &url][..], &["copy", &url, "-"]] {
        let output = config.gridhaul(arguments);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"text");
    }
}
