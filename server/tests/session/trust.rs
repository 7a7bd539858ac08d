//! Revocation lists that cannot be used, in whole logins.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gridhaul_security::credential::Credential;

use crate::gsi::{exchange, initiator, refused, served_with};
use crate::pki::Pki;
use crate::served::Served;

/// A server that trusts what is in this directory.
fn served(trust: &Path) -> Served {
    served_with(|settings| {
        settings.trust = Some(trust.to_owned());
        settings.max_failed_handshakes = Some(1_000_000);
    })
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
