//! Local accounts from the machine's account database.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use gridhaul_storage::{FileKind, Storage};
use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use rustix::io::Errno;

use crate::refusal::{Refusal, os_error};

/// An entry of the account database (passwd(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalAccount {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
}

impl LocalAccount {
    /// Looks an account up by name. May block on a directory service.
    pub(crate) fn find(name: &str) -> Result<Self, Refusal> {
        match User::from_name(name) {
            Ok(Some(user)) => Ok(user.into()),
            Ok(None) => Err(Refusal::Unknown(name.to_owned())),
            Err(error) => Err(refused(name, "the account database", error)),
        }
    }

    /// The account of this process, if it is in the database.
    pub(crate) fn own() -> Option<Self> {
        let user = User::from_uid(Uid::effective()).ok().flatten();
        user.map(Self::from)
    }

    /// Sets all user and group ids of this process, and its supplementary groups, to those of the account. This cannot be
    /// undone.
    pub(crate) fn assume(&self) -> Result<(), Refusal> {
        let refused = |what| move |error| refused(&self.name, what, error);
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let name =
            CString::new(self.name.as_str()).map_err(|_| Refusal::Unknown(self.name.clone()))?;
        let groups = getgrouplist(&name, gid).map_err(refused("getgrouplist"))?;
        setgroups(&groups).map_err(refused("setgroups"))?;
        setresgid(gid, gid, gid).map_err(refused("setresgid"))?;
        setresuid(uid, uid, uid).map_err(refused("setresuid"))?;
        let root = Uid::from_raw(0);
        if uid != root && setresuid(root, root, root).is_ok() {
            return Err(refused("setresuid")(nix::Error::EPERM));
        }
        Ok(())
    }

    /// Replaces `$HOME` and `$USER` in a root.
    pub(crate) fn expand(&self, root: &Path) -> PathBuf {
        let home = self.home.as_os_str().as_bytes();
        let expanded = replace(root.as_os_str().as_bytes(), b"$HOME", home);
        let expanded = replace(&expanded, b"$USER", self.name.as_bytes());
        PathBuf::from(OsString::from_vec(expanded))
    }

    /// The home directory as a path beneath `root`, if it lies there and can be searched; else `/`.
    pub(crate) fn home_beneath(&self, root: &Path, storage: &dyn Storage) -> PathBuf {
        let start = Path::new("/");
        // Either path may contain symbolic links, so the resolved paths are compared as well.
        let resolved = || {
            let home = self.home.canonicalize().ok()?;
            beneath(&root.canonicalize().ok()?, &home)
        };
        beneath(root, &self.home)
            .or_else(resolved)
            .filter(|home| {
                storage
                    .stat(home)
                    .is_ok_and(|facts| facts.kind == FileKind::Directory && facts.access.search)
            })
            .unwrap_or_else(|| start.to_owned())
    }
}

impl From<User> for LocalAccount {
    fn from(user: User) -> Self {
        Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir,
            shell: user.shell,
        }
    }
}

fn refused(account: &str, what: &str, error: nix::Error) -> Refusal {
    Refusal::Machine {
        account: account.to_owned(),
        what: what.to_owned(),
        reason: os_error(Errno::from_raw_os_error(error as i32)),
    }
}

/// An absolute path as a path beneath a root.
fn beneath(root: &Path, path: &Path) -> Option<PathBuf> {
    let inside = path.strip_prefix(root).ok()?;
    let plain = |part| matches!(part, Component::Normal(_));
    inside
        .components()
        .all(plain)
        .then(|| Path::new("/").join(inside))
}

fn replace(text: &[u8], word: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(word.len()).position(|part| part == word) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(by);
        rest = &rest[at + word.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use gridhaul_storage::{PosixOptions, PosixStorage};

    use super::*;

    fn alice(home: &Path) -> LocalAccount {
        LocalAccount {
            name: "alice".to_owned(),
            uid: 1000,
            gid: 1000,
            home: home.to_owned(),
            shell: "/bin/sh".into(),
        }
    }

    #[test]
    fn accounts_are_found_by_name() {
        let root = LocalAccount::find("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        for wrong in ["no-such-account", "", "0"] {
            let refusal = LocalAccount::find(wrong).unwrap_err();
            assert_eq!(refusal, Refusal::Unknown(wrong.to_owned()));
        }
    }

    #[test]
    fn a_root_may_be_the_home_directory_or_be_named_after_the_account() {
        let alice = alice(Path::new("/home/a"));
        for (root, expanded) in [
            ("/srv", "/srv"),
            ("$HOME", "/home/a"),
            ("$HOME/grid", "/home/a/grid"),
            ("/pool/$USER", "/pool/alice"),
            ("/$USER/$USER-2", "/alice/alice-2"),
            ("$", "$"),
        ] {
            assert_eq!(alice.expand(Path::new(root)), Path::new(expanded), "{root}");
        }
    }

    #[test]
    fn a_session_begins_at_home_where_that_lies_beneath_the_root() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("users/alice");
        std::fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::symlink("users", place.path().join("link")).unwrap();
        let begins = |root: &Path, home: &Path| {
            let storage = PosixStorage::open(root, PosixOptions::default()).unwrap();
            alice(home).home_beneath(root, &storage)
        };
        let link = place.path().join("link");
        assert_eq!(begins(place.path(), &home), Path::new("/users/alice"));
        assert_eq!(begins(&link, &home), Path::new("/alice"));
        assert_eq!(begins(&home, &home), Path::new("/"));
        assert_eq!(begins(&home, place.path()), Path::new("/"));
        let missing = place.path().join("users/bob");
        assert_eq!(begins(place.path(), &missing), Path::new("/"));
        let upwards = place.path().join("users/../users/alice");
        assert_eq!(begins(place.path(), &upwards), Path::new("/users/alice"));
    }
}
