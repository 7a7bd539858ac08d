//! Random calls, made by `PosixStorage` in one directory and by the standard library in another. The operating system is
//! the model: results, error numbers and the final content must agree.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridhaul_storage::{FileKind, PosixOptions, Storage, StorageError, WriteMode};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::{content, entries, open, snapshot, write_mode};

#[derive(Debug, Clone)]
enum Operation {
    Read(String),
    Write(String, WriteMode, Vec<u8>),
    Stat(String),
    List(String),
    MakeDirectory(String),
    RemoveFile(String),
    RemoveDirectory(String),
    RemoveTree(String),
    Rename(String, String),
    SetMode(String, u32),
    SetModified(String, u32),
    Symlink(String, String),
    Truncate(String, u16),
}

#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Content(Vec<u8>),
    Facts(FileKind, u64, u32, u64, SystemTime, Option<PathBuf>),
    Entries(BTreeMap<OsString, FileKind>),
}

/// Paths of few names, so that calls refer to the same files; `..` only after a name, so that the model stays inside.
fn paths() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let step = prop_oneof![
        12 => name().prop_map(str::to_owned),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        1 => (name(), name()).prop_map(|(first, last)| format!("{first}/../{last}")),
        1 => name().prop_map(|first| format!("{first}/..")),
    ];
    let slash = prop_oneof![9 => Just(""), 1 => Just("/")];
    (name(), prop::collection::vec(step, 0..3), slash).prop_map(|(first, steps, slash)| {
        let mut path = first.to_owned();
        for step in steps {
            path.push('/');
            path.push_str(&step);
        }
        path + slash
    })
}

