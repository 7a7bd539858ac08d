//! Users with passwords: the file, and its checks.
//!
//! A line of the file is `name:hash`, `name:hash:root` or `name:hash:root:ro`; the hash is argon2id in the PHC string
//! format. `root` is the directory that the user sees as `/`, by default the server's root; `ro` forbids changes there, `rw`
//! allows them. Empty lines and lines that begin with `#` are comments.

mod budget;
mod change;
mod memory;
mod replace;
mod secret;
mod terminal;
mod verifier;

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use gridhaul_security::files::{OpenFiles, OwnRights};

pub use change::{Change, Listed, delete_user, list_users, set_password};
pub use terminal::read_password;
pub(crate) use verifier::{CheckPassword, Unverified, Verifier};

pub(crate) use memory::Memory;
use secret::Secret;

/// The users of a password file.
pub struct Passwords {
    users: HashMap<String, User>,
    /// The secrets for names that do not exist: those of all users, the cheapest first.
    decoys: Vec<Secret>,
    /// Decides which decoy is for which name. It is the hash of the first user, which attackers do not have, and which is
    /// the same after a restart: a name whose cost changed then could not be a user's.
    key: Vec<u8>,
}

#[derive(Clone)]
struct User {
    secret: Secret,
    grant: Grant,
}

impl Default for Passwords {
    fn default() -> Self {
        Self::of(HashMap::new(), Vec::new())
    }
}

/// The access of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// The directory that the user sees as `/`; `None` is the server's root.
    pub root: Option<PathBuf>,
    /// Nothing may be changed.
    pub read_only: bool,
}

/// A password file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordsError {
    /// It cannot be read or written.
    #[error("the password file {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// A line is wrong.
    #[error("the password file {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The reason.
        reason: &'static str,
    },
    /// A name that the file cannot hold.
    #[error(
        "'{0}' cannot be a user's name: 1 to 64 characters, no colon, space or control character, no '#' in front"
    )]
    Name(String),
    /// A directory that the file cannot hold.
    #[error("{} cannot be a user's root: an absolute path without colons and line ends is needed", .0.display())]
    Root(PathBuf),
    /// A directory that is not there.
    #[error("the user's root {} is no directory: make it first, or correct --root", .0.display())]
    NoRoot(PathBuf),
    /// A user that is not in the file.
    #[error("the password file {} has no user '{name}'; --list shows those that it has", path.display())]
    NoUser {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// No password, or two different ones.
    #[error("{0}")]
    Password(&'static str),
}

impl Passwords {
    /// Reads a password file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or a line of it is wrong.
    pub fn read(path: &Path) -> Result<Self, PasswordsError> {
        Self::read_with(path, &OwnRights)
    }

    /// Reads a password file that `opener` opens.
    pub(crate) fn read_with(path: &Path, opener: &dyn OpenFiles) -> Result<Self, PasswordsError> {
        let text = opener.open(path).and_then(io::read_to_string);
        let text = text.map_err(|error| file_error(path, error))?;
        Self::parse(&text).map_err(|(line, reason)| PasswordsError::Line {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let (mut users, mut key) = (HashMap::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, user) = parse_line(line).map_err(|reason| (index + 1, reason))?;
            if users.is_empty() {
                key = user.secret.output().to_vec();
            }
            if users.insert(name.to_owned(), user).is_some() {
                return Err((index + 1, "this user was named before"));
            }
        }
        Ok(Self::of(users, key))
    }

    fn of(users: HashMap<String, User>, key: Vec<u8>) -> Self {
        let mut decoys: Vec<Secret> = users.values().map(|user| user.secret.clone()).collect();
        if decoys.is_empty() {
            decoys.push(Secret::decoy());
        }
        decoys.sort_by_key(Secret::work);
        Self { users, decoys, key }
    }

    /// The number of users.
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }

    /// The grants of all users, in no order.
    pub(crate) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.users.values().map(|user| &user.grant)
    }

    /// Whether there is a user with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// The grant of the user `name`, if `password` is right. A name that does not exist takes as long as one that does.
    /// Blocks for some 10 ms.
    pub(crate) fn check(&self, name: &str, password: &[u8], memory: &mut Memory) -> Option<Grant> {
        let (secret, grant) = self.look_up(name);
        let is_right = secret.matches(password, memory);
        grant.filter(|_| is_right).cloned()
    }

    /// The secret to compare a password with, and the grant; `None` if there is no such user.
    ///
    /// Users may have hashes of different costs. If all other names had one cost, users with another cost would be
    /// recognizable by time. So other names have the costs of the file with the same frequencies, and each name always has
    /// the same cost.
    fn look_up(&self, name: &str) -> (&Secret, Option<&Grant>) {
        let decoy = self.decoy(name);
        match self.users.get(name) {
            Some(user) => (&user.secret, Some(&user.grant)),
            None => (decoy, None),
        }
    }

    fn decoy(&self, name: &str) -> &Secret {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.key);
        hasher.write(name.as_bytes());
        // There is at least one. The hash is a fraction of 2^64.
        let index = (u128::from(hasher.finish()) * self.decoys.len() as u128) >> 64;
        &self.decoys[usize::try_from(index).unwrap_or(0)]
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

fn parse_line(line: &str) -> Result<(&str, User), &'static str> {
    let mut fields = line.splitn(4, ':');
    let name = fields
        .next()
        .filter(|name| is_name(name))
        .ok_or("no user's name in front of the first colon")?;
    let hash = fields.next().ok_or("no hash after the user's name")?;
    let secret = Secret::parse(hash)?;
    let root = match fields.next() {
        None | Some("") => None,
        Some(root) if root.starts_with('/') => Some(PathBuf::from(root)),
        Some(_) => return Err("the user's root is no absolute path"),
    };
    let read_only = match fields.next() {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(_) => return Err("after the user's root stands neither 'rw' nor 'ro'"),
    };
    let user = User {
        secret,
        grant: Grant { root, read_only },
    };
    Ok((name, user))
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count())
        && !name.starts_with('#')
        && !name.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control())
}

