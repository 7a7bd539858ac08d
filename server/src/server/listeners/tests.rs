//! Sockets that a server is started with, and configurations.

use super::*;
use crate::config::{ServeArguments, Settings};
use crate::server::sockets::listen;

fn config(listen: Option<&[&str]>, metrics: Option<&str>) -> Config {
    let parsed = |text: &&str| text.parse().expect("an address");
    let settings = Settings {
        anonymous: Some(true),
        listen: listen.map(|all| all.iter().map(parsed).collect()),
        metrics_listen: metrics.map(|address| parsed(&address)),
        ..Settings::default()
    };
    let arguments = ServeArguments {
        settings,
        ..ServeArguments::default()
    };
    Config::load(&arguments).expect("valid")
}

fn passed(name: &str) -> (Passed, SocketAddr) {
    let (listener, address) =
        listen_and_tell("127.0.0.1:0".parse().expect("an address")).expect("listens");
    let passed = Passed {
        name: name.to_owned(),
        socket: listener.into(),
    };
    (passed, address)
}

fn refused(config: &Config, passed: Vec<Passed>) -> String {
    let refused = Listeners::open_with(config, passed).expect_err("it does not fit");
    refused.to_string()
}

#[test]
fn sockets_of_the_manager_replace_the_default_address() {
    // Also by the name of a unit, and several of them.
    let (first, first_address) = passed("gridhaul.socket");
    let (other, other_address) = passed("gridftp");
    let listeners = Listeners::open_with(&config(None, None), vec![first, other]).expect("fits");
    assert_eq!(listeners.addresses(), [first_address, other_address]);
    let names: Vec<_> = listeners.named().map(|(name, _)| name).collect();
    assert_eq!(names, ["gridftp", "gridftp"]);
}

#[test]
fn sockets_of_the_manager_must_fit_the_configuration() {
    let (one, address) = passed("gridftp");
    let same = config(Some(&[&address.to_string()]), None);
    let listeners = Listeners::open_with(&same, vec![one]).expect("fits");
    assert_eq!(listeners.addresses(), [address]);
    let (one, _) = passed("gridftp");
    let (other, _) = passed("gridftp");
    let any_port = config(Some(&["127.0.0.1:0"]), None);
    let reason = refused(&any_port, vec![one, other]);
    assert!(
        reason.starts_with("listen does not have 127.0.0.1:"),
        "{reason}"
    );
    let (one, _) = passed("gridftp");
    let elsewhere = config(Some(&["127.0.0.2:0"]), None);
    let reason = refused(&elsewhere, vec![one]);
    assert!(reason.contains("none for 127.0.0.2:0"), "{reason}");
    let (one, _) = passed("metrics");
    let reason = refused(&any_port, vec![one]);
    assert!(
        reason.starts_with("metrics-listen does not have"),
        "{reason}"
    );
}

#[test]
fn sockets_that_cannot_be_used_are_named_with_the_remedy() {
    let any = config(Some(&["127.0.0.1:0"]), None);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let datagrams = Passed {
        name: "gridftp".to_owned(),
        socket: socket.into(),
    };
    assert!(refused(&any, vec![datagrams]).contains("ListenStream="));
    let directory = tempfile::tempdir().expect("a directory");
    let socket = UnixListener::bind(directory.path().join("socket")).expect("bound");
    let unix = Passed {
        name: "gridftp".to_owned(),
        socket: socket.into(),
    };
    assert!(refused(&any, vec![unix]).contains("FileDescriptorName=admin"));
}

#[test]
fn sockets_of_the_version_before_are_used_as_far_as_they_are_configured() {
    let (control, address) = passed("bound-gridftp");
    let (metrics, _) = passed("bound-metrics");
    let (admin, _) = passed("bound-admin");
    let new = config(Some(&["127.0.0.1:0", "127.0.0.2:0"]), None);
    let listeners = Listeners::open_with(&new, vec![metrics, control, admin]).expect("fits");
    let addresses = listeners.addresses();
    assert_eq!(addresses[0], address);
    assert_eq!(addresses[1].ip().to_string(), "127.0.0.2");
    assert!(listeners.metrics.is_none() && listeners.admin.is_none());
    let names: Vec<_> = listeners.named().map(|(name, _)| name).collect();
    assert_eq!(names, ["bound-gridftp", "bound-gridftp"]);
    let taken = address.to_string();
    let again = Listeners::open(&config(Some(&[&taken]), None)).expect_err("in use");
    assert!(matches!(again, StartError::Listen { .. }));
    listen("127.0.0.3:0".parse().expect("an address")).expect("listens");
}
