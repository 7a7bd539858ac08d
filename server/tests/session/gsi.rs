//! Logging in with certificates, and commands in tokens.

use std::io::Write;
use std::sync::Arc;

use gridhaul_protocol::command::Base64;
use gridhaul_protocol::reply::Reply;
use gridhaul_security::context::{Context, Step};
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::{TlsSettings, TlsVersions};
use gridhaul_server::config::Settings;

use crate::client::{Client, Protection, text};
use crate::pki::{Pki, account};
use crate::served::Served;

/// A server that only certificates open.
pub(crate) fn served() -> Served {
    served_with(|_| {})
}

/// With other settings.
pub(crate) fn served_with(change: impl FnOnce(&mut Settings)) -> Served {
    Served::with(|settings| {
        settings.anonymous = None;
        settings.anonymous_write = None;
        Pki::shared().configure(settings);
        change(settings);
    })
}

/// What a client begins its context with.
pub(crate) fn initiator(credential: Arc<Credential>, delegate: bool) -> Context {
    let settings = TlsSettings::new(credential, Pki::shared().trust());
    Context::initiator(&settings, delegate).expect("an initiator")
}

/// Exchanges tokens up to the last reply, which is returned.
pub(crate) fn exchange(client: &mut Client, context: &mut Context) -> Reply {
    let mut token = Vec::new();
    loop {
        let mut alert = Vec::new();
        let (Step::Continue(answer) | Step::Done(answer)) = context
            .step(&token, &mut alert)
            .expect("the server is believed");
        client.send(&format!("ADAT {}", Base64::encode(&answer)));
        let reply = client.reply();
        if reply.code() != 335 {
            return reply;
        }
        let text = reply.text();
        let sent = text.strip_prefix("ADAT=").expect("a token");
        let decoded = Base64::new(sent).and_then(|token| token.decode());
        token = decoded.expect("base64").to_vec();
    }
}

/// Makes the control channel a protected one.
pub(crate) fn authenticate(client: &mut Client, mut context: Context) {
    client.expect("AUTH GSSAPI", 334);
    let reply = exchange(client, &mut context);
    assert_eq!(
        text(&reply),
        "235 GSSAPI Authentication successful.\r\n",
        "{reply:?}"
    );
    client.protect(Protection::Gsi(Box::new(context)));
}

/// A client that is authenticated, and has not logged in.
pub(crate) fn authenticated(served: &Served, name: &str) -> Client {
    let mut client = served.greeted();
    authenticate(&mut client, initiator(Pki::shared().credential(name), true));
    client
}

/// A client that has logged in as its map says, with `TYPE I`.
pub(crate) fn logged_in(served: &Served, name: &str) -> Client {
    let mut client = authenticated(served, name);
    map(&mut client, 230);
    client.expect("TYPE I", 200);
    client
}

pub(crate) fn map(client: &mut Client, code: u16) -> String {
    let text = client.expect("USER :globus-mapping:", 331);
    assert_eq!(text, "331 Password required for :globus-mapping:.\r\n");
    client.expect("PASS ", code)
}

/// A context that the server refuses.
pub(crate) fn refused(client: &mut Client, credential: Arc<Credential>) -> String {
    client.expect("AUTH GSSAPI", 334);
    let reply = exchange(client, &mut initiator(credential, true));
    assert_eq!(reply.code(), 535, "{reply:?}");
    text(&reply)
}

#[test]
fn a_certificate_opens_the_account_that_it_is_mapped_to() {
    let served = served();
    let mut client = authenticated(&served, "alice");
    let text = map(&mut client, 230);
    assert_eq!(text, format!("230 User {} logged in.\r\n", account()));
    let text = client.expect("SITE WHOAMI", 200);
    assert_eq!(text, format!("200 {}\r\n", account()));
    let features = client.expect("FEAT", 211);
    for line in [" DCAU\r\n", " DCSC P,D\r\n", " CKSM "] {
        assert!(features.contains(line), "{line}: {features}");
    }
    assert!(!features.contains("AUTH"), "{features}");
    client.expect("MKD /made", 257);
    assert!(served.path("made").is_dir());
    client.expect("REIN", 502);
    client.expect("QUIT", 221);
    client.expect_end();
}

#[test]
fn both_versions_of_tls_are_spoken() {
    let served = served();
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        let mut settings =
            TlsSettings::new(Pki::shared().credential("alice"), Pki::shared().trust());
        settings.versions = versions;
        let mut client = served.greeted();
        let context = Context::initiator(&settings, true).expect("an initiator");
        authenticate(&mut client, context);
        map(&mut client, 230);
    }
}

