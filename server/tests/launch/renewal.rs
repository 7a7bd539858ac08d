//! A server started as root, whose key only root may read, and which is renewed while it runs.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::CapabilitySet;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;

use crate::processes::child;
use crate::program::{Running, has_root, public_directory, sample, wait_for};

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(30);

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(sample(name)).expect("a certificate")
}

/// A directory with a certificate for all to read, and a key for root in a directory of its own.
struct Site(TempDir);

impl Site {
    fn new(directory_mode: u32) -> Self {
        let site = Self(public_directory());
        let private = site.0.path().join("private");
        fs::create_dir(&private).expect("made");
        fs::set_permissions(&private, Permissions::from_mode(directory_mode)).expect("set");
        site.install("host.pem", "cert.pem", 0o644);
        site.install("host.key", "private/key.pem", 0o400);
        site
    }

    /// As programs that renew certificates do it: in one step.
    fn install(&self, from: &str, name: &str, mode: u32) {
        let new = self.0.path().join("new");
        fs::copy(sample(from), &new).expect("copied");
        fs::set_permissions(&new, Permissions::from_mode(mode)).expect("set");
        fs::rename(new, self.0.path().join(name)).expect("renamed");
    }

    fn serve(&self, flags: &[&str]) -> Running {
        let path = |name| self.0.path().join(name).to_str().expect("UTF-8").to_owned();
        let (cert, key, log) = (path("cert.pem"), path("private/key.pem"), path("log"));
        // Of many sessions: it would fill a pipe that is not read.
        let mut all = vec!["--log-file", &log, "--anonymous"];
        // Handshakes without a login after them have penalties.
        all.extend(["--penalty-exempt", "127.0.0.0/8"]);
        all.extend(["--cert", &cert, "--key", &key]);
        all.extend(flags);
        Running::start(self.0.path(), &all)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.path().join("log")).expect("read")
    }

    /// Waits until the log has these words: a thread of its own writes it.
    fn wait_for_log(&self, words: &str) {
        wait_for(words, || self.log(), |log| log.contains(words));
    }

    fn renew(&self) {
        self.install("renewed.pem", "cert.pem", 0o644);
        self.install("renewed.key", "private/key.pem", 0o400);
    }
}

/// What a client of `AUTH TLS` is shown.
fn shown(server: &Running) -> CertificateDer<'static> {
    let mut stream = TcpStream::connect(server.address).expect("connected");
    stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
    let mut replies = BufReader::new(stream.try_clone().expect("a handle"));
    stream.write_all(b"AUTH TLS\r\n").expect("sent");
    for code in ["220 ", "234 "] {
        let mut line = String::new();
        replies.read_line(&mut line).expect("a reply");
        assert!(line.starts_with(code), "{line}");
    }
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).expect("a handshake");
    }
    connection.peer_certificates().expect("shown")[0].clone()
}

/// The certificate that follows `host.pem`; that itself if it stays.
fn shown_after_renewal(server: &Running) -> CertificateDer<'static> {
    let begun = Instant::now();
    loop {
        let certificate = shown(server);
        if certificate != self::certificate("host.pem") || begun.elapsed() > TIME_LIMIT {
            return certificate;
        }
        std::thread::yield_now();
    }
}

/// The rights of the monitor.
fn rights_of_the_monitor(server: &Running) -> String {
    let status = format!("/proc/{}/status", child(server, "gh-monitor"));
    let status = fs::read_to_string(status).expect("a process");
    let rights = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    rights.expect("every process has them").trim().to_owned()
}

#[test]
fn a_key_that_only_root_may_read_is_used_without_a_restart() {
    if !has_root() {
        return;
    }
    for directory_mode in [0o755, 0o700] {
        let site = Site::new(directory_mode);
        let server = site.serve(&[]);
        assert_eq!(shown(&server), certificate("host.pem"));
        let reads = CapabilitySet::DAC_READ_SEARCH.bits();
        assert_eq!(rights_of_the_monitor(&server), format!("{reads:016x}"));
        site.renew();
        assert_eq!(shown_after_renewal(&server), certificate("renewed.pem"));
        site.wait_for_log("read again");
    }
}

#[test]
fn it_is_used_in_a_server_for_certificates_too() {
    if !has_root() {
        return;
    }
    let site = Site::new(0o700);
    let trust = public_directory();
    for name in ["ca.pem", "ca.signing_policy"] {
        fs::copy(sample(name), trust.path().join(name)).expect("copied");
    }
    let map = trust.path().join("map");
    fs::write(&map, "").expect("written");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (trust, map) = (text(trust.path()), text(&map));
    let server = site.serve(&["--gsi", "--trust", &trust, "--gridmap", &map]);
    site.renew();
    assert_eq!(shown_after_renewal(&server), certificate("renewed.pem"));
}

#[test]
fn a_key_that_others_could_exchange_is_not_used_and_the_log_says_why() {
    if !has_root() {
        return;
    }
    let site = Site::new(0o755);
    let server = site.serve(&[]);
    let nobody = nix::unistd::User::from_name("nobody")
        .expect("asked")
        .expect("there is a nobody");
    chown(
        site.0.path().join("private"),
        Some(nobody.uid.as_raw()),
        None,
    )
    .expect("root may");
    site.renew();
    let begun = Instant::now();
    while !site.log().contains("let only root write") {
        assert_eq!(shown(&server), certificate("host.pem"));
        assert!(begun.elapsed() < TIME_LIMIT, "{}", site.log());
    }
    assert_eq!(shown(&server), certificate("host.pem"));
}
