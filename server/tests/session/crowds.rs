//! Crowds that do not log in, and the room that they leave.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use gridhaul_server::passwords::{Grant, set_password};
use socket2::{Domain, Socket, Type};

use crate::client::Client;
use crate::served::Served;

/// A client with this address of the loopback network, 127.0.0.`last`.
pub(crate) fn connect_from(last: u8, served: &Served) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let local = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(&local.into()).expect("bound");
    socket.connect(&served.address().into()).expect("connected");
    Client::over(socket.into())
}

fn log_in(client: &mut Client) {
    client.expect_reply(220);
    client.expect("USER anonymous", 331);
    client.expect("PASS x@", 230);
}

#[test]
fn silent_connections_of_two_addresses_leave_a_third_its_place() {
    let served = Served::with(|settings| {
        settings.max_connections = Some(60);
        settings.max_connections_per_address = Some(30);
    });
    let mut user = connect_from(2, &served);
    log_in(&mut user);
    let mut silent: Vec<Client> = (0..100).map(|n| connect_from(2 + n % 2, &served)).collect();
    for _ in 0..10 {
        log_in(&mut connect_from(4, &served));
    }
    // Users stay, also those of the addresses that the crowd came from.
    user.expect("NOOP", 200);
    let displaced = silent.iter_mut().filter_map(|client| {
        let first = client.reply();
        (first.code() == 220).then_some(())
    });
    let count = displaced.count();
    // A few are kept free for others, and a network that has many takes none of the last ones.
    assert!((50..60).contains(&count), "{count} had places");
}

#[test]
fn anonymous_users_of_many_addresses_leave_users_places() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("users");
    set_password(&file, "ann", b"one", &Grant::default()).expect("made");
    let served = Served::with(|settings| {
        settings.max_connections = Some(32);
        settings.passwords = Some(file);
    });
    let mut crowd: Vec<Client> = (2..30).map(|n| connect_from(n, &served)).collect();
    crowd.iter_mut().for_each(log_in);
    let mut refused = connect_from(30, &served);
    refused.expect_reply(220);
    refused.expect("USER anonymous", 331);
    let text = refused.expect("PASS x@", 421);
    assert!(text.contains("anonymous users"), "{text}");
    refused.expect_end();
    let mut ann = connect_from(31, &served);
    ann.expect_reply(220);
    ann.expect("USER ann", 331);
    ann.expect("PASS one", 230);
    // A place that comes back is for the next one.
    let mut left = crowd.pop().expect("a crowd");
    left.expect("QUIT", 221);
    left.expect_end();
    while served.server().sessions() > 28 {
        thread::yield_now();
    }
    log_in(&mut connect_from(30, &served));
}

#[test]
fn who_loses_the_place_is_told_so() {
    let served = Served::with(|settings| settings.max_startups = "1:100:1".parse().ok());
    let mut silent = connect_from(2, &served);
    silent.expect_reply(220);
    log_in(&mut connect_from(3, &served));
    let text = silent.expect_reply(421);
    assert!(text.contains("have not logged in"), "{text}");
    silent.expect_end();
}

#[test]
fn an_address_of_garbage_is_refused_for_a_while_unless_it_is_exempt() {
    let refused = |exempt: Option<&str>| {
        let served = Served::with(|settings| {
            settings.penalty_exempt = exempt.map(|block| vec![block.parse().expect(block)]);
        });
        let mut user = connect_from(2, &served);
        log_in(&mut user);
        let codes: Vec<u16> = (0..100)
            .map(|_| {
                let mut client = connect_from(2, &served);
                let code = client.reply().code();
                if code == 220 {
                    client.send_bytes(b"\x16\x03\x01\x02\x00\x01\r\n");
                    client.expect_reply(500);
                    client.expect("QUIT", 221);
                    client.expect_end();
                }
                code
            })
            .collect();
        assert_eq!(codes[..3], [220; 3], "a few are no harm");
        user.expect("NOOP", 200);
        log_in(&mut connect_from(3, &served));
        codes.iter().filter(|code| **code == 421).count()
    };
    let count = refused(None);
    assert!((30..97).contains(&count), "{count} of 100");
    assert_eq!(refused(Some("127.0.0.0/24")), 0);
}

#[test]
fn a_client_that_logged_in_and_began_anew_may_leave() {
    let served = Served::new();
    for _ in 0..100 {
        let mut client = connect_from(2, &served);
        log_in(&mut client);
        client.expect("REIN", 220);
        client.expect("QUIT", 221);
        client.expect_end();
    }
}
