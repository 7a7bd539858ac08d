//! Users with passwords: the file, and the proof.
//!
//! A line of the file is `name:hash`, `name:hash:root` or `name:hash:root:ro`; the hash is argon2id's
//! in the PHC form. `root` is what the user sees as `/`, without it the server's own root; `rw` or `ro`
//! says whether anything may be changed there. Empty lines and lines that begin with `#` are comments.

mod change;
mod terminal;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordVerifier};
use tokio::sync::Semaphore;

pub use change::set_password;
pub use terminal::read_password;

/// The users of a password file.
#[derive(Default)]
pub struct Passwords {
    users: HashMap<String, User>,
}

#[derive(Clone)]
struct User {
    hash: String,
    grant: Grant,
}

/// What a user may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// What the user sees as `/`; `None` is the server's root.
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
        /// The kernel's word.
        error: io::Error,
    },
    /// A line is wrong.
    #[error("the password file {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name that cannot stand in the file.
    #[error(
        "'{0}' cannot be a user's name: 1 to 64 characters, no colon, space or control character, no '#' in front"
    )]
    Name(String),
    /// A directory that cannot stand in the file.
    #[error("{} cannot be a user's root: an absolute path without colons and line ends is needed", .0.display())]
    Root(PathBuf),
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
        let text = std::fs::read_to_string(path).map_err(|error| file_error(path, error))?;
        Self::parse(&text).map_err(|(line, reason)| PasswordsError::Line {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, user) = parse_line(line).map_err(|reason| (index + 1, reason))?;
            if users.insert(name.to_owned(), user).is_some() {
                return Err((index + 1, "this user was named before"));
            }
        }
        Ok(Self { users })
    }

    /// What users may use, in no order.
    pub(crate) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.users.values().map(|user| &user.grant)
    }

    /// Whether there is a user of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// Whether `password` is that of the user `name`, and what the user may use then. A name that does
    /// not exist costs as much time as a wrong password. Blocks for some 10 ms.
    fn check(&self, name: &str, password: &[u8]) -> Option<Grant> {
        let Some(user) = self.users.get(name) else {
            spend_time(password);
            return None;
        };
        let hash = PasswordHash::new(&user.hash).ok()?;
        let right = Argon2::default().verify_password(password, &hash).is_ok();
        right.then(|| user.grant.clone())
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

/// Checks passwords off the session's threads, few at a time: each check takes a core and 19 MiB.
#[derive(Debug)]
pub(crate) struct Verifier {
    turns: Arc<Semaphore>,
}

impl Verifier {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            turns: Arc::new(Semaphore::new(cores.min(8))),
        }
    }

    /// What `name` may use, if `password` is right.
    pub(crate) async fn verify(
        &self,
        passwords: Arc<Passwords>,
        name: String,
        password: Vec<u8>,
    ) -> Option<Grant> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        tokio::task::spawn_blocking(move || {
            let grant = passwords.check(&name, &password);
            drop(turn);
            grant
        })
        .await
        .ok()?
    }
}

fn parse_line(line: &str) -> Result<(&str, User), &'static str> {
    let mut fields = line.splitn(4, ':');
    let name = fields
        .next()
        .filter(|name| is_name(name))
        .ok_or("no user's name in front of the first colon")?;
    let hash = fields.next().ok_or("no hash after the user's name")?;
    check_hash(hash)?;
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
        hash: hash.to_owned(),
        grant: Grant { root, read_only },
    };
    Ok((name, user))
}

/// Whether a hash can be checked at a bearable price: at most 1 GiB and 64 passes.
fn check_hash(text: &str) -> Result<(), &'static str> {
    let hash =
        PasswordHash::new(text).map_err(|_| "the hash is not in the form $argon2id$v=19$...")?;
    if hash.algorithm.as_str() != "argon2id" {
        return Err("the hash is not argon2id's");
    }
    let params = Params::try_from(&hash).map_err(|_| "the hash has wrong parameters")?;
    if params.m_cost() > 1 << 20 || params.t_cost() > 64 || params.p_cost() > 64 {
        return Err("the hash costs too much: at most m=1048576, t=64, p=64");
    }
    Ok(())
}

/// Does the work of checking a password against a hash that does not exist.
fn spend_time(password: &[u8]) {
    const ANY_SALT: &[u8] = b"nobody's salt...";
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    // The result is worth nothing, an error included.
    let _ = Argon2::default().hash_password_into(password, ANY_SALT, &mut output);
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
    use argon2::PasswordHasher;

    use super::*;

    /// `secret`, hashed at the least cost, so that tests are quick.
    fn cheap_hash() -> String {
        let params = Params::new(Params::MIN_M_COST, 1, 1, None).expect("the least cost");
        let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        argon2.hash_password(b"secret").expect("hashed").to_string()
    }

    #[test]
    fn a_right_password_grants_what_the_line_says() {
        let hash = cheap_hash();
        let text = format!("# users\n\nann:{hash}\nbob:{hash}:/srv/bob:ro\ncid:{hash}:/srv/cid\n");
        let passwords = Passwords::parse(&text).expect("valid");
        assert_eq!(passwords.check("ann", b"secret"), Some(Grant::default()));
        let bob = Grant {
            root: Some("/srv/bob".into()),
            read_only: true,
        };
        assert_eq!(passwords.check("bob", b"secret"), Some(bob));
        let cid = Grant {
            root: Some("/srv/cid".into()),
            read_only: false,
        };
        assert_eq!(passwords.check("cid", b"secret"), Some(cid));
        assert_eq!(passwords.check("ann", b"Secret"), None);
        assert_eq!(passwords.check("ann", b""), None);
        assert_eq!(passwords.check("dora", b"secret"), None);
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

    #[tokio::test]
    async fn the_verifier_says_the_same() {
        let text = format!("ann:{}\n", cheap_hash());
        let passwords = Arc::new(Passwords::parse(&text).expect("valid"));
        let verifier = Verifier::new();
        let verify = |name: &str, password: &str| {
            verifier.verify(Arc::clone(&passwords), name.to_owned(), password.into())
        };
        assert_eq!(verify("ann", "secret").await, Some(Grant::default()));
        assert_eq!(verify("ann", "wrong").await, None);
        assert_eq!(verify("bob", "secret").await, None);
    }
}