#[test]
fn the_name_that_is_given_must_be_one_of_the_map() {
    let served = served();
    let mut bob = authenticated(&served, "bob");
    bob.expect(&format!("USER {}", account()), 331);
    bob.expect("PASS dummy", 230);
    let mut bob = authenticated(&served, "bob");
    bob.expect("USER alice", 331);
    let text = bob.expect("PASS dummy", 530);
    assert!(text.starts_with("530-Login incorrect. : "), "{text}");
    assert!(text.ends_with("530-\r\n530 End.\r\n"), "{text}");
}

#[test]
fn who_is_not_in_the_map_is_named_and_may_try_again() {
    let served = served();
    let mut carol = authenticated(&served, "carol");
    let text = map(&mut carol, 530);
    assert!(
        text.contains("Could not map /DC=test/CN=carol\r\n"),
        "{text}"
    );
    map(&mut carol, 530);
    map(&mut carol, 530);
    carol.expect_reply(421);
    carol.expect_end();
}

#[test]
fn nothing_but_authentication_is_answered_before_it() {
    let served = served();
    let mut client = served.greeted();
    for line in ["HELP", "FEAT", "USER anonymous", "PASS x", "NOOP", "PASV"] {
        let text = client.expect(line, 530);
        assert_eq!(
            text, "530 Must perform GSSAPI authentication.\r\n",
            "{line}"
        );
    }
    let text = client.expect("AUTH KERBEROS", 504);
    assert_eq!(text, "504 Unknown authentication type.\r\n");
    client.expect("ADAT AAAA", 503);
    client.expect("auth gssapi", 334);
    client.expect("ADAT !!!!", 501);
    client.expect("ADAT A", 501);
    let text = client.expect("QUIT", 221);
    assert_eq!(text, "221 Goodbye.\r\n");
}

#[test]
fn anonymous_users_need_no_certificate_where_they_are_let_in() {
    let served = Served::with(|settings| Pki::shared().configure(settings));
    let mut client = served.greeted();
    let features = client.expect("FEAT", 211);
    assert!(features.contains(" AUTH GSSAPI\r\n"), "{features}");
    client.expect("USER anonymous", 331);
    client.expect("PASS x@", 230);
    client.expect("AUTH GSSAPI", 503);
    let mut client = served.greeted();
    client.expect("AUTH GSSAPI", 334);
    client.expect("USER anonymous", 331);
    client.expect("PASS x@", 230);
    client.expect("ADAT AAAA", 503);
    let mut alice = logged_in(&served, "alice");
    alice.expect("SITE WHOAMI", 200);
}

#[test]
fn what_was_said_in_clear_is_forgotten_when_the_channel_is_protected() {
    let served = Served::with(|settings| Pki::shared().configure(settings));
    let mut client = served.greeted();
    client.expect("USER anonymous", 331);
    authenticate(
        &mut client,
        initiator(Pki::shared().credential("alice"), true),
    );
    client.expect("PASS x@", 503);
    client.expect("PWD", 530);
    client.expect("AUTH GSSAPI", 503);
    map(&mut client, 230);
}

#[test]
fn who_is_not_believed_may_try_again_a_few_times() {
    let served = served();
    let mut client = served.greeted();
    let stranger = Pki::shared().credential("stranger");
    let text = refused(&mut client, Arc::clone(&stranger));
    assert!(text.contains("Unknown Authority"), "{text}");
    authenticate(
        &mut client,
        initiator(Pki::shared().credential("alice"), true),
    );
    map(&mut client, 230);

    let mut client = served.greeted();
    for _ in 0..3 {
        refused(&mut client, Arc::clone(&stranger));
    }
    client.expect_reply(421);
    client.expect_end();
}

#[test]
fn garbage_is_no_token() {
    let served = served();
    let mut client = served.greeted();
    client.expect("AUTH GSSAPI", 334);
    let garbage = Base64::encode(&[0x42; 300]);
    client.expect(&format!("ADAT {garbage}"), 535);
    authenticate(
        &mut client,
        initiator(Pki::shared().credential("alice"), true),
    );
}

#[test]
fn a_token_that_is_too_long_is_passed_over() {
    let served = served();
    let mut client = served.greeted();
    client.expect("AUTH GSSAPI", 334);
    client.send(&format!("ADAT {}", "A".repeat(1 << 20)));
    client.expect_reply(500);
    authenticate(
        &mut client,
        initiator(Pki::shared().credential("alice"), true),
    );
}

#[test]
fn addresses_whose_handshakes_fail_are_refused_for_a_while() {
    let served = served_with(|settings| settings.max_failed_handshakes = Some(1));
    let mut client = served.greeted();
    refused(&mut client, Pki::shared().credential("stranger"));
    let mut client = served.greeted();
    client.expect("AUTH GSSAPI", 334);
    let token = Base64::encode(&[0x42; 300]);
    client.expect(&format!("ADAT {token}"), 431);
}

