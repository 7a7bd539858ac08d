//! Certificates, trust and maps, as flags, files and the environment name them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::program::{Running, fails, program, public_directory};

/// A directory with what a site has in `/etc/grid-security`.
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self(public_directory());
        fs::create_dir(site.path("certificates")).expect("made");
        for (sample, name) in [
            ("ca.pem", "certificates/ca.pem"),
            ("ca.signing_policy", "certificates/ca.signing_policy"),
            ("host.pem", "host.pem"),
            ("host.key", "host.key"),
        ] {
            site.install(sample, name);
        }
        let map = "\"/DC=test/O=Samples/CN=Alice Smith\" alice\n";
        fs::write(site.path("grid-mapfile"), map).expect("written");
        site
    }

    pub(crate) fn install(&self, sample: &str, name: &str) {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/security/samples");
        fs::copy(samples.join(sample), self.path(name)).expect("copied");
        let mode = if name.ends_with(".key") { 0o600 } else { 0o644 };
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.path(name), mode).expect("set");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// `--gsi` with everything named.
    pub(crate) fn flags(&self) -> Vec<String> {
        let named = [
            ("--cert", "host.pem"),
            ("--key", "host.key"),
            ("--trust", "certificates"),
            ("--gridmap", "grid-mapfile"),
        ];
        let named = named
            .into_iter()
            .flat_map(|(flag, name)| [flag.to_owned(), self.text(name)]);
        std::iter::once("--gsi".to_owned()).chain(named).collect()
    }

    /// `serve` of this directory with `--gsi`, and nothing but what the environment names.
    fn serve_by_environment(&self, variables: &[(&str, &str)]) -> Command {
        let mut command = program();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--gsi", "--root"])
            .arg(self.0.path());
        for (variable, name) in variables {
            command.env(variable, self.path(name));
        }
        command
    }
}

