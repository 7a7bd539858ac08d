//! Checks passwords for clients: within the budget, and round-robin by network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::Grant;
use super::budget::{Budget, Pair};
use crate::admission::{self, Network, Workers};

/// Checks one password.
pub(crate) trait CheckPassword: Send + Sync {
    /// The grant of `name` with this password; `None` if the password is wrong. May block.
    fn password(&self, name: &str, password: &[u8]) -> Option<Grant>;
}

/// Checks passwords on its own threads. Each check takes a processor for some 20 ms, and 19 MiB with the usual parameters,
/// so there are as many threads as processors, and at most eight.
#[derive(Debug)]
pub(crate) struct Verifier {
    workers: Workers,
    shared: Arc<Shared>,
}

struct Shared {
    budget: Budget,
}

/// The reason why a password gives no access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unverified {
    /// The same for a wrong name and a wrong password.
    #[error("wrong user name or password")]
    Wrong,
    /// The password was not checked, because of the budget.
    #[error(
        "Too many wrong passwords for this user, or from your address. Please try again in {} s", .0.as_secs() + 1
    )]
    OverBudget(Duration),
    /// The password was not checked, because the threads are busy.
    #[error("Service busy: {0}")]
    Refused(admission::Refused),
}

impl Verifier {
    pub(crate) fn new() -> Self {
        let shared = Shared {
            budget: Budget::new(),
        };
        Self {
            workers: Workers::new("password", 8),
            shared: Arc::new(shared),
        }
    }

    /// The grant of `name`, if `password` is right. `network` is the client's.
    pub(crate) async fn verify(
        &self,
        logins: Arc<dyn CheckPassword>,
        network: Network,
        name: String,
        password: Zeroizing<Vec<u8>>,
    ) -> Result<Grant, Unverified> {
        let pair = self.shared.budget.pair(&name, network);
        self.shared.allows(pair)?;
        let shared = Arc::clone(&self.shared);
        let checked = self.workers.run(network, move || {
            // Others of this network or user may have failed while this job waited.
            shared.allows(pair)?;
            shared.check(&*logins, pair, &name, &password)
        });
        checked.await.map_err(Unverified::Refused)?
    }
}

impl Shared {
    fn allows(&self, pair: Pair) -> Result<(), Unverified> {
        let allowed = self.budget.allows(pair, Instant::now());
        allowed.map_err(Unverified::OverBudget)
    }

    fn check(
        &self,
        logins: &dyn CheckPassword,
        pair: Pair,
        name: &str,
        password: &[u8],
    ) -> Result<Grant, Unverified> {
        match logins.password(name, password) {
            Some(grant) => {
                self.budget.succeeded(pair, Instant::now());
                Ok(grant)
            }
            None => {
                self.budget.failed(pair, Instant::now());
                Err(Unverified::Wrong)
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::login::Authenticator;
    use crate::passwords::Passwords;

    fn network(last: u8) -> Network {
        Network::of(IpAddr::from([192, 0, 2, last]))
    }

    fn logins() -> Arc<dyn CheckPassword> {
        let text = format!("ann:{}\n", super::super::tests::cheap_hash());
        let passwords = Passwords::parse(&text).expect("valid");
        Arc::new(Arc::new(Authenticator::of_passwords(passwords)))
    }

    #[tokio::test]
    async fn the_verifier_says_what_the_file_says() {
        let (verifier, logins) = (Verifier::new(), logins());
        let verify = |name: &str, password: &str| {
            let password = Zeroizing::new(password.into());
            verifier.verify(Arc::clone(&logins), network(1), name.to_owned(), password)
        };
        assert_eq!(verify("ann", "secret").await, Ok(Grant::default()));
        assert_eq!(verify("ann", "wrong").await, Err(Unverified::Wrong));
        assert_eq!(verify("bob", "secret").await, Err(Unverified::Wrong));
    }

    #[tokio::test]
    async fn guesses_that_come_together_are_counted_together() {
        let (verifier, logins) = (Arc::new(Verifier::new()), logins());
        let verify = |number: u32, network: Network| {
            let (verifier, logins) = (Arc::clone(&verifier), Arc::clone(&logins));
            let password = Zeroizing::new(b"wrong".to_vec());
            tokio::spawn(async move {
                let name = format!("user{number}");
                verifier.verify(logins, network, name, password).await
            })
        };
        let guesses: Vec<_> = (0..450).map(|number| verify(number, network(1))).collect();
        let mut looked_at = 0;
        for guess in guesses {
            match guess.await.expect("no panic") {
                Err(Unverified::Wrong) => looked_at += 1,
                Err(Unverified::OverBudget(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        // One more for each thread that was at work when the budget ended.
        assert!((100..=108).contains(&looked_at), "{looked_at}");
        let elsewhere = verify(1, network(2)).await.expect("no panic");
        assert_eq!(elsewhere, Err(Unverified::Wrong));
    }
}
