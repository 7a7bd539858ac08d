//! A server, a client, and the files of both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gridhaul_interop::{Kind, Launch, Pki, Server, UserKind, chown_to_nobody, content};
use tempfile::TempDir;

pub(crate) const SIZE: u64 = 3_456_789;

/// A server, and a directory of the client.
pub(crate) struct Site {
    place: TempDir,
    pki: Option<&'static Pki>,
    pub(crate) server: Server,
}

impl Site {
    pub(crate) fn anonymous(kind: Kind, arguments: &[&str]) -> Self {
        Self::start(kind, None, arguments)
    }

    pub(crate) fn gsi(kind: Kind, arguments: &[&str]) -> Self {
        Self::start(kind, Some(Pki::shared().unwrap()), arguments)
    }

    /// Our server with `AUTH TLS`, at this address.
    pub(crate) fn tls(address: &str) -> Self {
        Self::start_with(Kind::Gridhaul, None, |launch| {
            let address = address.parse().unwrap();
            launch.tls(Pki::shared().unwrap()).address(address)
        })
    }

    fn start(kind: Kind, pki: Option<&'static Pki>, arguments: &[&str]) -> Self {
        Self::start_with(kind, pki, |mut launch| {
            if let Some(pki) = pki {
                launch = launch.gsi(pki);
            }
            for argument in arguments {
                launch = launch.arg(*argument);
            }
            launch
        })
    }

    fn start_with(
        kind: Kind,
        pki: Option<&'static Pki>,
        prepare: impl FnOnce(Launch) -> Launch,
    ) -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("served");
        fs::create_dir(&root).unwrap();
        for path in [place.path(), &root] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(path, open).unwrap();
        }
        chown_to_nobody(&root).unwrap();
        let server = prepare(Launch::new(kind, &root)).start().unwrap();
        let site = Self { place, pki, server };
        content::write(&site.local("source"), SIZE).unwrap();
        site
    }

    /// The directory of the client.
    pub(crate) fn place(&self) -> &Path {
        self.place.path()
    }

    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn served(&self, name: &str) -> PathBuf {
        self.server.root().join(name)
    }

    /// The program with these arguments, in the directory of the client.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", self.local("state"));
        if let Some(pki) = self.pki {
            command.envs(pki.environment(UserKind::Plain));
        }
        command.current_dir(self.place.path());
        command
    }

    pub(crate) fn gridhaul(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn must(&self, arguments: &[&str]) -> String {
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
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
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
    pub(crate) fn round(&self, options: &[&str], name: &str) {
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

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

pub(crate) fn assert_same(one: &Path, other: &Path, options: &[&str]) {
    let (one_bytes, other_bytes) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    let shown = (one.display(), other.display());
    assert!(one_bytes == other_bytes, "{options:?}: {shown:?} differ");
}

/// A number in the last line of a copy, which is JSON.
pub(crate) fn number(lines: &str, name: &str) -> usize {
    let done = lines.lines().last().unwrap_or_default();
    let value = done.split(&format!("\"{name}\":")).nth(1);
    let digits = value.and_then(|value| value.split([',', '}']).next());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("{name}: {lines}"))
}