pub(crate) fn as_str(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[test]
fn users_with_certificates_are_let_in_and_others_told_what_is_missing() {
    let site = Site::new();
    let server = Running::start(site.0.path(), &as_str(&site.flags()));
    let replies = server.dialogue(&["USER anonymous", "AUTH GSSAPI"]);
    assert_eq!(replies[1], "530 Must perform GSSAPI authentication.");
    assert!(replies[2].starts_with("334 "), "{replies:?}");
    let (status, log) = server.stop();
    assert_eq!(status, 0, "{log}");
    assert!(log.contains("/DC=test/O=Samples/CN=localhost"), "{log}");
}

#[test]
fn anonymous_users_and_those_with_certificates_may_be_let_in_together() {
    let site = Site::new();
    let mut flags = site.flags();
    flags.push("--anonymous".to_owned());
    let server = Running::start(site.0.path(), &as_str(&flags));
    let replies = server.dialogue(&["USER anonymous", "PASS x@"]);
    assert_eq!(replies[2], "230 User anonymous logged in.");
    let replies = server.dialogue(&["AUTH GSSAPI"]);
    assert!(replies[1].starts_with("334 "), "{replies:?}");
}

#[test]
fn the_environment_names_what_flags_do_not() {
    let site = Site::new();
    let variables = [
        ("X509_USER_CERT", "host.pem"),
        ("X509_USER_KEY", "host.key"),
        ("X509_CERT_DIR", "certificates"),
        ("GRIDMAP", "grid-mapfile"),
    ];
    let server = Running::of(&mut site.serve_by_environment(&variables));
    let replies = server.dialogue(&["AUTH GSSAPI"]);
    assert!(replies[1].starts_with("334 "), "{replies:?}");
}

#[test]
fn what_is_missing_is_named_with_the_remedy() {
    let site = Site::new();
    let host = [
        ("X509_USER_CERT", "host.pem"),
        ("X509_USER_KEY", "host.key"),
    ];
    let trust = ("X509_CERT_DIR", "certificates");
    let map = ("GRIDMAP", "grid-mapfile");
    for (variables, words) in [
        (
            [("X509_USER_CERT", "missing"), host[1], trust, map],
            "cert: ",
        ),
        (
            [host[0], host[1], ("X509_CERT_DIR", "missing"), map],
            "trust: ",
        ),
        (
            [host[0], host[1], trust, ("GRIDMAP", "missing")],
            "gridmap: ",
        ),
    ] {
        let text = fails(&mut site.serve_by_environment(&variables));
        assert!(text.contains(words), "{text}");
        assert!(text.contains("No such file or directory"), "{text}");
    }
    let mut flags = site.flags();
    fs::set_permissions(site.path("host.key"), fs::Permissions::from_mode(0o644)).expect("set");
    let text = fails(program().args(&flags).arg("--root").arg(site.0.path()));
    assert!(
        text.contains("host.key") && text.contains("chmod"),
        "{text}"
    );
    let text = fails(program().args(&flags));
    assert!(
        text.contains("gsi without root") && text.contains("--root /"),
        "{text}"
    );
    flags.retain(|flag| flag != "--gsi");
    let text = fails(program().args(&flags).arg("--anonymous"));
    assert!(text.contains("trust needs --gsi"), "{text}");
}

#[test]
fn rules_come_from_the_file_and_a_wrong_one_is_refused_with_its_line() {
    let site = Site::new();
    let file = site.path("config.toml");
    let config = |rule: &str| {
        let text = format!("gsi = true\n\n[[authorize]]\nidentity = \"/DC=test/*\"\n{rule}\n");
        fs::write(&file, text).expect("written");
        let mut command = program();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(site.0.path())
            .args([
                "--cert",
                &site.text("host.pem"),
                "--key",
                &site.text("host.key"),
            ])
            .args(["--trust", &site.text("certificates"), "--config"])
            .arg(&file);
        command
    };
    let server = Running::of(&mut config("account = \"alice\""));
    assert!(server.dialogue(&["AUTH GSSAPI"])[1].starts_with("334 "));
    let text = fails(&mut config("acount = \"alice\""));
    assert!(text.contains("line 5") && text.contains("acount"), "{text}");
    let text = fails(&mut config("account = \"alice\"\nmap = true"));
    assert!(text.contains("exactly one of account"), "{text}");
}

#[test]
fn a_signal_takes_up_another_map_but_not_gsi_itself() {
    let site = Site::new();
    let file = site.path("config.toml");
    let write = |gsi: bool, map: &str| {
        let text = format!(
            "gsi = {gsi}\nanonymous = true\ncert = \"{}\"\nkey = \"{}\"\n{}",
            site.text("host.pem"),
            site.text("host.key"),
            if gsi {
                format!(
                    "trust = \"{}\"\ngridmap = \"{map}\"\n",
                    site.text("certificates")
                )
            } else {
                String::new()
            }
        );
        fs::write(&file, text).expect("written");
    };
    write(true, &site.text("grid-mapfile"));
    let log = site.path("log");
    fs::write(&log, "").expect("written");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).expect("set");
    let server = Running::start(
        site.0.path(),
        &[
            "--config",
            &site.text("config.toml"),
            "--log-file",
            &site.text("log"),
        ],
    );
    let wait_for = |words: &str| {
        while !fs::read_to_string(&log).expect("read").contains(words) {
            std::thread::yield_now();
        }
    };
    write(true, &site.text("missing"));
    server.signal(Signal::HUP);
    wait_for("gridmap: ");
    write(false, "");
    server.signal(Signal::HUP);
    wait_for("setting=\"gsi\"");
    assert!(server.dialogue(&["AUTH GSSAPI"])[1].starts_with("334 "));
}

#[test]
fn the_status_has_the_ends_of_certificates() {
    let site = Site::new();
    let socket = site.text("admin.sock");
    let mut flags = site.flags();
    flags.extend(["--admin-socket".to_owned(), socket.clone()]);
    let _server = Running::start(site.0.path(), &as_str(&flags));
    let begun = std::time::Instant::now();
    loop {
        let told = program()
            .args(["status", "--json", "--socket", &socket])
            .output()
            .expect("started");
        let told = String::from_utf8(told.stdout).expect("UTF-8");
        let text = told.replace(char::is_whitespace, "");
        // The first inventory is taken while the server begins to serve.
        if text.contains("\"kind\":\"hostcertificate\"") {
            assert!(text.contains("\"kind\":\"authority\""), "{told}");
            assert!(text.contains("host.pem"), "{told}");
            return;
        }
        assert!(begun.elapsed().as_secs() < 30, "{told}");
        std::thread::yield_now();
    }
}
