//! Adding, changing, deleting and listing users of the file.

use std::fmt;
use std::io;
use std::path::Path;

use argon2::{Argon2, PasswordHasher};

use super::replace::Replacement;
use super::{Grant, Passwords, PasswordsError, file_error, is_name, parse_line};

/// What became of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The user is new.
    Added,
    /// The user was there, and has another password.
    Changed,
}

/// A user in a list, without the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// The access.
    pub grant: Grant,
}

/// Adds the user `name` to the file at `path`, or changes the user's password. `grant` replaces the user's access if it has a
/// root; otherwise the user keeps it. The file is replaced in one step. A new file is readable for its owner only.
///
/// # Errors
///
/// When the file is wrong or cannot be written, or name, root or password cannot be used.
pub fn set_password(
    path: &Path,
    name: &str,
    password: &[u8],
    grant: &Grant,
) -> Result<Change, PasswordsError> {
    if !is_name(name) {
        return Err(PasswordsError::Name(name.to_owned()));
    }
    if password.is_empty() {
        return Err(PasswordsError::Password("the password is empty"));
    }
    // Before the lock: hashing takes long.
    let hash = Argon2::default()
        .hash_password(password)
        .map_err(|_| PasswordsError::Password("this password cannot be hashed"))?
        .to_string();
    user_line(name, &hash, grant)?;
    change(path, |old| {
        let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
        match lines.iter_mut().find(|line| is_of(line, name)) {
            Some(line) => {
                let kept = parse_line(line).map(|(_, user)| user.grant);
                let grant = match (&grant.root, kept) {
                    (None, Ok(kept)) => kept,
                    _ => grant.clone(),
                };
                *line = user_line(name, &hash, &grant)?;
                Ok((lines, Change::Changed))
            }
            None => {
                lines.push(user_line(name, &hash, grant)?);
                Ok((lines, Change::Added))
            }
        }
    })
}

/// Deletes the user `name`. The file is replaced in one step.
///
/// # Errors
///
/// When there is no such file or user, or the file is wrong or cannot be written.
pub fn delete_user(path: &Path, name: &str) -> Result<(), PasswordsError> {
    if let Err(error) = std::fs::metadata(path) {
        return Err(file_error(path, error));
    }
    change(path, |old| {
        let others = old.lines().filter(|line| !is_of(line, name));
        let others: Vec<String> = others.map(str::to_owned).collect();
        if others.len() == old.lines().count() {
            return Err(PasswordsError::NoUser {
                path: path.to_owned(),
                name: name.to_owned(),
            });
        }
        Ok((others, ()))
    })
}

/// The users of the file, in its order.
///
/// # Errors
///
/// When the file cannot be read, or a line of it is wrong.
pub fn list_users(path: &Path) -> Result<Vec<Listed>, PasswordsError> {
    let text = std::fs::read_to_string(path).map_err(|error| file_error(path, error))?;
    check(path, &text)?;
    let users = text.lines().filter(|line| is_user(line));
    let listed = users.filter_map(|line| {
        let (name, user) = parse_line(line).ok()?;
        Some(Listed {
            name: name.to_owned(),
            grant: user.grant,
        })
    });
    Ok(listed.collect())
}

/// Writes the lines that `edit` makes of the file. Other changes wait meanwhile, so that none is lost.
fn change<T>(
    path: &Path,
    edit: impl FnOnce(&str) -> Result<(Vec<String>, T), PasswordsError>,
) -> Result<T, PasswordsError> {
    let failed = |error| file_error(path, error);
    let replacement = Replacement::begin(path).map_err(failed)?;
    let old = match std::fs::read_to_string(replacement.path()) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    check(path, &old)?;
    let (lines, done) = edit(&old)?;
    let new: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    replacement.finish(new.as_bytes()).map_err(failed)?;
    Ok(done)
}

fn check(path: &Path, text: &str) -> Result<(), PasswordsError> {
    match Passwords::parse(text) {
        Ok(_) => Ok(()),
        Err((line, reason)) => Err(PasswordsError::Line {
            path: path.to_owned(),
            line,
            reason,
        }),
    }
}

fn is_user(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

fn is_of(line: &str, name: &str) -> bool {
    let before = line.split_once(':');
    is_user(line) && before.is_some_and(|(of, _)| of == name)
}

impl fmt::Display for Listed {
    /// The name, the root and the access, for people and for `cut`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { root, read_only } = &self.grant;
        let access = if *read_only {
            "read-only"
        } else {
            "read-write"
        };
        match root {
            Some(root) => write!(f, "{}\t{}\t{access}", self.name, root.display()),
            None => write!(f, "{}\t(root of the server)\t{access}", self.name),
        }
    }
}

