//! Many unfinished and failing handshakes.

use std::io;
use std::net::Ipv4Addr;

use gridhaul_interop::UserKind;
use gridhaul_interop::raw::{Control, End, Exchange, GsiControl, Identity, connect_data};
use gridhaul_interop::support::usage::{ProcessTree, raise_descriptor_limit};

use super::Site;
use crate::fixture::{assert_reply, wait_until};

/// The addresses of hostile clients.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The allowed memory of a waiting exchange in the server, in bytes.
const EXCHANGE: u64 = 256 << 10;

/// An exchange of which only this number of tokens are sent.
fn half_finished(
    site: &Site,
    from: Ipv4Addr,
    identity: &Identity,
    tokens: usize,
) -> io::Result<Exchange> {
    let mut control = Control::connect_from(from, site.fixture.address())?;
    control.reply()?;
    let mut exchange = Exchange::begin(control, identity)?;
    for _ in 0..tokens {
        exchange.step()?;
    }
    Ok(exchange)
}

/// A login from this address, on a new connection.
fn log_in_from(site: &Site, from: Ipv4Addr) -> io::Result<GsiControl> {
    let mut control = Control::connect_from(from, site.fixture.address())?;
    control.reply()?;
    let mut session = Exchange::begin(control, &site.alice())?.finish()?;
    session.log_in()?;
    Ok(session)
}

#[test]
fn a_thousand_half_finished_handshakes_do_not_block_logins() {
    raise_descriptor_limit();
    // All of them stay open during the test, so the limit of connections before login must be high enough.
    let site = Site::new(&["--max-startups", "1100:30:1100"]);
    let alice = site.alice();
    site.serves();
    let before = site.usage();
    let server = ProcessTree::of(site.fixture.server.pid());
    let memory = server.peak_memory();
    let mut waiting = Vec::new();
    for index in 0..1000_u32 {
        // No more from one address than the limit of concurrent handshakes.
        let last = u8::try_from(index / 125).unwrap();
        let from = Ipv4Addr::new(127, 0, 1, last + 1);
        // In the last stage the server makes a key.
        let tokens = match index {
            _ if index % 25 == 0 => 3,
            _ => (index % 3) as usize,
        };
        waiting.push(half_finished(&site, from, &alice, tokens).unwrap());
        if index % 200 == 199 {
            site.serves();
        }
    }
    assert!(
        server.peak_memory() < memory + 1000 * EXCHANGE,
        "each of them takes {} bytes",
        (server.peak_memory() - memory) / 1000
    );
    site.serves();
    // One of the thousand continues and must succeed.
    let mut session = waiting.swap_remove(500).finish().unwrap();
    session.log_in().unwrap();
    drop(waiting);
    drop(session);
    site.serves();
    site.usage_returns_to(before);
}

#[test]
fn an_unfinished_handshake_times_out() {
    let site = Site::new(&["--login-timeout", "3"]);
    let alice = site.alice();
    site.serves();
    let before = site.usage();
    let mut waiting: Vec<Exchange> = (0..4)
        .map(|tokens| half_finished(&site, ELSEWHERE, &alice, tokens).unwrap())
        .collect();
    for exchange in &mut waiting {
        let replies = exchange.control().until_closed().unwrap();
        assert_reply(&replies[0], &[421], &["login|log in|timeout"]);
    }
    site.usage_returns_to(before);
    site.serves();
}

#[test]
fn concurrent_handshakes_of_one_address_are_limited() {
    let site = Site::new(&["--max-handshakes-per-address", "3"]);
    let alice = site.alice();
    let mut waiting: Vec<Exchange> = (0..3)
        .map(|_| half_finished(&site, ELSEWHERE, &alice, 1).unwrap())
        .collect();
    let mut refused = half_finished(&site, ELSEWHERE, &alice, 0).unwrap();
    assert_reply(&refused.step().unwrap(), &[431], &["under way"]);
    site.logged(&["authentication failed", "127.0.0.2", "under way"]);
    site.serves();
    waiting.pop();
    wait_until("there is room for another", || {
        log_in_from(&site, ELSEWHERE).is_ok()
    });
}

#[test]
fn an_address_whose_handshakes_fail_is_refused_and_others_are_not() {
    let site = Site::new(&["--max-failed-handshakes", "5"]);
    let alice = site.alice();
    let mut verdicts = Vec::new();
    for _ in 0..10 {
        let mut exchange = half_finished(&site, ELSEWHERE, &alice, 0).unwrap();
        let token = exchange.token()[..100].to_vec();
        verdicts.push(exchange.send(&token).unwrap().code);
    }
    assert_eq!(verdicts[..5], [535; 5]);
    assert_eq!(verdicts[5..], [431; 5]);
    site.logged(&["authentication failed", "127.0.0.2", "TLS record"]);
    site.logged(&["authentication failed", "127.0.0.2", "have failed"]);
    // The penalty also refuses valid handshakes, and those of TLS.
    assert!(log_in_from(&site, ELSEWHERE).is_err());
    let mut control = Control::connect_from(ELSEWHERE, site.fixture.address()).unwrap();
    control.reply().unwrap();
    assert_reply(&control.command("AUTH TLS").unwrap(), &[431, 504], &[]);
    site.serves();
}

#[test]
fn refused_handshakes_cost_no_signatures() {
    let site = Site::new(&["--max-failed-handshakes", "1"]);
    let alice = site.alice();
    let mut failing = half_finished(&site, ELSEWHERE, &alice, 0).unwrap();
    assert_eq!(failing.send(b"no token").unwrap().code, 535);
    let server = ProcessTree::of(site.fixture.server.pid());
    let attempt = |from| {
        let mut exchange = half_finished(&site, from, &alice, 0).unwrap();
        exchange.step().unwrap().code
    };
    let cost = |from, code| {
        let before = server.processor_time();
        for _ in 0..100 {
            assert_eq!(attempt(from), code);
        }
        server.processor_time() - before
    };
    let refused = cost(ELSEWHERE, 431);
    // Aborted after the server's first reply; each counts as a failure when it ends. This number would cause a penalty.
    let arguments = ["--max-failed-handshakes", "1000"];
    let site = Site::new(&[&arguments[..], &["--penalty-exempt", "127.0.0.2"]].concat());
    let server = ProcessTree::of(site.fixture.server.pid());
    let before = server.processor_time();
    for _ in 0..100 {
        half_finished(&site, ELSEWHERE, &alice, 1).unwrap();
    }
    let answered = server.processor_time() - before;
    assert!(
        refused * 2 < answered,
        "{refused:?} for refusals, {answered:?} for answers"
    );
    site.serves();
}

#[test]
fn failed_handshakes_leak_no_resources() {
    let site = Site::new(&["--max-failed-handshakes", "1000", "--data-timeout", "1"]);
    let (alice, bob) = (site.alice(), site.user(UserKind::Second));
    site.serves();
    let before = site.usage();
    for _ in 0..20 {
        let mut exchange = half_finished(&site, ELSEWHERE, &alice, 1).unwrap();
        assert_eq!(exchange.send(b"no token").unwrap().code, 535);

        let mut session = site.session();
        let port = session.passive().unwrap();
        session.send_line("RETR hello.txt").unwrap();
        // The server closes the connection before or after our end has finished the handshake.
        let _ = bob.authenticate(connect_data(port).unwrap(), End::Connector);
        assert!(session.dialogue().unwrap().last.code >= 400);
        session.control().send_line("ENC AAAA").unwrap();
        session.control().until_closed().unwrap();
    }
    site.serves();
    site.usage_returns_to(before);
}
