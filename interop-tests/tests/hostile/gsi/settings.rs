//! Forbidden or invalid accounts, credentials and protection levels.

use std::fs;
use std::net::Ipv4Addr;

use gridhaul_interop::raw::{Control, DataListener, Exchange, Identity, base64};
use gridhaul_interop::{BadKind, UserKind};

use super::Site;
use crate::fixture::{DATA_TIMEOUT, HELLO, assert_reply};

#[test]
fn an_account_that_is_not_the_users_is_refused_by_name() {
    let site = Site::new(&[]);
    let subject = site.subject(UserKind::Plain);
    for account in [
        site.pki.accounts().foreign.as_str(),
        "root",
        "nosuchaccount",
        "*",
        ":",
    ] {
        let control = Control::greeted(site.fixture.address()).unwrap();
        let mut session = Exchange::begin(control, &site.alice())
            .unwrap()
            .finish()
            .unwrap();
        let first = session.command(&format!("USER {account}")).unwrap();
        let refused = if first.code == 331 {
            session.command("PASS").unwrap()
        } else {
            first
        };
        assert_reply(&refused, &[530], &[]);
        site.logged(&["login failed", "127.0.0.1", account, subject]);
        assert_reply(&session.command("PASV").unwrap(), &[530], &[]);
        session.log_in().unwrap();
        site.session_works(&mut session);
    }
}

#[test]
fn a_password_does_not_replace_a_missing_mapping() {
    let site = Site::new(&[]);
    let unmapped = Identity::of(site.pki, &site.pki.bad(BadKind::Unmapped).credential).unwrap();
    let control = Control::greeted(site.fixture.address()).unwrap();
    let mut session = Exchange::begin(control, &unmapped)
        .unwrap()
        .finish()
        .unwrap();
    for account in ["anonymous", "ftp", site.pki.accounts().first.as_str()] {
        session.send_line(&format!("USER {account}")).unwrap();
        let mut refused = session.reply().unwrap();
        if refused.code == 331 {
            refused = session.command("PASS secret").unwrap();
        }
        assert_reply(&refused, &[530], &[]);
    }
    site.logged(&[
        "login failed",
        "127.0.0.1",
        &site.pki.bad(BadKind::Unmapped).subject,
    ]);
    site.serves();
}

#[test]
fn addresses_that_only_the_server_reaches_are_refused() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    session.must("DCAU N", 200).unwrap();
    session.must("MODE E", 200).unwrap();
    for line in [
        // The metadata service of cloud providers.
        "PORT 169,254,169,254,31,144",
        "EPRT |1|169.254.169.254|8080|",
        "EPRT |2|::ffff:169.254.169.254|8080|",
        "EPRT |2|::ffff:a9fe:a9fe|8080|",
        "EPRT |2|64:ff9b::a9fe:a9fe|8080|",
        "EPRT |2|fe80::1|8080|",
        "EPRT |2|ff02::1|8080|",
        "EPRT |2|::|8080|",
        "EPRT |2|::7f00:1|8080|",
        "PORT 0,0,0,0,31,144",
        "PORT 0,0,0,1,31,144",
        "PORT 224,0,0,1,31,144",
        "PORT 255,255,255,255,31,144",
        "SPOR 127,0,0,1,31,144 169,254,169,254,31,144",
        "RADR 169,254,169,254,31,144",
    ] {
        let refused = session.command(line).unwrap();
        assert_reply(&refused, &[501], &["link-local|no address of a host"]);
        let refused = session.command(&format!("RETR {}", HELLO.0)).unwrap();
        assert_reply(&refused, &[425], &[]);
    }
    session.must("DCAU A", 200).unwrap();
    site.session_works(&mut session);
}

#[test]
fn clients_cannot_bind_the_servers_sockets() {
    let site = Site::new(&[]);
    let mut session = site.session();
    session.must("DCAU N", 200).unwrap();
    for stack in [
        "tcp:port=8443;bind=0.0.0.0",
        "tcp:bind=0.0.0.0",
        "auto:advertise=192.0.2.1",
        "splice:port=1024-65535",
        "splice:direct=threads",
        "rdma:port=8443",
        "rdma:device=mlx5_0",
        "rdma:gid=1",
        "rdma:tc=255",
        "rdma:sl=15",
        "rdma:slab=1G",
        "tcp,gsi:ktls=on",
    ] {
        let refused = session
            .command(&format!("SITE SETNETSTACK {stack}"))
            .unwrap();
        assert_reply(&refused, &[500], &["the administrator lets no client set"]);
        // The refused command has not changed the setting.
        let port = session.passive().unwrap();
        assert!(port.ip().is_loopback(), "{port}");
    }
    session.must("DCAU A", 200).unwrap();
    site.session_works(&mut session);
}

