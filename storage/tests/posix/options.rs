//! Options of a storage.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gridhaul_storage::{PosixOptions, PosixStorage, Storage as _, WriteMode};
use rustix::io::Errno;

use crate::{Fixture, errno, path, write_mode};

#[test]
fn new_files_and_directories_get_their_modes() {
    let fixture = Fixture::new();
    let options = PosixOptions {
        file_mode: 0o600,
        directory_mode: 0o2700,
        ..PosixOptions::default()
    };
    let storage = PosixStorage::open(fixture.directory.path(), options).unwrap();
    write_mode(&storage, path("f"), WriteMode::Keep, b"").unwrap();
    storage.make_directory(path("d")).unwrap();
    let mode = |name| {
        fs::metadata(fixture.real(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("f"), mode("d")), (0o600, 0o700));
    let options = PosixOptions {
        file_mode: 0o100_644,
        ..PosixOptions::default()
    };
    let opened = PosixStorage::open(fixture.directory.path(), options);
    assert_eq!(errno(opened), Some(Errno::INVAL));
}

#[test]
fn without_account_names_metadata_has_numbers_and_groups_go_by_number() {
    let fixture = Fixture::new();
    let options = PosixOptions {
        account_names: false,
        ..PosixOptions::default()
    };
    let storage = PosixStorage::open(fixture.directory.path(), options).unwrap();
    write_mode(&storage, path("f"), WriteMode::Keep, b"").unwrap();
    let facts = storage.stat(path("f")).unwrap();
    assert_eq!((facts.owner.name, facts.group.name), (None, None));
    let number = facts.group.id.to_string();
    storage.set_group(path("f"), &number).unwrap();
    let named = fixture.storage.stat(path("f")).unwrap().group.name;
    let by_name = storage.set_group(path("f"), &named.unwrap_or_default());
    assert_eq!(errno(by_name), Some(Errno::PERM));
}

#[test]
fn roots_that_are_none() {
    let fixture = Fixture::new();
    fs::write(fixture.real("f"), b"").unwrap();
    let open = |name| {
        errno(PosixStorage::open(
            &fixture.real(name),
            PosixOptions::default(),
        ))
    };
    assert_eq!(open("no"), Some(Errno::NOENT));
    assert_eq!(open("f"), Some(Errno::NOTDIR));
}
