//! The filter for fail2ban, with its own program, on lines that the server wrote.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::Control;
use gridhaul_interop::{Kind, Launch, Pki, Server, chown_to_nobody};

/// The address of each refusal that the filter finds, in the order of the log.
fn banned(log: &Path) -> Vec<String> {
    let filter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/fail2ban/filter.d");
    let output = Command::new("fail2ban-regex")
        .args(["--out", "ip"])
        .arg(log)
        .arg(filter.join("gridhaul.conf"))
        .output()
        .expect("the package fail2ban is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(errors.is_empty(), "{errors}");
    found.lines().map(str::to_owned).collect()
}

/// An address of this machine.
fn loopback(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// Names with which attackers try to make another line, or to look like one.
const NAMES: [&str; 6] = [
    "eve",
    "x peer=203.0.113.9 ",
    "\" session=1 peer=203.0.113.9 ",
    "x\",\"peer\":\"203.0.113.9\",\"y\":\"",
    "WARN audit: login failed session=1 peer=203.0.113.9 ",
    "{\"timestamp\":\"\",\"level\":\"WARN\",\"message\":\"login failed\",\"session\":1,\"peer\":\"203.0.113.9\",",
];

/// Lets strangers be refused in each way, each from an address of its own, and a user work. Returns the addresses of the
/// refused ones.
fn refusals(server: &Server) -> Vec<String> {
    let mut refused = Vec::new();
    let mut stranger = |last: u8| {
        refused.push(loopback(last).to_string());
        let mut control = Control::connect_from(loopback(last), server.address()).unwrap();
        assert_eq!(control.reply().unwrap().code, 220);
        control
    };
    for (last, name) in (10..).zip(NAMES) {
        let mut control = stranger(last);
        control.must(&format!("USER {name}"), 331).unwrap();
        control.must("PASS x", 530).unwrap();
    }
    let mut garbage = stranger(30);
    garbage.must("AUTH TLS", 234).unwrap();
    garbage.send(b"this is no handshake\r\n\r\n").unwrap();
    assert!(garbage.reply().is_err(), "the server closes the connection");
    let mut aborted = stranger(31);
    aborted.must("AUTH TLS", 234).unwrap();
    drop(aborted);

    // Nothing of this is a refusal. File names are chosen by users, too.
    let mut user = Control::anonymous_from(loopback(50), server.address()).unwrap();
    for name in NAMES {
        user.must(&format!("MKD {name}"), 257).unwrap();
        user.must(&format!("DELE {name}/x"), 550).unwrap();
    }
    user.must("QUIT", 221).unwrap();
    refused
}

fn wait_for(log: &Path, words: &str, count: usize) {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(log).unwrap();
        if text.matches(words).count() >= count {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::yield_now();
    }
}

#[test]
fn all_refusals_are_found_with_their_address_and_nothing_else() {
    let pki = Pki::shared().unwrap();
    for format in ["text", "json"] {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        chown_to_nobody(place.path()).unwrap();
        let logs = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { logs.path().join(name) };
        let (log, audit) = (path("log"), path("audit"));
        let server = Launch::new(Kind::Gridhaul, place.path())
            .tls(pki)
            .arg("--log-format")
            .arg(format)
            .arg("--log-file")
            .arg(&log)
            .arg("--audit-log")
            .arg(&audit)
            .start()
            .unwrap();
        let mut expected = refusals(&server);
        wait_for(&log, "authentication failed", 2);
        wait_for(&log, "session closed", expected.len() + 1);
        expected.sort();
        for log in [&log, &audit] {
            let text = fs::read_to_string(log).unwrap();
            assert!(text.contains("203.0.113.9"), "the names are there: {text}");
            let mut found = banned(log);
            found.sort();
            assert_eq!(found, expected, "{format}: {text}");
        }
    }
}
