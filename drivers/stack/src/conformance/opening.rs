//! Opening channels, many times, and with invalid options.

use super::{Subject, TimeLimit, expect_end_of_stream, finish, receive, send};
use crate::options::Audience;
use crate::{ConnectError, Driver, OptionRules, StackError};

/// Several peers may connect before the first one is accepted; none is lost or confused with another.
pub fn accepts_all_pending_connections(subject: &Subject) {
    const COUNT: u8 = 20;
    let time_limit = TimeLimit::new();
    let mut listener = subject.listen();
    let address = listener.address();
    std::thread::scope(|scope| {
        for number in 0..COUNT {
            scope.spawn(move || {
                let mut channel = subject.connect(address);
                assert_eq!(channel.peer(), address);
                send(&mut *channel, &[number]);
                assert_eq!(receive(&mut *channel, 1, 1), [number + 100]);
            });
        }
        let mut seen: Vec<u8> = (0..COUNT)
            .map(|_| {
                let incoming = listener.accept(&time_limit.operation()).unwrap();
                assert_eq!(incoming.peer().ip(), address.ip());
                let mut channel = incoming.establish(&time_limit.operation()).unwrap();
                let number = receive(&mut *channel, 1, 1)[0];
                send(&mut *channel, &[number + 100]);
                number
            })
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..COUNT));
    });
}

/// Connecting to a port without a listener fails at once with an error of the peer.
pub fn refuses_ports_without_a_listener(subject: &Subject) {
    let address = subject.listen().address();
    let time_limit = TimeLimit::new();
    let outcome = subject
        .stack
        .connect(address, &subject.sockets, &time_limit.operation());
    assert!(
        matches!(outcome, Err(ConnectError::Peer { peer, .. }) if peer == address),
        "{outcome:?}"
    );
}

/// Channels (a thousand, unless the subject sets another number) that are closed in different ways do not leak descriptors.
pub fn opens_many_channels_without_leaks(subject: &Subject) {
    const CHANNELS: usize = 20;
    let before = open_descriptors();
    for round in 0..subject.openings / CHANNELS {
        let mut listener = subject.listen();
        for number in 0..CHANNELS {
            let (mut one, mut other) = subject.meet(&mut listener);
            send(&mut *one, b"x");
            assert_eq!(receive(&mut *other, 1, 1), b"x");
            match (round + number) % 3 {
                0 => one.abort(),
                1 => {
                    finish(&mut *one);
                    expect_end_of_stream(&mut *other);
                }
                _ => {}
            }
        }
    }
    // Other tests of the same process open some too, but fewer than a leak would leave.
    let after = open_descriptors();
    assert!(after < before + subject.openings / 2, "{before} -> {after}");
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A driver accepts the options that it documents, once each, and no others. Not part of [`crate::conformance_tests!`], because it
/// tests a driver, not a stack.
pub fn check_options(driver: &dyn Driver) {
    let build = |options: &[(&str, &str)]| {
        let options: Vec<(String, String)> = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        driver.build(&options)
    };
    let error = build(&[("no-such-option", "1")]).unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(error, StackError::UnknownOption { .. }),
        "{error:?}"
    );
    assert!(message.contains("no-such-option") && message.contains(driver.name()));
    let documented = OptionRules::documented(driver);
    documented.check(driver).unwrap();
    for option in driver.options() {
        assert!(message.contains(option.name), "{message}");
        let example = [(option.name.to_owned(), option.example.to_owned())];
        assert_eq!(
            documented.check_options(driver, &example).is_ok(),
            !matches!(option.audience, Audience::Administrator(_)),
            "an example is within the bound of clients: {option:?}"
        );
        build(&[(option.name, option.example)]).unwrap();
        let twice = [(option.name, option.example); 2];
        assert!(matches!(
            build(&twice),
            Err(StackError::RepeatedOption { .. })
        ));
        for value in ["", "\u{1f4a3}"] {
            let error = build(&[(option.name, value)]).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, StackError::BadValue { .. }), "{error:?}");
            assert!(message.contains(option.name) && message.contains(option.example));
        }
    }
}
