//! Names of users and groups.
//!
//! Names are looked up in the machine's account database (`getpwuid_r` and `getgrgid_r`), which includes LDAP and SSSD. A
//! lookup may need a network round trip, and a listing needs one for every entry, so results are cached for the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User};

use crate::Account;

/// The number of cached names of users, and of groups.
const KEPT: usize = 4096;

/// How long a result is cached, also that an account has no name.
const LIFETIME: Duration = Duration::from_secs(300);

static USERS: Names = Names::new();
static GROUPS: Names = Names::new();

impl Account {
    /// A user, with its name from the account database.
    pub fn user(id: u32) -> Self {
        let ask = |id| {
            let user = User::from_uid(Uid::from_raw(id)).ok().flatten();
            user.map(|user| user.name)
        };
        let name = USERS.name(id, ask);
        Self { id, name }
    }

    /// A group, with its name from the account database.
    pub fn group(id: u32) -> Self {
        let ask = |id| {
            let group = Group::from_gid(Gid::from_raw(id)).ok().flatten();
            group.map(|group| group.name)
        };
        let name = GROUPS.name(id, ask);
        Self { id, name }
    }

    /// A user or a group without its name.
    pub fn number(id: u32) -> Self {
        Self { id, name: None }
    }
}

/// The number of a group that is given by name or, if no group has that name, by number.
pub fn group_number(group: &str) -> Option<u32> {
    if let Ok(Some(found)) = Group::from_name(group) {
        return Some(found.gid.as_raw());
    }
    plain_number(group)
}

/// The number of a group that is given by number.
pub(super) fn plain_number(group: &str) -> Option<u32> {
    // chown(2): the highest number means "no change".
    group.parse().ok().filter(|&id| id != u32::MAX)
}

struct Names {
    kept: Mutex<BTreeMap<u32, Answer>>,
}

struct Answer {
    name: Option<String>,
    asked: Instant,
}

impl Names {
    const fn new() -> Self {
        Self {
            kept: Mutex::new(BTreeMap::new()),
        }
    }

    fn name(&self, id: u32, ask: impl Fn(u32) -> Option<String>) -> Option<String> {
        if let Some(answer) = self.lock().get(&id)
            && answer.asked.elapsed() < LIFETIME
        {
            return answer.name.clone();
        }
        // The lock is not held here: a slow directory service must not delay threads whose names are cached.
        let name = ask(id);
        let mut kept = self.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        let asked = Instant::now();
        kept.insert(
            id,
            Answer {
                name: name.clone(),
                asked,
            },
        );
        name
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Answer>> {
        // The map is consistent whenever the lock is released, so poisoning is harmless.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_superuser_has_a_name() {
        assert_eq!(Account::user(0).name.as_deref(), Some("root"));
        assert_eq!(Account::group(0).name.as_deref(), Some("root"));
        assert_eq!(Account::number(0).name, None);
    }

    #[test]
    fn groups_go_by_name_and_by_number() {
        assert_eq!(group_number("root"), Some(0));
        assert_eq!(group_number("4000000123"), Some(4_000_000_123));
        for wrong in [
            "no-such-group",
            "",
            "-1",
            "4294967295",
            "4294967296",
            "a\0b",
        ] {
            assert_eq!(group_number(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn answers_are_kept_and_bounded() {
        let names = Names::new();
        let asked = Cell::new(0);
        let ask = |id: u32| {
            asked.set(asked.get() + 1);
            id.is_multiple_of(2).then(|| format!("user{id}"))
        };
        for id in [2, 3, 2, 3] {
            assert_eq!(names.name(id, ask).is_some(), id == 2);
        }
        assert_eq!(asked.get(), 2);
        for id in 0..3 * u32::try_from(KEPT).unwrap() {
            names.name(id, ask);
        }
        assert!(names.lock().len() <= KEPT);
    }
}
