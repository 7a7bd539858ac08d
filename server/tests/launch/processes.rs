//! What each process of the server holds, as the kernel shows it.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use argon2::password_hash::phc::PasswordHash;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::client::Client;
use crate::program::{Running, has_root, program, public_directory, sample, text};

/// A child of the server, by its name in the list of processes.
pub(crate) fn child(server: &Running, name: &str) -> u32 {
    let children = children(server.id());
    let found = children.iter().find(|(_, found)| found == name);
    found
        .unwrap_or_else(|| panic!("no {name} among {children:?}"))
        .0
}

/// The processes that a process started, with their names.
pub(crate) fn children(process: u32) -> Vec<(u32, String)> {
    let list = format!("/proc/{process}/task/{process}/children");
    let list = fs::read_to_string(list).expect("a process");
    let own = list
        .split_whitespace()
        .map(|id| id.parse().expect("a number"));
    own.map(|id: u32| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).expect("a process");
        (id, name.trim().to_owned())
    })
    .collect()
}

/// A line of `/proc/ID/status`.
fn status(process: u32, title: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(title)?.strip_prefix(':'));
    line.expect("every process has it").trim().to_owned()
}

/// Whether a process has one of these bytes anywhere in the memory that it may write to.
fn holds(process: u32, needles: &[Vec<u8>]) -> bool {
    const MOST_BYTES: u64 = 256 << 20;

    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("a process");
    let memory = File::open(format!("/proc/{process}/mem")).expect("root may");
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let Some((start, end)) = range.split_once('-') else {
            return false;
        };
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (start, end) = (number(start), number(end));
        if !rights.starts_with("rw") || end - start > MOST_BYTES {
            return false;
        }
        let mut content = vec![0; usize::try_from(end - start).expect("it fits")];
        // Some mappings cannot be read, those of devices among them.
        memory.read_exact_at(&mut content, start).is_ok()
            && needles.iter().any(|needle| {
                content
                    .windows(needle.len())
                    .any(|window| window == needle.as_slice())
            })
    })
}

/// The number that is the sample host's private key, in both orders of bytes.
fn private_number() -> Vec<Vec<u8>> {
    let key = PrivateKeyDer::from_pem_file(sample("host.key")).expect("a key");
    let der = key.secret_der();
    // SEC 1 C.4: version 1, and a string of 32 bytes.
    let mark = [2, 1, 1, 4, 32];
    let at = der.windows(mark.len()).position(|window| window == mark);
    let start = at.expect("a key on P-256") + mark.len();
    let number = der[start..start + 32].to_vec();
    let reversed = number.iter().rev().copied().collect();
    vec![number, reversed]
}

/// Makes a file with a user, and gives the bytes of the hash.
pub(crate) fn set_password(file: &Path) -> Vec<u8> {
    let mut child = program()
        .arg("passwd")
        .arg(file)
        .arg("ann")
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"secret\n").expect("written");
    drop(input);
    assert!(child.wait().expect("ended").success());
    let text = fs::read_to_string(file).expect("read");
    let hash = text.trim().split(':').nth(1).expect("a hash");
    let hash = PasswordHash::new(hash).expect("a hash");
    hash.hash.expect("it has one").as_bytes().to_vec()
}

