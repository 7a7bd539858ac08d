//! `AUTH TLS`, and clear text before, within and instead of TLS.

use std::io::Write;

use gridhaul_interop::UserKind;
use gridhaul_interop::raw::{Control, Identity, TlsControl};
use gridhaul_interop::{Kind, Launch, Pki};

use crate::fixture::{Fixture, assert_reply, wait_until};

fn fixture() -> (Fixture, &'static Pki) {
    let pki = Pki::shared().unwrap();
    let launched = Fixture::launch(Kind::Gridhaul, |launch: Launch| {
        launch
            .tls(pki)
            .arg("--gsi")
            .arg("--trust")
            .arg(pki.trust())
            .arg("--gridmap")
            .arg(pki.gridmap())
            .arg("--allow-disabled-login")
    });
    (launched, pki)
}

#[test]
fn commands_pipelined_after_auth_tls_are_not_protected() {
    let (fixture, _) = fixture();
    let mut control = Control::greeted(fixture.address()).unwrap();
    control
        .send(b"AUTH TLS\r\nUSER anonymous\r\nPASS x\r\n")
        .unwrap();
    let refused = control.reply().unwrap();
    assert_reply(&refused, &[503], &["AUTH TLS"]);
    // Without a TLS handshake they are commands in clear text.
    assert_reply(&control.reply().unwrap(), &[331], &[]);
    assert_reply(&control.reply().unwrap(), &[230], &[]);
    control.must("TYPE I", 200).unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn commands_in_place_of_a_handshake_end_the_session() {
    let (fixture, _) = fixture();
    let mut control = Control::greeted(fixture.address()).unwrap();
    control.must("AUTH TLS", 234).unwrap();
    control
        .send(b"USER anonymous\r\nPASS x\r\nMKD made\r\n")
        .unwrap();
    // The server sends a TLS alert, which is no reply.
    let _ = control.until_closed();
    let logged = |line: &str| line.contains("authentication failed") && line.contains("127.0.0.1");
    wait_until("the failure is in the log", || {
        fixture.server.log().lines().any(logged)
    });
    assert!(!fixture.root().join("made").exists());
    fixture.serves();
}

#[test]
fn a_channel_is_protected_once() {
    let (fixture, pki) = fixture();
    let alice = Identity::user(pki, UserKind::Plain).unwrap();
    let control = Control::greeted(fixture.address()).unwrap();
    let mut session = TlsControl::begin(control, &alice).unwrap();
    for mechanism in ["GSSAPI", "TLS"] {
        let refused = session.command(&format!("AUTH {mechanism}")).unwrap();
        assert_reply(&refused, &[503], &["once"]);
    }
    let refused = session.command("ADAT FgMBAAA=").unwrap();
    assert_reply(&refused, &[503], &["AUTH"]);
    for command in ["ENC FwMDAAA=", "CCC"] {
        let refused = session.command(command).unwrap();
        assert!(refused.code >= 500, "{command}: {refused}");
    }
    session.command("USER anonymous").unwrap();
    assert_reply(&session.command("PASS x").unwrap(), &[230], &[]);
    fixture.serves();
}

#[test]
fn clear_text_within_tls_ends_the_session() {
    let (fixture, pki) = fixture();
    let alice = Identity::user(pki, UserKind::Plain).unwrap();
    let control = Control::greeted(fixture.address()).unwrap();
    let mut session = TlsControl::begin(control, &alice).unwrap();
    session.command("USER anonymous").unwrap();
    assert_reply(&session.command("PASS x").unwrap(), &[230], &[]);
    session
        .control()
        .socket()
        .write_all(b"MKD made\r\n")
        .unwrap();
    // The server may send a TLS alert first, which is no reply.
    let _ = session.control().until_closed();
    assert!(!fixture.root().join("made").exists());
    fixture.serves();
}
