//! Limits of groups after a reload.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::client::Client;
use crate::program::{Running, public_directory};

#[test]
fn a_reload_changes_the_limits_of_running_sessions() {
    let root = public_directory();
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(root.path(), all).expect("set");
    let place = public_directory();
    let file = place.path().join("gridhaul.toml");
    let write = |most: usize| {
        let text = format!(
            "anonymous = true\nanonymous-write = true\n\
             [[limit]]\nname = 'all'\nuser = 'anonymous'\nmax-transfers = {most}\n"
        );
        fs::write(&file, text).expect("written");
    };
    write(1);
    let mut server = Running::start(root.path(), &["--config", file.to_str().expect("UTF-8")]);
    let (mut first, mut second) = (Client::log_in(&server), Client::log_in(&server));
    let _running = first.begin(&[("STOR first", "150")]);
    let mut data = second.begin(&[("STOR second", "120")]);
    write(2);
    server.signal(Signal::HUP);
    server.log_until("reloaded");
    second.expect_reply("150");
    data.write_all(b"x").expect("sent");
    drop(data);
    second.expect_reply("226");
}