fn user_line(name: &str, hash: &str, grant: &Grant) -> Result<String, PasswordsError> {
    let mut line = format!("{name}:{hash}");
    if let Some(root) = &grant.root {
        let text = root.to_str().filter(|text| {
            text.starts_with('/') && !text.contains(':') && !text.contains(char::is_control)
        });
        let text = text.ok_or_else(|| PasswordsError::Root(root.clone()))?;
        line.push_str(&format!(
            ":{text}:{}",
            if grant.read_only { "ro" } else { "rw" }
        ));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::*;

    #[test]
    fn passwords_are_added_and_changed_and_other_lines_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        let added = set_password(&path, "ann", b"one", &Grant::default());
        assert_eq!(added.expect("made"), Change::Added);
        let grant = Grant {
            root: Some("/srv".into()),
            read_only: true,
        };
        set_password(&path, "bob", b"two", &grant).expect("added");
        let changed = set_password(&path, "ann", b"three", &Grant::default());
        assert_eq!(changed.expect("changed"), Change::Changed);
        let passwords = Passwords::read(&path).expect("valid");
        let mut memory = Memory::default();
        let mut check = |name: &str, password: &[u8]| passwords.check(name, password, &mut memory);
        assert_eq!(check("ann", b"one"), None);
        assert_eq!(check("ann", b"three"), Some(Grant::default()));
        assert_eq!(check("bob", b"two"), Some(grant));
        let names: Vec<_> = std::fs::read_dir(directory.path())
            .expect("listed")
            .collect();
        assert_eq!(names.len(), 1, "nothing else is left behind: {names:?}");
    }

    #[test]
    fn what_cannot_stand_in_the_file_is_refused() {
        let path = Path::new("/nonexistent/users");
        for name in ["", "a:b", "a b", "#a", "a\nb", &"a".repeat(65)] {
            let error = set_password(path, name, b"x", &Grant::default()).expect_err(name);
            assert!(matches!(error, PasswordsError::Name(_)), "{error}");
        }
        let empty = set_password(path, "ann", b"", &Grant::default());
        assert!(matches!(empty, Err(PasswordsError::Password(_))));
        let grant = Grant {
            root: Some("/a:b".into()),
            read_only: false,
        };
        let colon = set_password(path, "ann", b"x", &grant);
        assert!(matches!(colon, Err(PasswordsError::Root(_))));
    }

    #[test]
    fn a_changed_password_keeps_the_access_and_a_deleted_user_is_gone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        let guest = Grant {
            root: Some("/srv/guests".into()),
            read_only: true,
        };
        set_password(&path, "guest", b"one", &guest).expect("made");
        set_password(&path, "guest", b"two", &Grant::default()).expect("changed");
        set_password(&path, "ann", b"three", &Grant::default()).expect("added");
        let listed = list_users(&path).expect("valid");
        let lines: Vec<_> = listed.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "guest\t/srv/guests\tread-only",
                "ann\t(root of the server)\tread-write"
            ]
        );
        delete_user(&path, "guest").expect("there");
        assert_eq!(list_users(&path).expect("valid").len(), 1);
        let error = delete_user(&path, "guest").expect_err("gone").to_string();
        assert!(error.contains("no user 'guest'"), "{error}");
        assert_eq!(list_users(&path).expect("valid").len(), 1);
    }

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    let name = format!("user{number}");
                    set_password(path, &name, b"x", &Grant::default()).expect("added");
                });
            }
        });
        assert_eq!(list_users(&path).expect("valid").len(), 4);
    }

    #[test]
    fn the_mode_of_the_file_and_a_link_to_it_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let directory = tempfile::tempdir().expect("a directory");
        let [path, link] = ["users", "link"].map(|name| directory.path().join(name));
        set_password(&path, "ann", b"one", &Grant::default()).expect("made");
        let mode = || {
            std::fs::metadata(&path)
                .expect("there")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("ours");
        symlink(&path, &link).expect("linked");
        set_password(&link, "bob", b"two", &Grant::default()).expect("added");
        assert_eq!(mode(), 0o640);
        assert!(link.is_symlink());
        assert_eq!(list_users(&path).expect("valid").len(), 2);
    }
}
