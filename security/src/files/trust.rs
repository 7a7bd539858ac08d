//! Trust directories.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::FileError;
use super::maps::{failed, read};
use super::watched::{FileStamp, Watched};
use crate::trust::{TrustBuilder, TrustFile, TrustFileKind, TrustProblem, TrustStore};

/// More files are an error. The directories of the field have some thousand.
const MAX_FILES: usize = 50_000;

/// Larger files are left out. Some authorities have revoked a million certificates.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// A trust directory that is read again when it changes, so that it also notices when an expired
/// revocation list was fetched anew.
#[derive(Debug)]
pub struct TrustDirectory {
    path: PathBuf,
    content: Watched<Content, Files>,
}

#[derive(Debug)]
struct Content {
    store: Arc<TrustStore>,
    problems: Vec<TrustProblem>,
}

/// The files, and what was read from them: one that has not changed need not be parsed again, and a link
/// to one not at all.
#[derive(Debug, Default)]
struct Files {
    entries: Vec<Entry>,
    parsed: HashMap<Key, Arc<Result<TrustFile, String>>>,
}

type Key = (TrustFileKind, FileStamp);

/// A file that means something.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    kind: TrustFileKind,
    /// What it was when it was read; `None` is a link to nothing.
    stamp: Option<FileStamp>,
}

impl TrustDirectory {
    /// Reads a directory.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let entries = list(path).map_err(failed(path))?;
        let (files, content) = read_all(path, entries, &Files::default());
        Ok(Self {
            path: path.to_owned(),
            content: Watched::new(files, content),
        })
    }

    /// What it holds now. Looks at the directory at most once a second; a directory that has become
    /// unreadable leaves what was there. May block.
    pub fn current(&self) -> Arc<TrustStore> {
        Arc::clone(&self.look(Instant::now()).store)
    }

    /// Why the directory could not be read again, if it could not; what it held before is used.
    pub fn failure(&self) -> Option<Arc<FileError>> {
        self.content.failure()
    }

    /// The files that could not be used.
    pub fn problems(&self) -> Vec<TrustProblem> {
        self.look(Instant::now()).problems.clone()
    }

    fn look(&self, now: Instant) -> Arc<Content> {
        self.content.current(now, |old| {
            let entries = list(&self.path).map_err(failed(&self.path))?;
            Ok((entries != old.entries).then(|| read_all(&self.path, entries, old)))
        })
    }
}

