//! Names of drivers' values that came from another machine.
//!
//! Drivers name their values with strings of the program. Such a name from another machine becomes one here: it is kept until
//! the process ends, so their number is bounded.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most names. The drivers of this program have fewer than a hundred.
const MOST_NAMES: usize = 256;

/// The longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// The same name for the rest of the process. `None` if it is too long, has other characters than names have, or if there are
/// too many names.
pub(crate) fn static_name(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_name) {
        return None;
    }
    // Every change under the lock is complete, so a panic elsewhere leaves no partial state.
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    add(&mut names, name)
}

fn add(names: &mut BTreeSet<&'static str>, name: &str) -> Option<&'static str> {
    if let Some(known) = names.get(name) {
        return Some(known);
    }
    if names.len() >= MOST_NAMES {
        return None;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let name = static_name("ring-bytes").expect("a name");
        let again = static_name(&String::from("ring-bytes")).expect("a name");
        assert_eq!(name, "ring-bytes");
        assert!(std::ptr::eq(name, again));
        for other in ["", "two words", "naïve", "a=b", &"x".repeat(65)] {
            assert_eq!(static_name(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut names = BTreeSet::new();
        let kept = (0..1000).filter(|number| add(&mut names, &format!("name-{number}")).is_some());
        assert_eq!(kept.count(), MOST_NAMES);
        assert_eq!(add(&mut names, "name-7"), Some("name-7"));
    }
}
