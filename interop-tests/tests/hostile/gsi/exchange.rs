//! Invalid uses of `AUTH` and `ADAT`.

use gridhaul_interop::raw::{Control, Exchange, Reply};
use gridhaul_interop::support::usage::ProcessTree;

use super::Site;
use crate::fixture::assert_reply;

/// The allowed memory growth of the server while a peer floods it, in bytes.
const GROWTH: u64 = 24 << 20;

/// The reply to a modified first token. Afterwards Alice can log in, in
/// the same session.
#[track_caller]
fn refusal(site: &Site, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Reply {
    let mut exchange = begin(site);
    let token = change(exchange.token());
    let refused = exchange.send(&token).unwrap();
    let mut session = exchange.finish().unwrap();
    session.log_in().unwrap();
    site.session_works(&mut session);
    refused
}

#[track_caller]
fn begin(site: &Site) -> Exchange {
    let control = Control::greeted(site.fixture.address()).unwrap();
    Exchange::begin(control, &site.alice()).unwrap()
}

#[test]
fn a_truncated_token_is_refused() {
    let site = Site::new(&[]);
    for left in [1, 4, 5, 100] {
        let refused = refusal(&site, |token| token[..left].to_vec());
        assert_reply(&refused, &[535], &["token", "TLS record"]);
    }
    site.logged(&["authentication failed", "127.0.0.1", "TLS record"]);
}

#[test]
fn two_tokens_in_one_are_refused() {
    let site = Site::new(&[]);
    let refused = refusal(&site, |token| [token, token].concat());
    assert_reply(&refused, &[535], &["Authentication failed"]);
    site.logged(&["authentication failed", "127.0.0.1", "GSSAPI"]);
}

#[test]
fn a_modified_token_is_refused() {
    let site = Site::new(&[]);
    // Modifies the type of the record, the type of the message, and its length.
    for index in [0, 5, 8] {
        let refused = refusal(&site, |token| {
            let mut token = token.to_vec();
            token[index] ^= 0x41;
            token
        });
        assert_reply(&refused, &[535], &["Authentication failed"]);
    }
}

#[test]
fn a_replayed_first_token_is_refused() {
    let site = Site::new(&[]);
    let mut exchange = begin(&site);
    let first = exchange.token().to_vec();
    assert_eq!(exchange.step().unwrap().code, 335);
    let refused = exchange.send(&first).unwrap();
    assert_reply(&refused, &[535], &["Authentication failed"]);
    site.logged(&["authentication failed", "127.0.0.1", "GSSAPI"]);
    site.serves();
}

#[test]
fn invalid_base64_is_refused_and_the_exchange_continues() {
    let site = Site::new(&[]);
    let mut exchange = begin(&site);
    for argument in ["!!!!", "FgMB=AAA", "FgMBA\u{e9}", "A"] {
        let line = format!("ADAT {argument}");
        assert_reply(&exchange.control().command(&line).unwrap(), &[501], &[]);
    }
    assert_eq!(exchange.step().unwrap().code, 335);
    let refused = exchange.control().command("ADAT *").unwrap();
    assert_reply(&refused, &[501], &["base64"]);
    let mut session = exchange.finish().unwrap();
    session.log_in().unwrap();
    site.session_works(&mut session);
}

#[test]
fn an_empty_token_is_refused() {
    let site = Site::new(&[]);
    let mut exchange = begin(&site);
    for line in ["ADAT", "ADAT "] {
        assert_reply(&exchange.control().command(line).unwrap(), &[501], &[]);
    }
    exchange.finish().unwrap().log_in().unwrap();
}

#[test]
fn adat_before_auth_is_refused() {
    let site = Site::new(&[]);
    let mut control = Control::greeted(site.fixture.address()).unwrap();
    let refused = control.command("ADAT FgMBAAA=").unwrap();
    assert_reply(&refused, &[503], &["AUTH"]);
    let mut session = Exchange::begin(control, &site.alice())
        .unwrap()
        .finish()
        .unwrap();
    let refused = session.command("ADAT FgMBAAA=").unwrap();
    assert_reply(&refused, &[503], &["AUTH"]);
    session.log_in().unwrap();
    let refused = session.command("ADAT FgMBAAA=").unwrap();
    assert_reply(&refused, &[503], &["AUTH"]);
    site.session_works(&mut session);
}

#[test]
fn auth_restarts_the_exchange_and_is_refused_after_it() {
    let site = Site::new(&[]);
    let mut exchange = begin(&site);
    assert_eq!(exchange.step().unwrap().code, 335);
    // Tokens of the first exchange are invalid in the second.
    exchange.control().must("AUTH GSSAPI", 334).unwrap();
    let refused = exchange.verdict().unwrap();
    assert_reply(&refused, &[535], &["Authentication failed"]);
    let mut session = begin(&site).finish().unwrap();
    for mechanism in ["GSSAPI", "TLS"] {
        let refused = session.command(&format!("AUTH {mechanism}")).unwrap();
        assert_reply(&refused, &[503], &["once"]);
    }
    session.log_in().unwrap();
    let refused = session.command("AUTH GSSAPI").unwrap();
    assert_reply(&refused, &[503], &["once"]);
    site.session_works(&mut session);
}

#[test]
fn protected_commands_before_the_exchange_are_refused() {
    let site = Site::new(&[]);
    let mut control = Control::greeted(site.fixture.address()).unwrap();
    for command in ["ENC", "MIC", "CONF"] {
        let refused = control.command(&format!("{command} FwMDAAA=")).unwrap();
        assert_reply(&refused, &[503, 530], &[]);
    }
    let mut exchange = Exchange::begin(control, &site.alice()).unwrap();
    assert_eq!(exchange.step().unwrap().code, 335);
    let refused = exchange.control().command("ENC FwMDAAA=").unwrap();
    assert_reply(&refused, &[503, 530], &[]);
    let mut session = exchange.finish().unwrap();
    session.log_in().unwrap();
    site.session_works(&mut session);
}

#[test]
fn lines_of_one_mebibyte_are_refused_and_allocate_no_memory() {
    let site = Site::new(&[]);
    site.serves();
    let server = ProcessTree::of(site.fixture.server.pid());
    let before = server.peak_memory();
    let mut exchange = begin(&site);
    let line = format!("ADAT {}", "A".repeat(1 << 20));
    for _ in 0..32 {
        let refused = exchange.control().command(&line).unwrap();
        assert_reply(&refused, &[500, 501], &["longer than|too long"]);
    }
    assert!(
        server.peak_memory() < before + GROWTH,
        "the server kept the lines in memory"
    );
    let mut session = exchange.finish().unwrap();
    session.log_in().unwrap();
    site.session_works(&mut session);
}

#[test]
fn repeated_long_lines_end_the_session() {
    let site = Site::new(&["--max-login-attempts", "3"]);
    let mut exchange = begin(&site);
    let line = format!("ADAT {}", "A".repeat(60_000));
    for _ in 0..3 {
        let refused = exchange.control().command(&line).unwrap();
        assert_reply(&refused, &[535], &["Authentication failed"]);
    }
    let last = exchange.control().until_closed().unwrap();
    assert_reply(&last[0], &[421], &["wrong"]);
    site.serves();
}