/// The files that mean something, in the order of their names. Links are followed: hashed names are
/// links to plain ones.
fn list(path: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let Some(kind) = TrustFileKind::of(&name) else {
            continue;
        };
        if entries.len() == MAX_FILES {
            let words = format!("there are more than {MAX_FILES} files in it");
            return Err(io::Error::other(words));
        }
        let metadata = fs::metadata(entry.path());
        let stamp = metadata.as_ref().ok().map(FileStamp::from);
        entries.push(Entry { name, kind, stamp });
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn read_all(path: &Path, entries: Vec<Entry>, old: &Files) -> (Files, Content) {
    let mut builder = TrustBuilder::default();
    let mut parsed = HashMap::new();
    for Entry { name, kind, stamp } in &entries {
        let Some(stamp) = stamp else {
            builder.refuse(name, "it is a link to a file that is not there".to_owned());
            continue;
        };
        let key = (*kind, *stamp);
        let known = parsed.get(&key).or_else(|| old.parsed.get(&key));
        let file = known.map_or_else(|| Arc::new(parse(&path.join(name), *kind)), Arc::clone);
        match &*file {
            Ok(file) => builder.add_parsed(*kind, file),
            Err(reason) => builder.refuse(name, reason.clone()),
        }
        parsed.insert(key, file);
    }
    let (store, problems) = builder.build();
    let content = Content {
        store: Arc::new(store),
        problems,
    };
    (Files { entries, parsed }, content)
}

fn parse(path: &Path, kind: TrustFileKind) -> Result<TrustFile, String> {
    match read(path, MAX_FILE_BYTES) {
        Ok((_, content)) => TrustFile::parse(kind, &content),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;
    use crate::test_pki::{Issued, Pki, USER, now};
    use crate::trust::ChainError;

    struct World {
        pki: Pki,
        root: Issued,
        user: Issued,
        directory: tempfile::TempDir,
    }

    impl World {
        /// A directory as the IGTF distributes it: hashed names are links to plain ones.
        fn new() -> Self {
            let pki = Pki::new();
            let root = pki.root("/DC=test/CN=Root");
            let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
            let directory = tempfile::tempdir().expect("a directory");
            let world = Self {
                pki,
                root,
                user,
                directory,
            };
            world.write("root.pem", &world.root.pem());
            let policy = "access_id_CA X509 '/DC=test/CN=Root' pos_rights globus CA:sign";
            world.write("root.signing_policy", policy.as_bytes());
            world.write("root.info", b"alias = root");
            world.link("root.pem", "5ca1ab1e.0");
            world.link("root.signing_policy", "5ca1ab1e.signing_policy");
            world
        }

        fn write(&self, name: &str, content: &[u8]) {
            // As fetch-crl does it, so that nobody reads half a file.
            let new = self.directory.path().join("new");
            fs::write(&new, content).expect("written");
            fs::rename(&new, self.directory.path().join(name)).expect("renamed");
        }

        fn link(&self, to: &str, name: &str) {
            symlink(to, self.directory.path().join(name)).expect("linked");
        }

        fn open(&self) -> TrustDirectory {
            TrustDirectory::open(self.directory.path()).expect("readable")
        }

        /// Validates the user when it is time to look again for the `count`th time.
        fn validate_later(&self, trust: &TrustDirectory, count: u64) -> Result<(), ChainError> {
            let later = Instant::now() + Duration::from_secs(count * 2);
            let store = Arc::clone(&trust.look(later).store);
            let chain = [self.user.certificate.clone()];
            store.validate(&chain, now()).map(drop)
        }
    }

    #[test]
    fn a_directory_with_links_is_read() {
        let world = World::new();
        let trust = world.open();
        assert_eq!(trust.problems(), []);
        assert_eq!(trust.current().authorities().count(), 1);
        assert_eq!(world.validate_later(&trust, 0), Ok(()));
    }

    #[test]
    fn a_change_is_noticed() {
        let world = World::new();
        let trust = world.open();
        let list = world.pki.revocation_list(&world.root, &[&world.user]);
        world.write("root.r0", &list);
        world.link("root.r0", "5ca1ab1e.r0");
        let error = world.validate_later(&trust, 1).expect_err("revoked");
        assert!(matches!(error, ChainError::Revoked { .. }), "{error}");
        let list = world.pki.revocation_list(&world.root, &[]);
        world.write("root.r0", &list);
        assert_eq!(world.validate_later(&trust, 2), Ok(()));
    }

    #[test]
    fn only_what_has_changed_is_parsed_again() {
        let world = World::new();
        world.write("root.r0", &world.pki.revocation_list(&world.root, &[]));
        world.link("root.r0", "5ca1ab1e.r0");
        let list = |files: &Files, name: &str| {
            let mut entries = files.entries.iter();
            let entry = entries
                .find(|entry| entry.name == name)
                .expect("it is there");
            let stamp = entry.stamp.expect("it has one");
            Arc::clone(&files.parsed[&(entry.kind, stamp)])
        };
        let entries = || super::list(world.directory.path()).expect("readable");
        let path = world.directory.path();
        let (first, _) = read_all(path, entries(), &Files::default());
        assert!(Arc::ptr_eq(
            &list(&first, "root.r0"),
            &list(&first, "5ca1ab1e.r0")
        ));
        world.write("other.pem", &world.user.pem());
        let (second, content) = read_all(path, entries(), &first);
        assert!(Arc::ptr_eq(
            &list(&first, "root.r0"),
            &list(&second, "root.r0")
        ));
        assert_eq!(content.store.authorities().count(), 2);
    }

    #[test]
    fn an_expired_list_is_read_again() {
        let world = World::new();
        let past = [
            "-crl_lastupdate",
            "20200101000000Z",
            "-crl_nextupdate",
            "20200201000000Z",
        ];
        let list = world.pki.revocation_list_of(&world.root, &[], &past);
        world.write("5ca1ab1e.r0", &list);
        let trust = world.open();
        let error = world.validate_later(&trust, 1).expect_err("too old");
        assert!(matches!(error, ChainError::RevocationListExpired { .. }));
        world.write("5ca1ab1e.r0", &world.pki.revocation_list(&world.root, &[]));
        assert_eq!(world.validate_later(&trust, 2), Ok(()));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let world = World::new();
        world.write("broken.pem", b"words");
        world.link("missing.pem", "deadbeef.0");
        let trust = world.open();
        let files: Vec<_> = trust.problems().into_iter().map(|one| one.file).collect();
        assert_eq!(files, ["broken.pem", "deadbeef.0"]);
        assert_eq!(world.validate_later(&trust, 1), Ok(()));
        fs::remove_file(world.directory.path().join("broken.pem")).expect("it is there");
        world.write("missing.pem", &world.root.pem());
        assert_eq!(world.validate_later(&trust, 2), Ok(()));
        assert_eq!(trust.problems(), []);
    }

    #[test]
    fn a_directory_that_vanishes_leaves_what_was_there() {
        let world = World::new();
        let trust = world.open();
        let aside = world.pki.path().join("aside");
        fs::rename(world.directory.path(), &aside).expect("renamed");
        assert_eq!(world.validate_later(&trust, 1), Ok(()));
        let failure = trust.failure().expect("it is gone");
        assert!(failure.to_string().contains("No such file"), "{failure}");
        fs::rename(&aside, world.directory.path()).expect("renamed back");
        assert_eq!(world.validate_later(&trust, 2), Ok(()));
        assert!(trust.failure().is_none());
        assert!(TrustDirectory::open(&aside).is_err());
    }
}
