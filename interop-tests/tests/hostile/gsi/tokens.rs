//! Commands in tokens that are replayed, out of order, modified or truncated, and commands without a token.

use gridhaul_interop::UserKind;
use gridhaul_interop::raw::GsiControl;

use super::Site;
use crate::fixture::assert_reply;

/// Checks that the server ends a session after an invalid token with a clear-text reply, logs the user, and
/// still works.
#[track_caller]
fn ends(site: &Site, session: &mut GsiControl) {
    let replies = session.control().until_closed().unwrap();
    let last = replies.last().unwrap();
    assert_reply(last, &[535], &["token", "refused"]);
    site.logged(&[
        "a command was refused",
        "127.0.0.1",
        site.subject(UserKind::Plain),
        "token",
    ]);
    site.serves();
}

#[test]
fn a_command_without_protection_is_refused() {
    let site = Site::new(&[]);
    let mut session = site.session();
    for line in [
        "NOOP",
        "PWD",
        "DELE hello.txt",
        "USER anonymous",
        "QUIT",
        "ABOR",
    ] {
        session.control().send_line(line).unwrap();
        assert_reply(&session.reply().unwrap(), &[533], &["protected"]);
    }
    site.logged(&[
        "a command was refused",
        "127.0.0.1",
        site.subject(UserKind::Plain),
    ]);
    site.session_works(&mut session);
}

#[test]
fn a_replayed_token_is_refused() {
    let site = Site::new(&[]);
    let mut session = site.session();
    let token = session.seal("NOOP").unwrap();
    session.send_token(&token).unwrap();
    assert_reply(&session.reply().unwrap(), &[200], &[]);
    session.send_token(&token).unwrap();
    ends(&site, &mut session);
}

#[test]
fn a_token_out_of_order_is_refused() {
    let site = Site::new(&[]);
    let mut session = site.session();
    let _first = session.seal("MKD first").unwrap();
    let second = session.seal("MKD second").unwrap();
    session.send_token(&second).unwrap();
    ends(&site, &mut session);
    assert!(!site.fixture.root().join("second").exists());
}

#[test]
fn a_token_of_another_session_is_refused() {
    let site = Site::new(&[]);
    let [mut one, mut other] = [site.session(), site.session()];
    let token = one.seal("NOOP").unwrap();
    other.send_token(&token).unwrap();
    ends(&site, &mut other);
    one.send_token(&token).unwrap();
    assert_reply(&one.reply().unwrap(), &[200], &[]);
}

#[test]
fn a_token_with_a_flipped_bit_is_refused() {
    let site = Site::new(&[]);
    // Bits of the record's length, of the ciphertext, and of the authentication tag.
    for index in [4, 7, usize::MAX] {
        let mut session = site.session();
        let mut token = session.seal("MKD changed").unwrap();
        let index = index.min(token.len() - 1);
        token[index] ^= 1;
        session.send_token(&token).unwrap();
        ends(&site, &mut session);
    }
    assert!(!site.fixture.root().join("changed").exists());
}

#[test]
fn a_truncated_token_is_refused() {
    let site = Site::new(&[]);
    for left in [1, 5, 20] {
        let mut session = site.session();
        let token = session.seal("MKD cut").unwrap();
        session.send_token(&token[..left]).unwrap();
        ends(&site, &mut session);
    }
}

#[test]
fn a_token_without_a_command_is_an_error_and_the_session_continues() {
    let site = Site::new(&[]);
    let mut session = site.session();
    for line in ["ENC", "ENC ", "ENC ****"] {
        session.control().send_line(line).unwrap();
        assert_reply(&session.reply().unwrap(), &[500, 501], &[]);
    }
    assert_reply(&session.command("").unwrap(), &[500, 501], &[]);
    site.session_works(&mut session);
}

#[test]
fn two_commands_in_one_token_are_not_two_commands() {
    let site = Site::new(&[]);
    let mut session = site.session();
    let token = [
        session.seal("MKD one").unwrap(),
        session.seal("MKD two").unwrap(),
    ]
    .concat();
    session.send_token(&token).unwrap();
    assert!(session.reply().unwrap().code >= 500);
    for name in ["one", "two"] {
        assert!(!site.fixture.root().join(name).exists());
    }
    site.session_works(&mut session);
}

#[test]
fn line_ends_in_a_name_cannot_forge_a_reply() {
    let site = Site::new(&[]);
    let mut session = site.session();
    for line in [
        "CWD a\r\n226 forged",
        "SIZE a\r\n226 forged",
        "MKD a\r\n226 forged",
    ] {
        // The parser reports more than one reply as an error.
        assert!(session.command(line).unwrap().code >= 500, "{line:?}");
    }
    session.must("NOOP", 200).unwrap();
    site.session_works(&mut session);
}
