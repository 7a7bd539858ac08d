//! A user with a certificate, who makes proxies.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use gridhaul_interop::{Pki, UserKind};
use tempfile::TempDir;

use crate::scripted::{fails, gridhaul};
use crate::site::texts;

pub(super) fn pki() -> &'static Pki {
    Pki::shared().unwrap()
}

/// The certificate and the key of a user, and a directory.
pub(super) struct User {
    pub(super) place: TempDir,
    pub(super) certificate: String,
    pub(super) key: String,
}

impl User {
    pub(super) fn new() -> Self {
        let user = pki().user(UserKind::Plain);
        Self {
            place: tempfile::tempdir().unwrap(),
            certificate: text(&user.certificate),
            key: text(&user.key),
        }
    }

    pub(super) fn file(&self, name: &str) -> String {
        text(&self.place.path().join(name))
    }

    /// A private file.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let file = self.file(name);
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        file
    }

    pub(super) fn arguments<'a>(&'a self, key: &'a str, out: &'a str) -> [&'a str; 8] {
        let certificate = &self.certificate;
        [
            "proxy",
            "create",
            "--cert",
            certificate,
            "--key",
            key,
            "--out",
            out,
        ]
    }

    /// Makes a proxy. Returns its file, and what the program has printed.
    pub(super) fn create(&self, name: &str, options: &[&str]) -> (String, String) {
        let out = self.file(name);
        let arguments = self.arguments(&self.key, &out);
        let output = gridhaul(&[&arguments, options].concat());
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{options:?}: {stdout}{stderr}");
        (out, stdout + &stderr)
    }

    /// The error when a proxy is made with another key.
    pub(super) fn refuses(&self, key: &str, options: &[&str]) -> String {
        let out = self.file("refused");
        let error = fails(&[&self.arguments(key, &out), options].concat());
        assert!(!Path::new(&out).exists(), "{error}");
        error
    }

    /// The key of the user, encrypted with the passphrase `secret word`.
    pub(super) fn encrypted(&self, name: &str, command: &[&str]) -> String {
        let file = self.write(name, "");
        let out = [
            "-in",
            &self.key,
            "-out",
            &file,
            "-passout",
            "pass:secret word",
        ];
        run("openssl", &[command, &out].concat());
        file
    }
}

pub(super) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The output of a program that succeeds.
pub(super) fn run(program: &str, arguments: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("HOME", place.path())
        .env("X509_CERT_DIR", pki().trust());
    let (stdout, stderr) = texts(&must(&mut command));
    stdout + &stderr
}

pub(super) fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    output
}