#[test]
fn secrets_are_in_the_login_process_and_nowhere_else() {
    if !has_root() {
        return;
    }
    let site = site();
    let text = |name: &str| site.path().join(name).to_str().expect("UTF-8").to_owned();
    let (users, cert, key) = (text("users"), text("cert.pem"), text("key.pem"));
    let hash = set_password(Path::new(&users));
    fs::set_permissions(&users, Permissions::from_mode(0o644)).expect("set");
    let flags = ["--passwords", &users, "--cert", &cert, "--key", &key];
    let server = Running::start(site.path(), &flags);
    // Both secrets have been used.
    let replies = server.dialogue(&["USER ann", "PASS secret"]);
    assert!(replies[2].starts_with("230"), "{replies:?}");
    let client = Command::new("openssl")
        .args(["s_client", "-starttls", "ftp", "-connect"])
        .arg(server.address.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("openssl is there");
    let shown = String::from_utf8_lossy(&client.stdout);
    assert!(shown.contains("BEGIN CERTIFICATE"), "{shown}");

    let login = child(&server, "gh-login");
    for secret in [private_number(), vec![hash]] {
        assert!(holds(login, &secret), "where else would it be");
        assert!(
            !holds(server.id(), &secret),
            "the process that clients talk to"
        );
        let others = ["gh-monitor", "gh-front"];
        for other in others {
            assert!(!holds(child(&server, other), &secret), "{other}");
        }
    }
}

/// A directory with a host's certificate and key.
pub(crate) fn site() -> tempfile::TempDir {
    let site = public_directory();
    for (from, name, mode) in [
        ("host.pem", "cert.pem", 0o644),
        ("host.key", "key.pem", 0o600),
    ] {
        let to = site.path().join(name);
        fs::copy(sample(from), &to).expect("copied");
        fs::set_permissions(&to, Permissions::from_mode(mode)).expect("set");
    }
    site
}

/// A server with the certificate and the key of a [`site`]. It has a monitor.
fn with_key(site: &tempfile::TempDir) -> Running {
    let (cert, key) = (site.path().join("cert.pem"), site.path().join("key.pem"));
    let flags = ["--anonymous", "--cert", text(&cert), "--key", text(&key)];
    Running::start(site.path(), &flags)
}

/// The sockets that a process has, by the kernel's numbers.
fn sockets(process: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("a process");
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:")?.to_owned()))
        .collect()
}

#[test]
fn processes_share_no_end_of_a_socket() {
    if !has_root() {
        return;
    }
    let site = site();
    let server = with_key(&site);
    let login = child(&server, "gh-login");
    let monitor = child(&server, "gh-monitor");
    assert_eq!(status(login, "NoNewPrivs"), "1");
    // One socket of the monitor, whose other end the login process has.
    assert_eq!(sockets(monitor).len(), 1);
    let front = child(&server, "gh-front");
    assert_eq!(status(front, "NoNewPrivs"), "1");
    for (one, other) in [
        (server.id(), login),
        (server.id(), monitor),
        (server.id(), front),
        (front, login),
        (front, monitor),
        (login, monitor),
    ] {
        let others = sockets(other);
        let both: Vec<_> = sockets(one)
            .into_iter()
            .filter(|socket| others.contains(socket))
            .collect();
        assert_eq!(both, [""; 0]);
    }
}

#[test]
fn a_login_process_that_cannot_read_its_files_says_why() {
    let site = public_directory();
    let users = site.path().join("users");
    fs::write(&users, "ann:no hash\n").expect("written");
    let error = crate::program::fails(
        program()
            .args(["serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(site.path())
            .arg("--passwords")
            .arg(&users),
    );
    assert!(error.contains("line 1"), "{error}");
}

/// As the kernel does it to a process that takes too much memory.
pub(crate) fn kill(server: &Running, name: &str) {
    signal(server, name, rustix::process::Signal::KILL);
}

fn signal(server: &Running, name: &str, signal: rustix::process::Signal) {
    let process = i32::try_from(child(server, name)).expect("a process number");
    let process = rustix::process::Pid::from_raw(process).expect("not zero");
    rustix::process::kill_process(process, signal).expect("sent");
}

#[test]
fn without_the_login_process_nobody_logs_in_and_the_log_says_so() {
    let site = public_directory();
    let mut server = Running::start(site.path(), &["--anonymous"]);
    let (mut client, _) = Client::connect(&server);
    assert!(client.send("USER anonymous").starts_with("331"));
    kill(&server, "gh-login");
    let reply = client.send("PASS x");
    assert!(!reply.starts_with('2'), "{reply}");
    drop(client);
    let log = server.log_until("has ended");
    assert!(
        log.contains("ERROR") && log.contains("decides logins"),
        "{log}"
    );
    let (status, _) = server.ended();
    assert_eq!(status, 1, "the service manager starts it again");
}

/// The monitor ends when the login process does, and may be seen first.
#[test]
fn the_process_that_was_killed_is_named_and_none_that_ended_in_consequence() {
    if !has_root() {
        return;
    }
    let site = site();
    for _ in 0..8 {
        let server = with_key(&site);
        kill(&server, "gh-login");
        let (status, log) = server.ended();
        assert_eq!(status, 1, "{log}");
        let told = "the process that decides logins has ended (killed by signal 9)";
        assert!(log.contains(told), "{log}");
        assert_eq!(
            log.matches("has ended").count(),
            log.matches(told).count(),
            "{log}"
        );
    }
}

#[test]
fn a_login_process_that_hangs_is_told_of_and_clients_are_not_kept() {
    let site = public_directory();
    let flags = ["--anonymous", "--login-timeout", "3s"];
    let mut server = Running::start(site.path(), &flags);
    let (mut client, _) = Client::connect(&server);
    signal(&server, "gh-login", rustix::process::Signal::STOP);
    assert!(client.send("USER anonymous").starts_with("331"));
    let reply = client.send("PASS x");
    assert!(reply.starts_with("421"), "{reply:?}");
    assert_eq!(client.reply(), "", "the connection is closed");
    let log = server.log_until("does not answer");
    let told = |line: &str| line.contains("ERROR") && line.contains("decides logins");
    assert!(log.lines().any(told), "{log}");
    server.signal(rustix::process::Signal::HUP);
    server.log_until("not everything was reloaded");
    signal(&server, "gh-login", rustix::process::Signal::CONT);
    server.log_until("answers again");
    Client::log_in(&server);
}

#[test]
fn a_reload_without_the_key_says_that_a_restart_would_fail() {
    if !has_root() {
        return;
    }
    let site = site();
    let mut server = with_key(&site);
    let key = site.path().join("key.pem");
    fs::remove_file(&key).expect("removed");
    server.signal(rustix::process::Signal::HUP);
    let log = server.log_until("a restart would fail");
    assert!(
        log.contains("not usable: ") && log.contains(text(&key)),
        "{log}"
    );
    Client::log_in(&server);
}

#[test]
fn without_the_monitor_the_server_ends_with_an_error() {
    if !has_root() {
        return;
    }
    let site = site();
    let server = with_key(&site);
    kill(&server, "gh-monitor");
    let (status, log) = server.ended();
    assert_eq!(status, 1, "the service manager starts it again");
    let told = log
        .lines()
        .any(|line| line.contains("ERROR") && line.contains("the monitor"));
    assert!(told, "{log}");
}

#[test]
fn transfers_finish_when_the_login_process_ends() {
    let site = public_directory();
    let server = Running::start(site.path(), &["--anonymous"]);
    transfers_finish_without("gh-login", site.path(), server);
}

#[test]
fn transfers_finish_when_the_monitor_ends() {
    if !has_root() {
        return;
    }
    let site = site();
    let server = with_key(&site);
    transfers_finish_without("gh-monitor", site.path(), server);
}

/// Kills a process of the server during a transfer.
fn transfers_finish_without(name: &str, site: &Path, server: Running) {
    const BYTES: u64 = 64 << 20;

    let file = File::create(site.join("large")).expect("made");
    file.set_len(BYTES).expect("set");
    let mut client = Client::log_in(&server);
    let mut data = client.retrieve("large");
    kill(&server, name);
    // The server has noticed: it listens no more.
    let begun = Instant::now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::yield_now();
    }
    let received = std::io::copy(&mut data, &mut std::io::sink()).expect("received");
    assert_eq!(received, BYTES);
    let finished = client.reply();
    assert!(finished.starts_with("226"), "{finished}");
    let (status, log) = server.ended();
    assert_eq!(status, 1, "{log}");
    let told = |line: &str| line.contains("ERROR") && line.contains("has ended");
    assert!(log.lines().any(told), "{log}");
}

/// The command line of a process.
fn command_line(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).expect("a process");
    let line = String::from_utf8(line).expect("UTF-8");
    line.trim_end_matches('\0').to_owned()
}

#[test]
fn each_process_has_a_name_of_its_own() {
    if !has_root() {
        return;
    }
    let site = site();
    let server = with_key(&site);
    for (name, line) in [
        ("gh-front", "gridhaul-server: front process"),
        ("gh-login", "gridhaul-server: login process"),
        ("gh-monitor", "gridhaul-server: monitor"),
    ] {
        let found = command_line(child(&server, name));
        assert!(found.starts_with(line), "{name}: {found:?}");
    }
    assert!(command_line(server.id()).contains("serve\0--listen"));
    let listed = Command::new("ps")
        .args(["-o", "comm=", "-p"])
        .arg(server.id().to_string())
        .output()
        .expect("ps is there");
    assert_eq!(
        String::from_utf8_lossy(&listed.stdout).trim(),
        "gridhaul-server"
    );
}
