//! Adding users to the file, and changing their passwords.

use std::io::{self, Write};
use std::path::Path;

use argon2::{Argon2, PasswordHasher};

use super::{Grant, Passwords, PasswordsError, file_error, is_name};

/// Adds the user `name` to the file at `path`, or changes the user's password and `grant`. The file is replaced in one step.
/// A new file is readable for its owner only.
///
/// # Errors
///
/// When the file is wrong or cannot be written, or name, root or password cannot be used.
pub fn set_password(
    path: &Path,
    name: &str,
    password: &[u8],
    grant: &Grant,
) -> Result<(), PasswordsError> {
    if !is_name(name) {
        return Err(PasswordsError::Name(name.to_owned()));
    }
    if password.is_empty() {
        return Err(PasswordsError::Password("the password is empty"));
    }
    let line = user_line(name, password, grant)?;
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(file_error(path, error)),
    };
    Passwords::parse(&old).map_err(|(line, reason)| PasswordsError::Line {
        path: path.to_owned(),
        line,
        reason,
    })?;
    let mut new = String::new();
    let mut replaced = false;
    for old_line in old.lines() {
        let is_this = old_line
            .split_once(':')
            .is_some_and(|(old_name, _)| old_name == name);
        new.push_str(if is_this { &line } else { old_line });
        new.push('\n');
        replaced |= is_this;
    }
    if !replaced {
        new.push_str(&line);
        new.push('\n');
    }
    replace_file(path, new.as_bytes()).map_err(|error| file_error(path, error))
}

fn user_line(name: &str, password: &[u8], grant: &Grant) -> Result<String, PasswordsError> {
    let hash = Argon2::default()
        .hash_password(password)
        .map_err(|_| PasswordsError::Password("this password cannot be hashed"))?;
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

/// Replaces the file: a reader sees the old file or the new one.
fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

    let mut name = path
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_owned();
    name.push(format!(".new{}", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = (|| {
        if let Ok(old) = std::fs::metadata(path) {
            file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))?;
            // Only root can give a file to its owner; other processes keep their own files.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        // Cleans up as far as possible: the first error is the one to report.
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::*;

    #[test]
    fn passwords_are_added_and_changed_and_other_lines_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        set_password(&path, "ann", b"one", &Grant::default()).expect("made");
        let grant = Grant {
            root: Some("/srv".into()),
            read_only: true,
        };
        set_password(&path, "bob", b"two", &grant).expect("added");
        set_password(&path, "ann", b"three", &Grant::default()).expect("changed");
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
}
