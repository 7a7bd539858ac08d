//! Verified passwords, until the serving process asks for their grants.
//!
//! The front process asks whether a password is right, and the serving process opens the files of the user. It gets the
//! grant from here and not from the front process, which may be compromised.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::passwords::Grant;

/// The names with verified passwords, and their grants.
#[derive(Debug)]
pub(super) struct Verdicts {
    most: usize,
    by_name: Mutex<HashMap<String, Vec<Verdict>>>,
}

#[derive(Debug)]
struct Verdict {
    grant: Grant,
    at: Instant,
}

/// The serving process asks at once. A client that disconnects in between must not leave its grant to others.
const LASTS: Duration = Duration::from_secs(60);

impl Verdicts {
    /// Keeps up to `most` grants.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            by_name: Mutex::default(),
        }
    }

    /// The password of `name` was verified.
    pub(super) fn add(&self, name: &str, grant: Grant) {
        let now = Instant::now();
        let mut by_name = self.by_name();
        by_name.retain(|_, verdicts| {
            verdicts.retain(|verdict| verdict.is_valid(now));
            !verdicts.is_empty()
        });
        let count: usize = by_name.values().map(Vec::len).sum();
        if count < self.most {
            let verdicts = by_name.entry(name.to_owned()).or_default();
            verdicts.push(Verdict { grant, at: now });
        }
    }

    /// Takes the grant of `name`, if its password was verified just before.
    pub(super) fn redeem(&self, name: &str) -> Option<Grant> {
        let now = Instant::now();
        let mut by_name = self.by_name();
        let verdicts = by_name.get_mut(name)?;
        let verdict = verdicts.pop();
        if verdicts.is_empty() {
            by_name.remove(name);
        }
        verdict
            .filter(|verdict| verdict.is_valid(now))
            .map(|verdict| verdict.grant)
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<String, Vec<Verdict>>> {
        // Every change is complete, so a panic elsewhere leaves no partial state.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Verdict {
    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < LASTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_for_its_name_and_once() {
        let verdicts = Verdicts::new(2);
        let grant = Grant {
            root: Some("/srv/ann".into()),
            read_only: true,
        };
        assert!(verdicts.redeem("ann").is_none());
        verdicts.add("ann", grant.clone());
        assert!(verdicts.redeem("bob").is_none());
        let redeemed = verdicts.redeem("ann").expect("it was right");
        assert_eq!(redeemed.root, grant.root);
        assert!(verdicts.redeem("ann").is_none(), "once");
        for _ in 0..3 {
            verdicts.add("ann", grant.clone());
        }
        let redeemed = std::iter::from_fn(|| verdicts.redeem("ann")).count();
        assert_eq!(redeemed, 2, "no more are remembered");
    }
}
