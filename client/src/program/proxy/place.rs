//! Proxy files. They are in directories where all users can make files, so that neither links nor files of others may take
//! their place.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::program::place::PlaceError;

/// More than any proxy: a longer file is another one.
const MAX_BYTES: u64 = 1 << 20;

const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Writes a file that only the user can read. It is complete before it has its name.
///
/// # Errors
///
/// When the directory is open to other users, or has another user's file, or no file, with this name.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), PlaceError> {
    let failed = |error| PlaceError::Io {
        path: path.to_owned(),
        error,
    };
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let own = rustix::process::geteuid().as_raw();
    let about = fs::metadata(directory).map_err(failed)?;
    refused(path, reason_of_directory(&about))?;
    match fs::symlink_metadata(path) {
        Ok(about) => refused(path, reason(&about, own))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    // Made with O_EXCL; the name is another file's until all is written.
    let mut file = tempfile::Builder::new()
        .prefix(".x509up-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)
        .map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    // The umask may have taken permissions of the owner.
    file.as_file()
        .set_permissions(Permissions::from_mode(0o600))
        .map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Whether a file is a regular one of the user.
///
/// # Errors
///
/// When it is missing, a link, no file, or that of another user.
pub(super) fn check_own(path: &Path) -> Result<(), PlaceError> {
    let about = fs::symlink_metadata(path).map_err(|error| PlaceError::Io {
        path: path.to_owned(),
        error,
    })?;
    refused(path, reason(&about, rustix::process::geteuid().as_raw()))
}

/// Overwrites and removes a file of the user.
///
/// # Errors
///
/// When it is missing, a link, no file, or that of another user.
pub(super) fn destroy(path: &Path) -> Result<(), PlaceError> {
    let failed = |error| PlaceError::Io {
        path: path.to_owned(),
        error,
    };
    let own = rustix::process::geteuid().as_raw();
    // What opening a device or a pipe does, depends on its kind.
    check_own(path)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let mut file = File::from(opened.map_err(|error| failed(error.into()))?);
    let about = file.metadata().map_err(failed)?;
    refused(path, reason(&about, own))?;
    refused(path, reason_to_keep(&about))?;
    let zeros = vec![0; usize::try_from(about.len()).unwrap_or_default()];
    file.write_all(&zeros).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::remove_file(path).map_err(failed)
}

fn refused(path: &Path, reason: Option<&'static str>) -> Result<(), PlaceError> {
    match reason {
        Some(reason) => Err(PlaceError::Refused {
            path: path.to_owned(),
            reason,
        }),
        None => Ok(()),
    }
}

/// Why a file may be neither replaced nor removed.
fn reason(about: &Metadata, own: u32) -> Option<&'static str> {
    if about.is_symlink() {
        Some("it is a link, which another user may have made: remove it, or name another file")
    } else if !about.is_file() {
        Some("it is no regular file: name another one")
    } else if about.uid() != own {
        Some("it belongs to another user: name another file")
    } else {
        None
    }
}

/// Why the content of a file is not overwritten.
fn reason_to_keep(about: &Metadata) -> Option<&'static str> {
    if about.nlink() > 1 {
        Some("it has another name, too, whose content would be lost: remove it with rm")
    } else if about.len() > MAX_BYTES {
        Some("it is too long for a proxy: remove it with rm")
    } else {
        None
    }
}

fn reason_of_directory(about: &Metadata) -> Option<&'static str> {
    let mode = about.mode();
    let is_open = mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0;
    let owners = [0, rustix::process::geteuid().as_raw()];
    let is_foreign = !owners.contains(&about.uid());
    (is_open || is_foreign).then_some(
        "other users can replace files of its directory: name a file in a directory of your own",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_of_another_user_is_not_replaced() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("file");
        fs::write(&file, "").expect("written");
        let about = fs::symlink_metadata(&file).expect("there");
        assert_eq!(reason(&about, about.uid()), None);
        let reason = reason(&about, about.uid() + 1).expect("refused");
        assert!(reason.contains("another user"), "{reason}");
    }

    #[test]
    fn a_replaced_file_is_private_and_leaves_no_other() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("proxy");
        for content in ["first, and longer", "second"] {
            replace(&file, content.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("there"), content);
            let mode = fs::metadata(&file).expect("there").mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(fs::read_dir(place.path()).expect("there").count(), 1);
        }
        destroy(&file).expect("removed");
        assert!(!file.exists());
    }

    #[test]
    fn links_and_other_names_keep_their_content() {
        let place = tempfile::tempdir().expect("a directory");
        let [file, link, name] = ["file", "link", "name"].map(|name| place.path().join(name));
        fs::write(&file, "content").expect("written");
        symlink(&file, &link).expect("made");
        for refused in [replace(&link, b"x"), destroy(&link)] {
            let error = refused.expect_err("a link").to_string();
            assert!(error.contains("it is a link"), "{error}");
        }
        fs::hard_link(&file, &name).expect("made");
        let error = destroy(&name).expect_err("two names").to_string();
        assert!(error.contains("another name"), "{error}");
        for refused in [replace(place.path(), b"x"), destroy(place.path())] {
            let error = refused.expect_err("a directory").to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).expect("there"), "content");
    }

    #[test]
    fn directories_that_all_users_write_to_are_refused_unless_sticky() {
        let place = tempfile::tempdir().expect("a directory");
        let set = |mode| {
            let mode = Permissions::from_mode(mode);
            fs::set_permissions(place.path(), mode).expect("our directory");
        };
        let file = place.path().join("proxy");
        set(0o1777);
        replace(&file, b"x").expect("as in /tmp");
        set(0o777);
        let error = replace(&file, b"x").expect_err("open").to_string();
        assert!(error.contains("other users can replace"), "{error}");
    }
}