fn plain_paths() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn operations() -> impl Strategy<Value = Operation> {
    use Operation as O;
    let modes = prop::sample::select(vec![0o700, 0o755, 0o777, 0o1770, 0o4755, 0o2755]);
    let write_modes = prop::sample::select(vec![WriteMode::Truncate, WriteMode::Keep]);
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        2 => paths().prop_map(O::Read),
        4 => (paths(), write_modes, bytes).prop_map(|(path, mode, bytes)| O::Write(path, mode, bytes)),
        2 => paths().prop_map(O::Stat),
        2 => paths().prop_map(O::List),
        6 => paths().prop_map(O::MakeDirectory),
        1 => paths().prop_map(O::RemoveFile),
        1 => paths().prop_map(O::RemoveDirectory),
        1 => plain_paths().prop_map(O::RemoveTree),
        3 => (paths(), paths()).prop_map(|(from, to)| O::Rename(from, to)),
        1 => (paths(), modes).prop_map(|(path, mode)| O::SetMode(path, mode)),
        1 => (paths(), any::<u32>()).prop_map(|(path, time)| O::SetModified(path, time)),
        4 => (paths(), paths()).prop_map(|(target, link)| O::Symlink(target, link)),
        1 => (paths(), 0..40_u16).prop_map(|(path, length)| O::Truncate(path, length)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn calls_do_what_the_operating_system_does(
        operations in prop::collection::vec(operations(), 1..60),
    ) {
        let ours = TempDir::new().unwrap();
        let theirs = TempDir::new().unwrap();
        let storage = open(ours.path(), PosixOptions::default()).unwrap();
        for operation in operations {
            let alike = |errno| alike(&operation, errno);
            let answer = by_storage(&storage, &operation).map_err(|error| alike(error.errno));
            let expected = by_system(theirs.path(), &operation)
                .map_err(|error| alike(Errno::from_io_error(&error).unwrap()));
            prop_assert_eq!(answer, expected, "{:?}", operation);
        }
        prop_assert_eq!(snapshot(ours.path()), snapshot(theirs.path()));
    }
}

/// If the target of a link ends with a slash, the system refuses to open it for writing before it resolves the target
/// (`EISDIR`). A storage resolves it first, so its error may differ.
fn alike(operation: &Operation, errno: Errno) -> Errno {
    match (operation, errno) {
        (Operation::Write(..), Errno::NOTDIR | Errno::LOOP) => Errno::ISDIR,
        (_, errno) => errno,
    }
}

fn by_storage(storage: &dyn Storage, operation: &Operation) -> Result<Answer, StorageError> {
    // Paths may begin with a slash or not.
    let absolute = |path: &String| PathBuf::from(format!("/{path}"));
    match operation {
        Operation::Read(path) => {
            let file = storage.open_read(path.as_ref())?;
            return Ok(Answer::Content(content(&file)));
        }
        Operation::Write(path, mode, bytes) => {
            write_mode(storage, &absolute(path), *mode, bytes)?;
        }
        Operation::Stat(path) => {
            let facts = storage.stat(path.as_ref())?;
            return Ok(Answer::Facts(
                facts.kind,
                facts.size,
                facts.mode,
                facts.links,
                settled(facts.modified),
                facts.link_target,
            ));
        }
        Operation::List(path) => {
            let entries = entries(storage, &absolute(path))?;
            let kinds = entries
                .into_iter()
                .map(|entry| (entry.name, entry.metadata.kind));
            return Ok(Answer::Entries(kinds.collect()));
        }
        Operation::MakeDirectory(path) => storage.make_directory(path.as_ref())?,
        Operation::RemoveFile(path) => storage.remove_file(&absolute(path))?,
        Operation::RemoveDirectory(path) => storage.remove_directory(path.as_ref())?,
        Operation::RemoveTree(path) => storage.remove_tree(path.as_ref(), &|| false)?,
        Operation::Rename(from, to) => storage.rename(from.as_ref(), &absolute(to))?,
        Operation::SetMode(path, mode) => storage.set_mode(path.as_ref(), *mode)?,
        Operation::SetModified(path, time) => {
            storage.set_modified(
                path.as_ref(),
                UNIX_EPOCH + Duration::from_secs((*time).into()),
            )?;
        }
        Operation::Symlink(target, link) => storage.symlink(target.as_ref(), link.as_ref())?,
        Operation::Truncate(path, length) => storage.truncate(path.as_ref(), (*length).into())?,
    }
    Ok(Answer::Done)
}

fn by_system(root: &Path, operation: &Operation) -> io::Result<Answer> {
    match operation {
        Operation::Read(path) => return fs::read(root.join(path)).map(Answer::Content),
        Operation::Write(path, mode, bytes) => OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(*mode == WriteMode::Truncate)
            .mode(0o644)
            .open(root.join(path))?
            .write_all(bytes)?,
        Operation::Stat(path) => {
            let path = root.join(path);
            let facts = fs::metadata(&path)?;
            let target = fs::symlink_metadata(&path)?
                .is_symlink()
                .then(|| fs::read_link(&path).unwrap());
            return Ok(Answer::Facts(
                kind(facts.file_type()),
                facts.len(),
                facts.permissions().mode() & 0o7777,
                std::os::unix::fs::MetadataExt::nlink(&facts),
                settled(facts.modified()?),
                target,
            ));
        }
        Operation::List(path) => {
            let mut kinds = BTreeMap::new();
            for entry in fs::read_dir(root.join(path))? {
                let entry = entry?;
                let followed = fs::metadata(entry.path()).map(|facts| facts.file_type());
                let file_type = followed.or_else(|_| entry.file_type())?;
                kinds.insert(entry.file_name(), kind(file_type));
            }
            return Ok(Answer::Entries(kinds));
        }
        Operation::MakeDirectory(path) => DirBuilder::new().mode(0o755).create(root.join(path))?,
        Operation::RemoveFile(path) => fs::remove_file(root.join(path))?,
        Operation::RemoveDirectory(path) => fs::remove_dir(root.join(path))?,
        Operation::RemoveTree(path) => {
            let path = root.join(path);
            if fs::symlink_metadata(&path)?.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        Operation::Rename(from, to) => fs::rename(root.join(from), root.join(to))?,
        Operation::SetMode(path, mode) => {
            // Bits that no client may set, although the system permits them.
            let allowed = if fs::metadata(root.join(path))?.is_dir() {
                0o3777
            } else {
                0o777
            };
            if mode & !allowed != 0 {
                return Err(Errno::PERM.into());
            }
            fs::set_permissions(root.join(path), Permissions::from_mode(*mode))?;
        }
        Operation::SetModified(path, seconds) => {
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: rustix::fs::UTIME_OMIT,
                },
                last_modification: Timespec {
                    tv_sec: (*seconds).into(),
                    tv_nsec: 0,
                },
            };
            rustix::fs::utimensat(CWD, root.join(path), &times, AtFlags::empty())?;
        }
        Operation::Symlink(target, link) => std::os::unix::fs::symlink(target, root.join(link))?,
        Operation::Truncate(path, length) => OpenOptions::new()
            .write(true)
            .open(root.join(path))?
            .set_len((*length).into())?,
    }
    Ok(Answer::Done)
}

/// Times that were set must agree; times of recent changes may differ a little.
fn settled(time: SystemTime) -> SystemTime {
    match time.elapsed() {
        Ok(age) if age < Duration::from_secs(600) => UNIX_EPOCH,
        _ => time,
    }
}

fn kind(file_type: fs::FileType) -> FileKind {
    if file_type.is_dir() {
        FileKind::Directory
    } else if file_type.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::File
    }
}
