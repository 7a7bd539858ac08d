//! Host keys that are encrypted with a passphrase.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::grid_client::GridClient;
use crate::program::{Running, fails, program, sample};
use crate::security::Site;

/// A site whose key is encrypted with `secret`.
fn site() -> Site {
    let site = Site::new();
    encrypt(&site, "secret");
    site
}

/// As programs that renew keys do it: in one step.
fn encrypt(site: &Site, passphrase: &str) {
    let done = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in"])
        .arg(sample("host.key"))
        .args(["-passout", &format!("pass:{passphrase}"), "-out"])
        .arg(site.path("new"))
        .status();
    assert!(done.expect("openssl runs").success());
    fs::set_permissions(site.path("new"), Permissions::from_mode(0o600)).expect("set");
    fs::rename(site.path("new"), site.path("host.key")).expect("renamed");
}

fn write_private(site: &Site, name: &str, content: &str) -> String {
    fs::write(site.path(name), content).expect("written");
    fs::set_permissions(site.path(name), Permissions::from_mode(0o600)).expect("set");
    site.text(name)
}

fn serve(site: &Site, flags: &[&str]) -> Command {
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--root"]);
    command.arg(site.path("")).args(site.flags()).args(flags);
    command
}

#[test]
fn a_passphrase_comes_from_a_file_or_from_systemd_and_a_wrong_one_is_named() {
    let site = site();
    let text = fails(&mut serve(&site, &[]));
    for words in ["encrypted", "no terminal", "key-passphrase"] {
        assert!(text.contains(words), "{text}");
    }
    let file = write_private(&site, "key-passphrase", "secret\n");
    let server = Running::of(&mut serve(&site, &["--key-passphrase", &file]));
    GridClient::connect(server.address, &sample_key(&site));
    let by_systemd = || {
        let mut command = serve(&site, &[]);
        command.env("CREDENTIALS_DIRECTORY", site.path(""));
        command
    };
    drop(Running::of(&mut by_systemd()));
    write_private(&site, "key-passphrase", "another\n");
    let text = fails(&mut by_systemd());
    assert!(
        text.contains("passphrase of the private key is wrong"),
        "{text}"
    );
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
    let text = fails(&mut serve(&site, &["--key-passphrase", &file]));
    assert!(text.contains("may be read by others"), "{text}");
    let text = fails(&mut serve(&site, &["--key-passphrase", "/nonexistent"]));
    assert!(
        text.contains("key-passphrase: /nonexistent: No such file"),
        "{text}"
    );
    let checked = program()
        .arg("check")
        .args(site.flags())
        .args([
            "--root",
            "/",
            "--key-passphrase",
            &write_private(&site, "right", "secret"),
        ])
        .output()
        .expect("started");
    let report = String::from_utf8(checked.stdout).expect("UTF-8");
    assert!(
        report.contains("the passphrase of its key is in"),
        "{report}"
    );
}

/// The client's key, which is not encrypted.
fn sample_key(site: &Site) -> std::path::PathBuf {
    let key = fs::read(sample("host.key")).expect("read");
    let text = String::from_utf8(key).expect("UTF-8");
    write_private(site, "client.key", &text).into()
}

#[test]
fn a_typed_passphrase_serves_renewed_keys_too() {
    let site = site();
    fs::write(site.path("log"), "").expect("written");
    fs::set_permissions(site.path("log"), Permissions::from_mode(0o666)).expect("set");
    // Handshakes without a login after them have penalties.
    let log = site.text("log");
    let flags = ["--log-file", &log, "--penalty-exempt", "127.0.0.0/8"];
    let server = serve(&site, &flags);
    let pid = site.path("pid");
    let program = server.get_program().to_str().expect("UTF-8");
    let mut line = format!("echo $$ > '{}'; exec '{program}'", pid.display());
    for argument in server.get_args() {
        line.push_str(&format!(" '{}'", argument.to_str().expect("UTF-8")));
    }
    let mut terminal = Command::new("script")
        .args(["-qfec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is installed");
    let mut input = terminal.stdin.take().expect("piped");
    let mut output = terminal.stdout.take().expect("piped");
    let mut shown = String::new();
    let started = Started(&pid);
    // The text behind some words, when a part of it ends so.
    let mut show_until = |words: &str, end: &str| loop {
        let behind = shown.split_once(words).map(|(_, behind)| behind);
        if let Some((behind, _)) = behind.and_then(|behind| behind.split_once(end)) {
            break behind.to_owned();
        }
        let mut piece = [0; 256];
        let bytes = output.read(&mut piece).expect("a terminal");
        assert!(bytes > 0, "{shown}");
        shown.push_str(&String::from_utf8_lossy(&piece[..bytes]));
    };
    show_until("host.key", ": ");
    input.write_all(b"secret\n").expect("typed");
    let address = show_until("Server listening at ", "\r\n");
    let address = address.parse().expect("an address");
    let key = sample_key(&site);
    GridClient::connect(address, &key);
    let logged = |words: &str| {
        while !fs::read_to_string(site.path("log"))
            .expect("read")
            .contains(words)
        {
            // The key is examined at logins.
            GridClient::connect(address, &key);
        }
    };
    encrypt(&site, "secret");
    logged("the server's certificate was read again");
    encrypt(&site, "changed");
    logged("passphrase of the private key is wrong");
    started.end(Signal::TERM);
    drop(input);
    terminal.wait().expect("ended");
}

/// The server behind the terminal, which ends with this value.
struct Started<'a>(&'a Path);

impl Started<'_> {
    fn end(&self, signal: Signal) {
        let pid = fs::read_to_string(self.0).ok();
        let pid = pid.and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // It may have ended.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end(Signal::KILL);
        }
    }
}