#[test]
fn commands_in_clear_are_refused_after_the_exchange() {
    let served = served();
    let mut client = logged_in(&served, "alice");
    client.send_bytes(b"MKD /made\r\n");
    client.expect_reply(533);
    assert!(!served.path("made").exists());
    client.expect("NOOP", 200);
    for keyword in ["MIC", "CONF"] {
        let sealed = client.sealed("PWD");
        let line = sealed.replacen("ENC", keyword, 1);
        client.send_bytes(format!("{line}\r\n").as_bytes());
        client.expect_reply(257);
    }
}

#[test]
fn commands_that_came_behind_the_last_token_must_be_protected_too() {
    let served = served();
    let mut client = served.greeted();
    let mut context = initiator(Pki::shared().credential("alice"), false);
    client.expect("AUTH GSSAPI", 334);
    let mut token = Vec::new();
    loop {
        let mut alert = Vec::new();
        match context.step(&token, &mut alert).expect("a step") {
            Step::Continue(answer) => {
                let reply = client.expect(&format!("ADAT {}", Base64::encode(&answer)), 335);
                let sent = reply.trim_end().strip_prefix("335 ADAT=").expect("a token");
                let decoded = Base64::new(sent).and_then(|token| token.decode());
                token = decoded.expect("base64").to_vec();
            }
            Step::Done(answer) => {
                let last = Base64::encode(&answer);
                client.send_bytes(format!("ADAT {last}\r\nFEAT\r\n").as_bytes());
                break;
            }
        }
    }
    client.expect_reply(235);
    client.protect(Protection::Gsi(Box::new(context)));
    client.expect_reply(533);
    map(&mut client, 230);
}

#[test]
fn a_token_that_came_before_ends_the_session() {
    let served = served();
    let mut client = logged_in(&served, "alice");
    let sealed = client.sealed("MKD /made");
    client.send_bytes(format!("{sealed}\r\n").as_bytes());
    client.expect_reply(257);
    client.send_bytes(format!("{sealed}\r\n").as_bytes());
    assert_eq!(client.reply().code(), 535);
    client.expect_end();
    logged_in(&served, "alice").expect("RMD /made", 250);
}

#[test]
fn a_token_that_is_cut_or_changed_ends_the_session() {
    let served = served();
    let spoilers: [fn(&mut Vec<u8>); 2] = [
        |token| token.truncate(token.len() - 1),
        |token| *token.last_mut().expect("bytes") ^= 1,
    ];
    for spoil in spoilers {
        let mut client = logged_in(&served, "alice");
        let sealed = client.sealed("MKD /made");
        let token = Base64::new(&sealed["ENC ".len()..]).and_then(|token| token.decode());
        let mut token = token.expect("base64").to_vec();
        spoil(&mut token);
        client.send_bytes(format!("ENC {}\r\n", Base64::encode(&token)).as_bytes());
        assert_eq!(client.reply().code(), 535);
        client.expect_end();
        assert!(!served.path("made").exists());
    }
}

#[test]
fn long_replies_are_protected_line_by_line() {
    let served = served();
    for index in 0..300 {
        served.write(&format!("file-{index}"), "x");
    }
    let mut client = logged_in(&served, "alice");
    let listing = client.expect("MLSC /", 250);
    assert_eq!(listing.matches("; file-").count(), 300, "{listing}");
    client.expect("NOOP", 200);
}

#[test]
fn abor_is_heard_in_the_middle_of_a_transfer() {
    let served = served();
    let mut client = logged_in(&served, "alice");
    client.expect("DCAU N", 200);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    data.write_all(b"some").expect("sent");
    client.expect("STAT", 212);
    client.send("ABOR");
    client.expect_reply(426);
    client.expect_reply(226);
    client.put("STOR other", b"more");
    assert_eq!(served.read("other"), b"more");
}

#[test]
fn a_client_that_breaks_off_leaves_the_server_as_it_was() {
    let served = served();
    for _ in 0..20 {
        let mut client = served.greeted();
        client.expect("AUTH GSSAPI", 334);
        let mut context = initiator(Pki::shared().credential("alice"), true);
        let Step::Continue(hello) = context.step(&[], &mut Vec::new()).expect("a step") else {
            panic!("one token is not enough");
        };
        client.expect(&format!("ADAT {}", Base64::encode(&hello)), 335);
    }
    logged_in(&served, "alice");
}

#[test]
fn ccc_is_refused() {
    let served = served();
    let mut client = logged_in(&served, "alice");
    client.expect("CCC", 533);
    client.expect("PWD", 257);
}
