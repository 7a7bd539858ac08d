//! Directories and files that only root and this account can change.
//!
//! Private keys are written here by root. Another account must not be able to lead the program to another place, or to put a
//! file there before it: so no part of the path is a symbolic link, and all directories are private.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use gridhaul_accounts::{is_private, lock_directory};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// A place where no key can be written.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A directory cannot be opened or made.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// A part of the path is a symbolic link.
    #[error("{} is a symbolic link or no directory: name the directory itself", path.display())]
    Link {
        /// The part.
        path: PathBuf,
    },
    /// Another account can change what is there.
    #[error(
        "{} can be changed by other accounts: choose a directory that belongs to root or to this account, and that only its owner can write to",
        path.display()
    )]
    Open {
        /// The directory.
        path: PathBuf,
    },
    /// The path has no name of a file.
    #[error("{} is no path of a file", path.display())]
    NoName {
        /// The path.
        path: PathBuf,
    },
    /// There is a file, and it is not to be replaced.
    #[error("{} exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// A directory that only root and this account can change. It is locked while this exists.
#[derive(Debug)]
pub(super) struct Private {
    directory: File,
    path: PathBuf,
}

impl Private {
    /// Opens a directory; makes it if it does not exist, and those above it.
    pub(super) fn open(path: &Path) -> Result<Self, PlaceError> {
        let path = std::path::absolute(path).map_err(failed(path))?;
        let opened = open_all(&path)?;
        let found = opened.metadata().map_err(failed(&path))?;
        // The exception for directories like /tmp, where others can make files, is for those above.
        if found.mode() & 0o022 != 0 {
            return Err(PlaceError::Open { path });
        }
        lock_directory(&opened).map_err(failed(&path))?;
        Ok(Self {
            directory: opened,
            path,
        })
    }

    /// Opens the directory of a file. Returns the name of the file too.
    pub(super) fn of_file(file: &Path) -> Result<(Self, OsString), PlaceError> {
        let path = || file.to_owned();
        let name = file
            .file_name()
            .ok_or_else(|| PlaceError::NoName { path: path() })?;
        let absolute = std::path::absolute(file).map_err(failed(file))?;
        let parent = absolute
            .parent()
            .ok_or_else(|| PlaceError::NoName { path: path() })?;
        Ok((Self::open(parent)?, name.to_owned()))
    }

    /// The path of a file here.
    pub(super) fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Whether there is a file, or anything else, with this name.
    pub(super) fn has(&self, name: impl AsRef<OsStr>) -> Result<bool, PlaceError> {
        match statat(&self.directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(&self.path_of(name))(errno.into())),
        }
    }

    /// Opens a file to read it, which must not be a link.
    pub(super) fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.directory, name.as_ref(), flags, Mode::empty())?.into())
    }

    /// Begins to write a file with mode 0600, and takes the space for it, so that a full disk shows now.
    pub(super) fn begin(&self, name: impl AsRef<OsStr>) -> Result<Writing<'_>, PlaceError> {
        /// More than an identity has.
        const SPACE: usize = 16 * 1024;

        let name = name.as_ref().to_owned();
        let mut new = OsString::from(".");
        new.push(&name);
        new.push(format!(".new{}", std::process::id()));
        // Of a process that was killed and had the same id: no other account can have made it.
        let _ = unlinkat(&self.directory, &new, AtFlags::empty());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = openat(&self.directory, &new, flags, mode);
        let opened = opened.map_err(|errno| failed(&self.path_of(&name))(errno.into()))?;
        let mut writing = Writing {
            place: self,
            file: opened.into(),
            name,
            new,
        };
        let taken = writing.file.write_all(&vec![0; SPACE]);
        let taken = taken.and_then(|()| writing.file.sync_all());
        taken.map_err(failed(&self.path_of(&writing.name)))?;
        Ok(writing)
    }
}

/// A file that is not at its place yet. It is removed if it is not finished.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    place: &'a Private,
    file: File,
    name: OsString,
    new: OsString,
}

impl Writing<'_> {
    /// Writes the content to disk, and puts the file in its place in one step; `replaces` another one, if there is any.
    pub(super) fn finish(mut self, content: &[u8], replaces: bool) -> Result<(), PlaceError> {
        let path = self.place.path_of(&self.name);
        self.write(content).map_err(failed(&path))?;
        let directory = &self.place.directory;
        let placed = match replaces {
            true => renameat(directory, &self.new, directory, &self.name),
            false => linkat(
                directory,
                &self.new,
                directory,
                &self.name,
                AtFlags::empty(),
            ),
        };
        match placed {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(PlaceError::Exists { path }),
            Err(errno) => return Err(failed(&path)(errno.into())),
        }
        // Not all file systems can write a directory to disk.
        let _ = directory.sync_all();
        Ok(())
    }

    fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(content)?;
        self.file.set_len(content.len() as u64)?;
        self.file.sync_all()
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // After a rename it is not there.
        let _ = unlinkat(&self.place.directory, &self.new, AtFlags::empty());
    }
}

