//! Revocation lists that cannot be used, and rules that deny, in whole logins.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gridhaul_security::credential::Credential;
use gridhaul_server::config::Settings;

use crate::gsi::{authenticate, authenticated, exchange, initiator, map, refused, served_with};
use crate::pki::{Pki, account};
use crate::served::Served;

const INDEPENDENT: &str = "id-ppl-independent";

/// A server that trusts what is in this directory.
fn served(trust: &Path) -> Served {
    served_with(|settings| {
        settings.trust = Some(trust.to_owned());
        settings.max_failed_handshakes = Some(1_000_000);
        // These tests try until the server has looked at its files again.
        settings.penalty_exempt = Some(vec!["127.0.0.0/8".parse().expect("a block")]);
    })
}

/// A server with rules, as a configuration file has them.
fn served_with_rules(text: &str) -> Served {
    let own: Settings = toml::from_str(text).expect("valid");
    served_with(|settings| *settings = own.or(settings.clone()))
}

/// As the tools that fetch lists do it.
fn replace(directory: &Path, name: &str, content: &[u8]) {
    fs::write(directory.join("new"), content).expect("written");
    fs::rename(directory.join("new"), directory.join(name)).expect("renamed");
}

fn is_believed(served: &Served, credential: Arc<Credential>) -> bool {
    let mut client = served.greeted();
    client.expect("AUTH GSSAPI", 334);
    exchange(&mut client, &mut initiator(credential, true)).code() == 235
}

/// Lets another authority in, and waits until the server has seen it: then it has also seen what was
/// changed before.
fn wait_for_a_look(served: &Served, trust: &Path) {
    let pki = Pki::shared();
    let policy = "access_id_CA X509 '/DC=test/CN=Unknown Authority'\n\
                  pos_rights globus CA:sign\ncond_subjects globus '\"/DC=test/*\"'\n";
    replace(trust, "other.signing_policy", policy.as_bytes());
    replace(trust, "other.pem", &pki.unknown_authority());
    while !is_believed(served, pki.credential("stranger")) {
        std::thread::yield_now();
    }
}

#[test]
fn an_authority_whose_list_is_cut_short_at_the_start_is_not_believed() {
    let pki = Pki::shared();
    let list = pki.revocation_list(&["bob"]);
    for length in [0, 1, 40, list.len() / 2, list.len() - 30] {
        let trust = pki.own_trust(&[]);
        replace(trust.path(), "ca.r0", &list[..length]);
        let served = served(trust.path());
        for user in ["alice", "bob"] {
            let mut client = served.greeted();
            let text = refused(&mut client, pki.credential(user));
            assert!(text.contains("revocation list"), "{length} bytes: {text}");
        }
    }
}

#[test]
fn a_list_that_becomes_unusable_leaves_the_last_good_one() {
    let pki = Pki::shared();
    let list = pki.revocation_list(&["bob"]);
    let forged = {
        let mut forged = list.clone();
        let at = forged.len() - 40;
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        forged
    };
    for unusable in [&list[..list.len() / 2], &[], b"garbage", &forged] {
        let trust = pki.own_trust(&["bob"]);
        let served = served(trust.path());
        assert!(is_believed(&served, pki.credential("alice")));
        assert!(!is_believed(&served, pki.credential("bob")));
        replace(trust.path(), "ca.r0", unusable);
        wait_for_a_look(&served, trust.path());
        assert!(is_believed(&served, pki.credential("alice")));
        let text = refused(&mut served.greeted(), pki.credential("bob"));
        assert!(text.contains("was revoked"), "{text}");
    }
}

/// Carol is denied, and all other users have an account.
fn rules(others: &str) -> String {
    format!(
        "{others}\n[[authorize]]\nidentity = '/dc=test/CN=Carol'\ndeny = true\n\
         [[authorize]]\nidentity = '*'\naccount = '{}'\n",
        account()
    )
}

/// The answer to a login with an independent proxy.
fn login_with_proxy(served: &Served, user: &str, code: u16) -> String {
    let mut client = served.greeted();
    let proxy = Pki::shared().proxy(user, INDEPENDENT);
    authenticate(&mut client, initiator(proxy, false));
    map(&mut client, code)
}

#[test]
fn an_independent_proxy_is_refused() {
    let served = served_with_rules(&rules(""));
    for user in ["carol", "alice"] {
        let text = login_with_proxy(&served, user, 530);
        // Options of the server are for the log.
        assert!(text.contains("which this server does not accept"), "{text}");
        assert!(!text.contains("allow-"), "{text}");
    }
    map(&mut authenticated(&served, "alice"), 230);
    map(&mut authenticated(&served, "carol"), 530);
}

#[test]
fn who_is_denied_is_denied_as_an_independent_proxy_where_those_are_let_in() {
    let served = served_with_rules(&rules("allow-independent-proxies = true"));
    let text = login_with_proxy(&served, "carol", 530);
    assert!(text.contains("denied by configuration"), "{text}");
    login_with_proxy(&served, "alice", 230);
}
