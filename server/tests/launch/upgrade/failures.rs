//! Upgrades that fail leave the running version as it is.

use std::net::{TcpListener, TcpStream};

use super::*;

/// The server serves as before, and can be upgraded when the mistake is mended.
fn goes_on(site: &Site, mut server: Running) {
    let mut client = Client::log_in(&server);
    client.expect("SIZE large", "213");
    site.configure("");
    let _new = site.upgrade();
    client.expect("QUIT", "221");
    assert_eq!(server.wait(), 0);
    Client::log_in(&server);
}

#[test]
fn a_wrong_configuration_is_told_before_anything_changes() {
    let site = Site::new("");
    let mut server = site.start();
    site.configure("no-such-key = 1\n");
    let reason = site.fail();
    for words in ["refuses the configuration", "error", "no-such-key"] {
        assert!(reason.contains(words), "{words}: {reason}");
    }
    let log = server.log_until("no upgrade: this version goes on");
    assert!(
        log.contains("ERROR") && log.contains("no-such-key"),
        "{log}"
    );
    goes_on(&site, server);
}

#[test]
fn a_program_that_does_not_start_changes_nothing() {
    let site = Site::new("");
    let server = site.start();
    for (script, words) in [
        ("echo it is broken; exit 3", "it is broken"),
        ("test \"$1\" = check", "it has ended"),
    ] {
        site.install_script(script);
        let reason = site.fail();
        assert!(reason.contains(words), "{words}: {reason}");
    }
    fs::remove_file(site.program()).expect("removed");
    let reason = site.fail();
    assert!(reason.contains("No such file"), "{reason}");
    goes_on(&site, server);
}

#[test]
fn a_new_version_that_cannot_listen_tells_why() {
    let site = Site::new("");
    let server = site.start();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound");
    site.configure(&format!("metrics-listen = '{address}'\n"));
    let reason = site.fail();
    assert!(
        reason.contains(&format!("{address} is in use")) && reason.contains("metrics-listen"),
        "{reason}"
    );
    goes_on(&site, server);
}

#[test]
fn a_program_that_other_users_can_replace_is_not_started() {
    let site = Site::new("");
    let server = site.start();
    site.install_script("exit 0");
    let mode = Permissions::from_mode(0o757);
    fs::set_permissions(site.program(), mode).expect("ours");
    let reason = site.fail();
    assert!(reason.contains("can replace"), "{reason}");
    goes_on(&site, server);
}

#[test]
fn transfers_finish_when_the_new_version_dies() {
    let site = Site::new("");
    let mut server = site.start();
    let mut client = Client::log_in(&server);
    let (data, begun) = begin_to_receive(&mut client);
    let new = site.upgrade();
    Client::log_in(&server).expect("QUIT", "221");
    new.signal(Signal::KILL);
    receive_rest(data, begun);
    client.expect_reply("226");
    client.expect("QUIT", "221");
    assert_eq!(server.wait(), 0);
    let reached = || match TcpStream::connect(server.address) {
        Ok(_) => "connected",
        Err(_) => "refused",
    };
    wait_for("refused", reached, |reached| *reached == "refused");
}

#[test]
fn only_clients_of_the_unix_socket_may_order_an_upgrade() {
    let site = Site::new("admin-listen = '127.0.0.1:0'\n");
    let mut server = site.start();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut server.stdout, &mut line).expect("a line");
    let address = line.trim_end().strip_prefix("Administration at http://");
    let address = address.expect("an address");
    let mut stream = TcpStream::connect(address).expect("connected");
    let request = format!(
        "POST /api/upgrade HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("Unix socket"), "{answer}");
}
