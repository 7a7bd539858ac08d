//! Tests: a grant ends with the proof of the client, and with its entry in the maps.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_accounts::BrokerSource;
use gridhaul_security::certificate::Certificate;
use gridhaul_security::trust::Peer;
use rustix::io::Errno;

use super::Authenticator;
use super::authenticator::Asked;
use super::fuzzing::{Brokers, SITE};
use super::messages::{Account, Answer, Asker};
use super::service::LoginService;
use crate::security::Opener;

/// A client with one of the sample certificates, whose proof expires in an hour or has expired an hour ago.
fn peer(pem: &[u8], expired: bool) -> Peer {
    const HOUR: Duration = Duration::from_secs(3600);

    let chain = Certificate::all_from_pem(pem).expect("a certificate");
    let now = SystemTime::now();
    Peer {
        identity: chain[0].subject().clone(),
        chain,
        limited: false,
        expires: if expired { now - HOUR } else { now + HOUR },
    }
}

/// The account of the host in the grid-mapfile.
fn pool() -> Account {
    Account {
        account: "pool".to_owned(),
        root: SITE.config.root.clone(),
        read_only: false,
    }
}

fn asked() -> Asked<'static> {
    Asked {
        account: None,
        address: None,
    }
}

const HOST: &[u8] = include_bytes!("../security/samples/host.pem");
const ALICE: &[u8] = include_bytes!("../security/samples/alice.pem");

/// Whether a client that was granted the account gets a broker for it.
fn gets_broker(peer: Peer) -> bool {
    let authenticator =
        Authenticator::load(&SITE.config, &Opener::default(), None).expect("a sound site");
    let brokers = Arc::new(Brokers::default());
    let source = Arc::clone(&brokers) as Arc<dyn BrokerSource>;
    let service = LoginService::new(SITE.config.clone(), authenticator, Some(source), 10);
    let exchange = service.exchanges.begin().expect("room");
    service
        .exchanges
        .establish(exchange, peer, Err(String::new()));
    service.exchanges.claim(exchange).expect("established");
    service
        .exchanges
        .grant(exchange, Asker::Serving, pool(), None, None);
    match service.broker(pool()) {
        Ok(_) => {
            assert_eq!(brokers.take().len(), 1);
            true
        }
        Err(errno) => {
            assert_eq!((errno, brokers.take().len()), (Errno::PERM, 0));
            false
        }
    }
}

#[test]
fn an_expired_proof_gets_no_broker() {
    assert!(gets_broker(peer(HOST, false)));
    assert!(!gets_broker(peer(HOST, true)));
}

#[test]
fn a_client_whom_the_maps_do_not_name_any_more_gets_no_broker() {
    // The map has another account for this client, as after a change since the login.
    assert!(!gets_broker(peer(ALICE, false)));
}

#[test]
fn an_expired_proof_is_granted_no_account() {
    for (expired, granted) in [(false, true), (true, false)] {
        let authenticator =
            Authenticator::load(&SITE.config, &Opener::default(), None).expect("a sound site");
        let service = LoginService::new(SITE.config.clone(), authenticator, None, 10);
        let exchange = service.exchanges.begin().expect("room");
        let proof = peer(HOST, expired);
        service
            .exchanges
            .establish(exchange, proof, Err(String::new()));
        match service.authorize(exchange, asked(), Asker::Front) {
            Answer::Authorized(authorization) => {
                assert!(granted, "{authorization:?}");
                assert_eq!(authorization.account, "pool");
            }
            Answer::Refused(reason) => {
                assert!(!granted && reason.contains("expired"), "{reason}");
            }
            other => panic!("{other:?} for an authorization"),
        }
    }
}

#[test]
fn a_reload_that_allows_more_connections_makes_room_for_their_exchanges() {
    let authenticator =
        || Authenticator::load(&SITE.config, &Opener::default(), None).expect("a sound site");
    let service = LoginService::new(SITE.config.clone(), authenticator(), None, 1);
    service.exchanges.begin().expect("room for one");
    service.exchanges.begin().expect_err("for no more");
    service.replace(SITE.config.clone(), authenticator());
    for _ in 0..SITE.config.limits.connections {
        service.exchanges.begin().expect("room");
    }
}
