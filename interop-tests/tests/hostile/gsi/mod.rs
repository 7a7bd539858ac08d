//! Attacks on sessions of users with certificates.
//!
//! The table of cases covers refused certificates, with real clients. These clients violate
//! the protocol: they send invalid tokens or none, and they connect to data ports that expect another
//! peer.

mod channels;
mod confined;
mod exchange;
mod floods;
mod hung;
mod order;
mod settings;
mod tls;
mod tokens;

use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{GsiControl, Identity, TIMEOUT};
use gridhaul_interop::support::usage::{ProcessTree, Usage};
use gridhaul_interop::{Kind, Launch, Pki, UserKind};

use crate::fixture::{Fixture, HELLO, wait_until};

/// A server for users with certificates.
struct Site {
    fixture: Fixture,
    pki: &'static Pki,
}

impl Site {
    fn new(arguments: &[&str]) -> Self {
        let pki = Pki::shared().unwrap();
        let fixture = Fixture::launch(Kind::Gridhaul, |launch: Launch| {
            // Otherwise each server would start by making RSA keys, which takes longer than most tests.
            let launch = launch.gsi(pki).arg("--delegation-keys").arg("ec");
            arguments
                .iter()
                .fold(launch, |launch, argument| launch.arg(*argument))
        });
        Self { fixture, pki }
    }

    /// A client that logs in with this credential.
    fn user(&self, user: UserKind) -> Identity {
        Identity::user(self.pki, user).unwrap()
    }

    /// The user of most tests.
    fn alice(&self) -> Identity {
        self.user(UserKind::Plain)
    }

    /// Another one.
    fn bob(&self) -> Identity {
        self.user(UserKind::Second)
    }

    fn subject(&self, user: UserKind) -> &str {
        &self.pki.user(user).subject
    }

    /// A session of Alice, logged in.
    #[track_caller]
    fn session(&self) -> GsiControl {
        GsiControl::logged_in(self.fixture.address(), &self.alice()).unwrap()
    }

    /// Checks that the server still works: Alice logs in and gets a file.
    #[track_caller]
    fn serves(&self) {
        self.session_works(&mut self.session());
    }

    /// Checks that the session still works: Alice gets a file.
    #[track_caller]
    fn session_works(&self, session: &mut GsiControl) {
        session.must("MODE S", 200).unwrap();
        assert_eq!(session.get(HELLO.0).unwrap(), HELLO.1);
    }

    /// Checks that the server logs a line with all these words.
    #[track_caller]
    fn logged(&self, words: &[&str]) {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        wait_until(&format!("{words:?} in a line of the log"), || {
            self.fixture.server.log().lines().any(has_all)
        });
    }

    fn usage(&self) -> Usage {
        ProcessTree::of(self.fixture.server.pid()).usage()
    }

    /// Checks that the resource usage returns to `before`.
    #[track_caller]
    fn usage_returns_to(&self, before: Usage) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let now = self.usage();
            if now.descriptors <= before.descriptors && now.threads <= before.threads {
                return;
            }
            assert!(Instant::now() < deadline, "before {before:?}, now {now:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}