#[test]
fn unsupported_protection_levels_are_refused() {
    let site = Site::new(&[]);
    let mut session = site.session();
    for (line, codes) in [
        ("DCAU", &[501, 504][..]),
        ("DCAU X", &[501, 504]),
        ("DCAU AN", &[501, 504]),
        ("DCAU S", &[501]),
        ("PROT", &[501, 504]),
        ("PROT E", &[536]),
        ("PROT X", &[501, 504, 536]),
        ("PROT CP", &[501, 504, 536]),
        ("PBSZ", &[501]),
        ("PBSZ many", &[501]),
        ("PBSZ -1", &[501]),
        ("PBSZ 4294967296", &[501]),
        ("PBSZ 99999999999999999999", &[501]),
        ("CCC", &[500, 502, 503, 533, 534]),
    ] {
        assert_reply(&session.command(line).unwrap(), codes, &[]);
    }
    // The refused commands have not changed any setting.
    site.session_works(&mut session);
    session.must("DCAU N", 200).unwrap();
    session.must("PROT P", 200).unwrap();
    assert_reply(&session.command("PASV").unwrap(), &[536], &["DCAU"]);
    session.must("PROT C", 200).unwrap();
    session.must("DCAU A", 200).unwrap();
    site.session_works(&mut session);
}

#[test]
fn invalid_dcsc_credentials_are_refused() {
    let site = Site::new(&[]);
    let mut session = site.session();
    let user = site.pki.user(UserKind::Plain);
    let certificate = fs::read(&user.certificate).unwrap();
    let host_key = fs::read(site.pki.host_key()).unwrap();
    let mismatch = [&certificate[..], &host_key].concat();
    for (what, blob) in [
        ("garbage", b"garbage".to_vec()),
        ("a certificate alone", certificate.clone()),
        ("a key alone", host_key),
        ("another one's key", mismatch),
        (
            "the beginning of a certificate",
            certificate[..200].to_vec(),
        ),
        ("a long invalid value", vec![b'A'; 30_000]),
    ] {
        let refused = session
            .command(&format!("DCSC P {}", base64(&blob)))
            .unwrap();
        assert!(refused.code == 500, "{what}: {refused}");
    }
    for line in ["DCSC", "DCSC X", "DCSC P", "DCSC P ****", "DCSC X AAAA"] {
        assert_reply(&session.command(line).unwrap(), &[500, 501, 504], &[]);
    }
    // The delegated credential is still in use.
    site.session_works(&mut session);
}

#[test]
fn an_expired_dcsc_credential_is_refused() {
    let site = Site::new(&[]);
    let mut session = site.session();
    let expired = fs::read(&site.pki.bad(BadKind::ProxyExpired).credential).unwrap();
    let taken = session
        .command(&format!("DCSC P {}", base64(&expired)))
        .unwrap();
    assert_reply(&taken, &[200, 250], &[]);
    for command in ["PASV", "PORT 127,0,0,1,200,200"] {
        let refused = session.command(command).unwrap();
        assert_reply(&refused, &[535], &["expired", "DCSC"]);
    }
    site.logged(&["a credential cannot be used", "expired"]);
    assert_reply(&session.command("DCSC D").unwrap(), &[200, 250], &[]);
    site.session_works(&mut session);
}

#[test]
fn without_a_delegated_credential_data_authentication_fails() {
    let site = Site::new(&DATA_TIMEOUT);
    let control = Control::greeted(site.fixture.address()).unwrap();
    let mut session = Exchange::begin_without_delegation(control, &site.alice())
        .unwrap()
        .finish()
        .unwrap();
    session.log_in().unwrap();
    let refused = session.command("PASV").unwrap();
    assert_reply(&refused, &[535], &["Delegate", "DCSC", "DCAU N"]);
    // It does not fall back to the server's own certificate, nor to clear data.
    let listener = DataListener::open(Ipv4Addr::LOCALHOST).unwrap();
    let [high, low] = listener.address().port().to_be_bytes();
    let refused = session
        .command(&format!("PORT 127,0,0,1,{high},{low}"))
        .unwrap();
    assert_reply(&refused, &[535], &["Delegate"]);
    session.must("DCAU N", 200).unwrap();
    session.passive().unwrap();
    site.serves();
}
