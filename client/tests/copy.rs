//! `gridhaul copy` with our server and the real one: in both modes, with each protection, over the drivers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gridhaul_interop::{Kind, Launch, Pki, Server, UserKind, chown_to_nobody, content};
use tempfile::TempDir;

const SIZE: u64 = 3_456_789;

/// A server, and a directory of the client.
struct Site {
    place: TempDir,
    pki: Option<&'static Pki>,
    server: Server,
}

impl Site {
    fn anonymous(kind: Kind, arguments: &[&str]) -> Self {
        Self::start(kind, None, arguments)
    }

    fn gsi(kind: Kind, arguments: &[&str]) -> Self {
        Self::start(kind, Some(Pki::shared().unwrap()), arguments)
    }

    fn start(kind: Kind, pki: Option<&'static Pki>, arguments: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("served");
        fs::create_dir(&root).unwrap();
        for path in [place.path(), &root] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(path, open).unwrap();
        }
        chown_to_nobody(&root).unwrap();
        let mut launch = Launch::new(kind, &root);
        if let Some(pki) = pki {
            launch = launch.gsi(pki);
        }
        for argument in arguments {
            launch = launch.arg(*argument);
        }
        let server = launch.start().unwrap();
        let site = Self { place, pki, server };
        content::write(&site.local("source"), SIZE).unwrap();
        site
    }

    fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn served(&self, name: &str) -> PathBuf {
        self.server.root().join(name)
    }

    fn gridhaul(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", "/nonexistent");
        if let Some(pki) = self.pki {
            command.envs(pki.environment(UserKind::Plain));
        }
        command.current_dir(self.place.path()).output().unwrap()
    }

    fn must(&self, arguments: &[&str]) -> String {
        let output = self.gridhaul(arguments);
        let (stdout, stderr) = texts(&output);
        let log = self.server.log();
        assert!(
            output.status.success(),
            "{arguments:?}: {stdout}{stderr}\n{log}"
        );
        stdout
    }

    /// The error of a copy that fails.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.gridhaul(arguments);
        let (stdout, stderr) = texts(&output);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {stdout}{stderr}"
        );
        stderr
    }

    /// Puts a file, gets it back, and copies it on the server, with the same options.
    fn round(&self, options: &[&str], name: &str) {
        let (url, third) = (
            self.server.url(name),
            self.server.url(&format!("{name}-third")),
        );
        let back = format!("{name}-back");
        let with = |from: &str, to: &str| self.must(&[&["copy"], options, &[from, to]].concat());
        with("source", &url);
        assert_same(&self.local("source"), &self.served(name), options);
        with(&url, &back);
        assert_same(&self.local("source"), &self.local(&back), options);
        with(&url, &third);
        assert_same(
            &self.local("source"),
            &self.served(&format!("{name}-third")),
            options,
        );
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn assert_same(one: &Path, other: &Path, options: &[&str]) {
    let (one_bytes, other_bytes) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    let shown = (one.display(), other.display());
    assert!(one_bytes == other_bytes, "{options:?}: {shown:?} differ");
}

#[test]
fn anonymous_users_copy_in_both_modes() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        site.round(&[], "stream");
        site.round(&["--parallel", "4"], "blocks");
    }
}

#[test]
fn data_channels_have_the_wanted_protection() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        for (index, protection) in [&["--dcau", "none"][..], &[], &["--protect"]]
            .into_iter()
            .enumerate()
        {
            site.round(protection, &format!("stream{index}"));
            let blocks = [protection, &["--parallel", "3"]].concat();
            site.round(&blocks, &format!("blocks{index}"));
        }
    }
}

#[test]
fn a_checksum_is_that_of_both_ends() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let lines = site.must(&["copy", "--json", "--checksum", "md5", "source", &url]);
    let sum = site.must(&["sum", "md5", &url]);
    let (value, named) = sum.trim().split_once("  ").expect("VALUE  URL");
    assert_eq!(named, url);
    assert!(
        lines.contains(&format!(r#""checksum":"{value}""#)),
        "{lines}"
    );
    let events = lines
        .lines()
        .map(|line| line.split('"').nth(3).unwrap_or_default());
    let events: Vec<_> = events.filter(|event| *event != "progress").collect();
    assert_eq!(events, ["start", "file", "done"], "{lines}");
}

#[test]
fn a_copy_that_fails_leaves_no_file_and_says_which_end_refused() {
    let site = Site::anonymous(Kind::Gridhaul, &["--allowed-drivers", "tcp"]);
    let missing = site.server.url("missing");
    let error = site.fails(&["copy", &missing, "back"]);
    assert!(error.contains("No such file"), "{error}");
    assert!(!site.local("back").exists());
    let error = site.fails(&["copy", "source", &site.server.url("no/directory")]);
    assert!(
        error.contains("destination: the server refused STOR"),
        "{error}"
    );
    let error = site.fails(&["copy", "missing", &missing]);
    assert!(error.contains("missing: No such file"), "{error}");
    let several = ["copy", "missing", "source", &site.server.url("")];
    let error = site.fails(&several);
    assert!(error.contains("missing"), "{error}");
    assert_same(&site.local("source"), &site.served("source"), &[]);
}

#[test]
fn a_copy_that_would_destroy_another_one_is_refused() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let error = site.fails(&["copy", &url, &url]);
    assert!(error.contains("the same file"), "{error}");
    assert_same(&site.local("source"), &site.served("a"), &[]);
    fs::create_dir(site.local("other")).unwrap();
    fs::write(site.local("other/source"), "another").unwrap();
    let several = ["copy", "source", "other/source", &site.server.url("")];
    let error = site.fails(&several);
    assert!(error.contains("another source"), "{error}");
    assert_same(&site.local("source"), &site.served("source"), &[]);
}

#[test]
fn the_certificate_must_be_that_of_the_host() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let error = site.fails(&["copy", "--subject", "/CN=another", "source", &url]);
    assert!(error.contains("presents the certificate of"), "{error}");
    assert!(!site.served("a").exists());
}

#[test]
fn both_ends_use_the_stack_that_is_named() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    for stack in ["tcp", "splice", "rdma"] {
        site.round(&["--stack", stack, "--parallel", "2"], stack);
        site.round(
            &["--stack", stack, "--protect"],
            &format!("{stack}-private"),
        );
    }
    let output = site.gridhaul(&["copy", "--stack", "tpc", "source", &site.server.url("a")]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--stack tpc"), "{stderr}");
}
