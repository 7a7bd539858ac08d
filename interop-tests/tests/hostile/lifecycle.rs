//! Signals: SIGTERM lets transfers finish, SIGHUP reloads the configuration.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{Control, connect_data};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Fixture, HELLO, assert_reply, wait_until};

fn signal(fixture: &Fixture, signal: Signal) {
    let pid = Pid::from_raw(fixture.server.pid().cast_signed()).expect("a process number");
    kill_process(pid, signal).unwrap();
}

#[test]
fn sigterm_ends_an_idle_server_at_once() {
    let mut fixture = Fixture::ours(&[]);
    let mut session = fixture.session();
    let begin = Instant::now();
    let status = fixture.server.stop(Duration::from_secs(10)).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "it took {:?}",
        begin.elapsed()
    );
    for reply in session.until_closed().unwrap() {
        assert_reply(&reply, &[421], &["shut"]);
    }
}

#[test]
fn sigterm_lets_a_transfer_finish() {
    let mut fixture = Fixture::ours(&["--grace", "30"]);
    fixture.large_file("large");
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    signal(&fixture, Signal::TERM);
    let address = fixture.address();
    wait_until("new sessions are refused", || {
        Control::greeted(address).is_err()
    });
    let received = std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(received, 64 << 20);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(ended(&mut fixture), Some(0));
}

/// The exit status of a server that is ending.
fn ended(fixture: &mut Fixture) -> Option<i32> {
    wait_until("the server ends", || !fixture.server.is_running());
    let status = fixture.server.stop(Duration::ZERO).unwrap();
    status.and_then(|status| status.code())
}

#[test]
fn sigterm_does_not_wait_longer_than_the_grace_time() {
    let mut fixture = Fixture::ours(&["--grace", "1"]);
    fixture.large_file("large");
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    let begin = Instant::now();
    let status = fixture.server.stop(Duration::from_secs(15)).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begin.elapsed()
    );
    let mut received = Vec::new();
    let _ = channel.read_to_end(&mut received);
    assert!(received.len() < 64 << 20);
    for reply in control.until_closed().unwrap() {
        assert_reply(&reply, &[421, 426], &["shut"]);
    }
}

#[test]
fn sigint_is_sigterm() {
    let mut fixture = Fixture::ours(&[]);
    fixture.serves();
    signal(&fixture, Signal::INT);
    assert_eq!(ended(&mut fixture), Some(0));
}

#[test]
fn a_second_sigterm_waits_no_longer() {
    let mut fixture = Fixture::ours(&["--grace", "600"]);
    fixture.large_file("large");
    let mut control = fixture.session();
    let _channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    signal(&fixture, Signal::TERM);
    let address = fixture.address();
    wait_until("new sessions are refused", || {
        Control::greeted(address).is_err()
    });
    signal(&fixture, Signal::TERM);
    assert_eq!(ended(&mut fixture), Some(0));
}

/// A server with a configuration file that it can read.
fn configured(content: &str) -> (Fixture, PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    crate::fixture::give_to_server(directory.path());
    let path = directory.path().join("gridhaul.toml");
    fs::write(&path, content).unwrap();
    let fixture = Fixture::ours(&["--config", path.to_str().unwrap()]);
    (fixture, path, directory)
}

fn greeting(fixture: &Fixture) -> String {
    Control::connect(fixture.address())
        .unwrap()
        .reply()
        .unwrap()
        .text()
}

#[test]
fn sighup_reloads_the_configuration() {
    let (fixture, path, _directory) = configured("banner = \"first\"\n");
    assert_eq!(greeting(&fixture), "220 first");
    let mut session = fixture.session();
    fs::write(
        &path,
        "banner = \"second\"\nmax-connections-per-address = 2\n",
    )
    .unwrap();
    signal(&fixture, Signal::HUP);
    wait_until("the new greeting", || greeting(&fixture) == "220 second");
    fixture.session_works(&mut session);
    let _other = fixture.session();
    let mut refused = Control::connect(fixture.address()).unwrap();
    assert_reply(&refused.until_closed().unwrap()[0], &[421], &["limit"]);
    fixture.session_works(&mut session);
}

#[test]
fn sighup_during_a_transfer_does_not_disturb_it() {
    let (fixture, path, _directory) = configured("banner = \"first\"\n");
    fixture.large_file("large");
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    fs::write(&path, "banner = \"second\"\n").unwrap();
    signal(&fixture, Signal::HUP);
    wait_until("the new greeting", || greeting(&fixture) == "220 second");
    let received = std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(received, 64 << 20);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}

#[test]
fn an_invalid_configuration_is_reported_and_the_old_one_stays() {
    let (fixture, path, _directory) = configured("banner = \"first\"\n");
    let mut session = fixture.session();
    fs::write(&path, "banner = \"second\"\nno-such-key = 1\n").unwrap();
    signal(&fixture, Signal::HUP);
    wait_until("the log names the line", || {
        let log = fixture.server.log();
        log.contains("no-such-key") && log.contains("line 2")
    });
    assert_eq!(greeting(&fixture), "220 first");
    fixture.session_works(&mut session);
}

#[test]
fn an_invalid_configuration_at_the_start_is_reported() {
    let (fixture, path, _directory) = configured("");
    fs::write(&path, "idle-timeout = \"soon\"\n").unwrap();
    let program = fs::read_link(format!("/proc/{}/exe", fixture.server.pid())).unwrap();
    let output = Command::new(program)
        .args([
            "serve",
            "--anonymous",
            "--listen",
            "127.0.0.1:0",
            "--config",
        ])
        .arg(&path)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        words.contains("idle-timeout") && words.contains("line 1"),
        "{words}"
    );
    fixture.serves();
}

#[test]
fn a_port_in_use_is_reported() {
    let fixture = Fixture::ours(&[]);
    let program = fs::read_link(format!("/proc/{}/exe", fixture.server.pid())).unwrap();
    let address = fixture.address().to_string();
    let output = Command::new(program)
        .args(["serve", "--anonymous", "--root", "/", "--listen", &address])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        words.contains(&address) && words.contains("in use"),
        "{words}"
    );
    assert_eq!(fixture.content(HELLO.0), HELLO.1);
}
