//! Names of users and groups.
//!
//! They are asked of the machine's account database (`getpwuid_r` and its like), so that LDAP and SSSD
//! count. Asking can mean a network round trip and a listing asks for every entry, so answers are kept
//! for a while, for the whole process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User};

/// How many answers are kept of each kind.
const KEPT: usize = 4096;

/// How long an answer is kept, also the answer that there is no name.
const LIFETIME: Duration = Duration::from_secs(300);

static USERS: Names = Names::new();
static GROUPS: Names = Names::new();

/// The name of a user, where there is one.
pub(super) fn user_name(id: u32) -> Option<String> {
    USERS.name(id, |id| {
        let user = User::from_uid(Uid::from_raw(id)).ok().flatten();
        user.map(|user| user.name)
    })
}

/// The name of a group, where there is one.
pub(super) fn group_name(id: u32) -> Option<String> {
    GROUPS.name(id, |id| {
        let group = Group::from_gid(Gid::from_raw(id)).ok().flatten();
        group.map(|group| group.name)
    })
}

/// The number of a group given by name or, where no group has that name, by number.
pub(super) fn group_id(group: &str) -> Option<u32> {
    if let Ok(Some(found)) = Group::from_name(group) {
        return Some(found.gid.as_raw());
    }
    // The kernel takes the highest number for "leave it as it is".
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
        // The lock is not held here: a slow directory service stops only those who need it.
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
        // A map that a panic left behind is still a map.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_superuser_has_a_name() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(group_name(0).as_deref(), Some("root"));
    }

    #[test]
    fn groups_go_by_name_and_by_number() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("4000000123"), Some(4_000_000_123));
        for wrong in [
            "no-such-group",
            "",
            "-1",
            "4294967295",
            "4294967296",
            "a\0b",
        ] {
            assert_eq!(group_id(wrong), None, "{wrong:?}");
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