fn file_error(path: &Path, error: io::Error) -> PasswordsError {
    PasswordsError::File {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use argon2::{Argon2, Params, PasswordHasher};

    use super::*;

    /// `secret`, hashed at the least cost, so that tests are quick.
    pub(super) fn cheap_hash() -> String {
        let params = Params::new(Params::MIN_M_COST, 1, 1, None).expect("the least cost");
        let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        argon2.hash_password(b"secret").expect("hashed").to_string()
    }

    #[test]
    fn a_right_password_grants_what_the_line_says() {
        let hash = cheap_hash();
        let text = format!("# users\n\nann:{hash}\nbob:{hash}:/srv/bob:ro\ncid:{hash}:/srv/cid\n");
        let passwords = Passwords::parse(&text).expect("valid");
        let mut memory = Memory::default();
        let mut check = |name: &str, password: &[u8]| passwords.check(name, password, &mut memory);
        assert_eq!(check("ann", b"secret"), Some(Grant::default()));
        let bob = Grant {
            root: Some("/srv/bob".into()),
            read_only: true,
        };
        assert_eq!(check("bob", b"secret"), Some(bob));
        let cid = Grant {
            root: Some("/srv/cid".into()),
            read_only: false,
        };
        assert_eq!(check("cid", b"secret"), Some(cid));
        assert_eq!(check("ann", b"Secret"), None);
        assert_eq!(check("ann", b""), None);
        assert_eq!(check("dora", b"secret"), None);
    }

    #[test]
    fn wrong_lines_are_named_by_number() {
        let hash = cheap_hash();
        for (line, words) in [
            ("ann".to_owned(), "no hash"),
            (":x".to_owned(), "no user's name"),
            ("ann:secret".to_owned(), "not in the form"),
            (format!("ann:{hash}:srv"), "no absolute path"),
            (format!("ann:{hash}:/srv:read"), "neither 'rw' nor 'ro'"),
            (
                format!("ann:{}", hash.replace("argon2id", "argon2i")),
                "not argon2id's",
            ),
            (
                format!("ann:{}", hash.replace("m=8", "m=2097152")),
                "costs too much",
            ),
        ] {
            let (number, reason) = Passwords::parse(&format!("# one\n{line}\n")).expect_err(&line);
            assert_eq!(number, 2);
            assert!(reason.contains(words), "{line}: {reason}");
        }
        let twice = format!("ann:{hash}\nann:{hash}\n");
        assert_eq!(Passwords::parse(&twice).expect_err("twice").0, 2);
    }

    /// A hash of these parameters.
    fn hash_of(memory: u32, passes: u32) -> String {
        let params = Params::new(memory, passes, 1, None).expect("parameters");
        let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        argon2.hash_password(b"secret").expect("hashed").to_string()
    }

    #[test]
    fn names_that_do_not_exist_cost_what_users_of_the_file_cost() {
        let file = |users: usize| {
            let mut text = String::new();
            for number in 0..users {
                // A quarter of them costs more.
                let hash = hash_of(if number % 4 == 0 { 16 } else { 8 }, 1);
                text.push_str(&format!("user{number}:{hash}\n"));
            }
            (Passwords::parse(&text).expect("valid"), text)
        };
        let (passwords, text) = file(20);
        let dearer = |passwords: &Passwords| -> Vec<u32> {
            let names = (0..1000).filter(|number| {
                let (secret, grant) = passwords.look_up(&format!("nobody{number}"));
                assert!(grant.is_none());
                assert!([8, 16].contains(&secret.work().0));
                secret.work().0 == 16
            });
            names.collect()
        };
        let found = dearer(&passwords);
        assert!((200..300).contains(&found.len()), "{}", found.len());
        // The same names each time, also after a restart.
        let again = Passwords::parse(&text).expect("valid");
        assert_eq!(dearer(&again), found);
        // One more user changes what few of them cost.
        let more = Passwords::parse(&format!("{text}dora:{}\n", hash_of(8, 1))).expect("valid");
        let changed = found.len() - dearer(&more).len();
        assert!(changed < 40, "{changed}");
        // Others choose others, which cannot be foreseen without the file.
        assert_ne!(dearer(&file(20).0), found);
    }

    #[test]
    fn names_that_do_not_exist_cost_what_all_users_cost() {
        let text = format!("ann:{}\n", hash_of(24, 3));
        let passwords = Passwords::parse(&text).expect("valid");
        let work = |name| passwords.look_up(name).0.work();
        assert_eq!(work("ann"), work("nobody"));
        let nobody = Passwords::default().look_up("ann").0.work();
        assert_eq!(nobody.0, Params::DEFAULT_M_COST);
    }

    #[test]
    fn the_password_of_another_user_opens_no_name_that_does_not_exist() {
        let text = format!("ann:{}\n", cheap_hash());
        let passwords = Passwords::parse(&text).expect("valid");
        for number in 0..10 {
            let check = passwords.check(&format!("x{number}"), b"secret", &mut Memory::default());
            assert_eq!(check, None);
        }
    }
}