/// Opens each directory of an absolute path from the root on.
fn open_all(path: &Path) -> Result<File, PlaceError> {
    let mut reached = PathBuf::from("/");
    let root = open_directory(None, reached.as_os_str());
    let mut above = root.map_err(|errno| failed(&reached)(errno.into()))?;
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::Prefix(_) => {
                return Err(PlaceError::NoName {
                    path: path.to_owned(),
                });
            }
        };
        reached.push(name);
        above = match enter(&above, name) {
            Ok(opened) => opened,
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(PlaceError::Link { path: reached }),
            Err(errno) => return Err(failed(&reached)(errno.into())),
        };
        if !is_private(&above).map_err(failed(&reached))? {
            return Err(PlaceError::Open { path: reached });
        }
    }
    Ok(above)
}

/// Opens a directory in another one, or makes it.
fn enter(above: &File, name: &OsStr) -> Result<File, Errno> {
    match open_directory(Some(above), name) {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    match mkdirat(above, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_directory(Some(above), name),
        Err(errno) => Err(errno),
    }
}

fn open_directory(above: Option<&File>, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match above {
        Some(above) => openat(above, name, flags, Mode::empty()),
        None => openat(CWD, name, flags, Mode::empty()),
    };
    opened.map(File::from)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> PlaceError + use<> {
    let path = path.to_owned();
    move |error| PlaceError::Io {
        path: path.clone(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn open_to(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    }

    #[test]
    fn a_file_is_for_its_owner_and_appears_whole() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("etc/authority");
        let place = Private::open(&path).expect("made");
        let writing = place.begin("file").expect("begun");
        assert!(!place.has("file").expect("looked"));
        writing.finish(b"first", false).expect("written");
        let found = fs::metadata(path.join("file")).expect("there");
        assert_eq!(found.mode() & 0o7777, 0o600);
        assert_eq!(fs::read(path.join("file")).expect("read"), b"first");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o700);
        let again = place.begin("file").expect("begun");
        let error = again.finish(b"second", false).expect_err("there is one");
        assert!(matches!(error, PlaceError::Exists { .. }), "{error}");
        assert_eq!(fs::read(path.join("file")).expect("read"), b"first");
        let again = place.begin("file").expect("begun");
        again.finish(b"third", true).expect("replaced");
        assert_eq!(fs::read(path.join("file")).expect("read"), b"third");
        drop(place.begin("file").expect("begun"));
        let left: Vec<_> = fs::read_dir(&path).expect("listed").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn no_link_and_no_open_directory_leads_to_another_place() {
        let above = tempfile::tempdir().expect("a directory");
        let above = above.path().canonicalize().expect("there");
        let (target, link) = (above.join("target"), above.join("link"));
        fs::create_dir(&target).expect("made");
        symlink(&target, &link).expect("made");
        for path in [link.clone(), link.join("below")] {
            let error = Private::open(&path).expect_err("a link").to_string();
            assert!(error.contains("symbolic link"), "{error}");
        }
        for mode in [0o770, 0o707, 0o1777] {
            open_to(&target, mode);
            let error = Private::open(&target).expect_err("open").to_string();
            assert!(error.contains("other accounts"), "{mode:o}: {error}");
        }
        // Beneath one that is sticky nothing of ours can be replaced; beneath another one it can.
        Private::open(&target.join("own")).expect("a directory like /tmp");
        open_to(&target, 0o777);
        let error = Private::open(&target.join("own"))
            .expect_err("open")
            .to_string();
        assert!(error.contains("target can be changed"), "{error}");
        open_to(&target, 0o700);
        let (place, name) = Private::of_file(&target.join("file")).expect("private");
        symlink("/etc/passwd", target.join("file")).expect("made");
        assert!(place.has(&name).expect("looked"));
        place.read(&name).expect_err("a link");
        let error = place.begin(&name).expect("begun").finish(b"x", false);
        assert!(matches!(error, Err(PlaceError::Exists { .. })), "{error:?}");
        let writing = place.begin(&name).expect("begun");
        writing.finish(b"x", true).expect("the link is replaced");
        assert!(
            fs::symlink_metadata(target.join("file"))
                .expect("there")
                .is_file()
        );
        Private::open(&above.join("a/../b")).expect_err("not a plain path");
    }

    #[test]
    fn a_directory_of_another_account_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let above = tempfile::tempdir().expect("a directory");
        let planted = above.path().join("planted");
        fs::create_dir(&planted).expect("made");
        std::os::unix::fs::chown(&planted, Some(65_534), Some(65_534)).expect("root may");
        let error = Private::open(&planted).expect_err("of another account");
        assert!(matches!(error, PlaceError::Open { .. }), "{error}");
    }
}
