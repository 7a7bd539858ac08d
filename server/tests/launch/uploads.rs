//! An upload under a temporary name survives the death of the server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::Client;
use crate::program::{Running, public_directory};

#[test]
fn an_upload_restarts_after_the_server_was_killed() {
    let root = public_directory();
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(root.path(), all).expect("set");
    fs::write(root.path().join("file"), "old").expect("written");
    let all = fs::Permissions::from_mode(0o666);
    fs::set_permissions(root.path().join("file"), all).expect("set");
    let flags = ["--anonymous", "--anonymous-write", "--atomic-uploads", "*"];
    let part = root.path().join(".file.gridhaul-part");

    let server = Running::start(root.path(), &flags);
    let mut client = Client::log_in(&server);
    let mut data = client.begin(&[("STOR file", "150")]);
    data.write_all(b"0123456789").expect("sent");
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read(&part).ok().as_deref() != Some(b"0123456789") {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    server.signal(Signal::KILL);
    let mut rest = Vec::new();
    // The connection ends with the process.
    let _ = data.read_to_end(&mut rest);
    drop(server);
    assert_eq!(fs::read(root.path().join("file")).expect("there"), b"old");

    let server = Running::start(root.path(), &flags);
    let mut client = Client::log_in(&server);
    let mut data = client.begin(&[("REST 10", "350"), ("STOR file", "150")]);
    data.write_all(b"abc").expect("sent");
    drop(data);
    client.expect_reply("226");
    let content = fs::read(root.path().join("file")).expect("there");
    assert_eq!(content, b"0123456789abc");
    assert!(!part.exists());
}
