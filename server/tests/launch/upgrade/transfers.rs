//! Transfers that run while the new version takes over.

use super::*;

#[test]
fn transfers_end_in_the_version_that_began_them() {
    // `grace` is about the end of the service.
    let site = Site::new(
        "grace = '0s'\n[[limit]]\nname = 'slow'\nuser = 'anonymous'\nbandwidth = '16M'\n",
    );
    let mut server = site.start();
    let mut getting = Client::log_in(&server);
    let (data, begun) = begin_to_receive(&mut getting);
    let mut putting = Client::log_in(&server);
    let mut upload = putting.begin(&[("STOR put", "150")]);
    let content = pattern(LARGE);
    upload.write_all(&content[..64 * 1024]).expect("sent");
    // A third-party transfer: the client has only the control connections.
    let (mut from, mut to) = (Client::log_in(&server), Client::log_in(&server));
    let port = to.passive().port();
    to.stream.write_all(b"STOR copy\r\n").expect("sent");
    from.expect(
        &format!("PORT 127,0,0,1,{},{}", port >> 8, port & 0xff),
        "200",
    );
    from.expect("RETR large", "150");
    to.expect_reply("150");
    let new = site.upgrade();
    Client::log_in(&server).expect("QUIT", "221");
    upload.write_all(&content[64 * 1024..]).expect("sent");
    drop(upload);
    putting.expect_reply("226");
    receive_rest(data, begun);
    getting.expect_reply("226");
    // Sessions go on, also with further transfers.
    let (data, begun) = begin_to_receive(&mut getting);
    receive_rest(data, begun);
    getting.expect_reply("226");
    from.expect_reply("226");
    to.expect_reply("226");
    assert!(site.read("put") == content && site.read("copy") == content);
    // Some have done nothing for too long by now.
    drop((getting, putting, from, to));
    assert_eq!(server.wait(), 0);
    Client::log_in(&server).expect("QUIT", "221");
    new.signal(Signal::TERM);
    new.gone();
}

#[test]
fn transfers_that_outlast_the_time_are_cancelled() {
    let site = Site::new("upgrade-grace = '1s'\n");
    let mut server = site.start();
    let mut client = Client::log_in(&server);
    let (_data, _) = begin_to_receive(&mut client);
    let new = site.upgrade();
    client.expect_reply("426");
    assert_eq!(server.wait(), 0);
    let log = server.log_until("a new version serves");
    assert!(log.contains("an upgrade begins"), "{log}");
    Client::log_in(&server).expect("QUIT", "221");
    new.signal(Signal::TERM);
    new.gone();
}

#[test]
fn a_session_that_does_nothing_ends_and_a_login_can_be_completed() {
    let site = Site::new("");
    let mut server = site.start();
    let mut idle = Client::log_in(&server);
    let (mut late, _) = Client::connect(&server);
    late.expect("USER anonymous", "331");
    let _new = site.upgrade();
    late.expect("PASS x", "230");
    late.expect("TYPE I", "200");
    let (data, begun) = begin_to_receive(&mut late);
    receive_rest(data, begun);
    late.expect_reply("226");
    late.expect("QUIT", "221");
    // After ten seconds.
    idle.expect_reply("421");
    assert_eq!(server.wait(), 0);
}

#[test]
fn an_end_waits_for_the_transfers_of_both_versions() {
    let site = Site::new("");
    let mut server = site.start();
    let mut client = Client::log_in(&server);
    let (data, begun) = begin_to_receive(&mut client);
    let new = site.upgrade();
    new.signal(Signal::TERM);
    // The new version has no session itself. A service manager would kill the other one after its end.
    server.log_until("shutting down");
    receive_rest(data, begun);
    client.expect_reply("226");
    client.expect("QUIT", "221");
    assert!(test_kill_process(new.0).is_ok(), "it waits");
    assert_eq!(server.wait(), 0);
    new.gone();
}
