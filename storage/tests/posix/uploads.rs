//! Files of unfinished uploads: only the account's own, and the rename to the final name.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;

use gridhaul_storage::{OpenedFile, Storage as _, UploadOpening};
use rustix::io::Errno;

use crate::{Fixture, errno, is_superuser, path};

const PART: &str = ".f.gridhaul-part";

/// An upload to a new name.
fn shared(create: bool) -> UploadOpening {
    UploadOpening {
        create,
        ..UploadOpening::default()
    }
}

/// An upload that will replace a file.
fn private(create: bool) -> UploadOpening {
    UploadOpening {
        private: true,
        ..shared(create)
    }
}

fn mode(file: &std::path::Path) -> u32 {
    fs::metadata(file).unwrap().mode() & 0o777
}

fn set_mode(file: &std::path::Path, mode: u32) {
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// Replaces `f` with an upload.
fn replace(
    fixture: &Fixture,
    opening: UploadOpening,
) -> Result<(), gridhaul_storage::StorageError> {
    let file = fixture.storage.open_upload(path(PART), opening)?;
    let identity = file.identity()?;
    fixture
        .storage
        .complete_upload(path(PART), path("f"), identity, false)
}

fn add(file: &OpenedFile, content: &[u8]) {
    let end = file.size().unwrap();
    assert_eq!(
        rustix::io::pwrite(file, content, end).unwrap(),
        content.len()
    );
}

#[test]
fn an_upload_is_found_again_and_gets_its_final_name() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let open = |create| storage.open_upload(path(PART), shared(create));
    assert_eq!(errno(open(false)), Some(Errno::NOENT));
    add(&open(true).unwrap(), b"begin");
    fs::write(fixture.real("f"), "old").unwrap();
    for durable in [false, true] {
        let file = open(true).unwrap();
        let before = file.size_at_open();
        assert_eq!(before, if durable { 0 } else { 5 });
        add(&file, b"end");
        let identity = file.identity().unwrap();
        storage
            .complete_upload(path(PART), path("f"), identity, durable)
            .unwrap();
        assert!(!fixture.real(PART).exists());
        assert_eq!(
            fs::read(fixture.real("f")).unwrap().len() as u64,
            before + 3
        );
    }
}

#[test]
fn another_file_at_the_temporary_name_does_not_get_the_final_one() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let file = storage.open_upload(path(PART), shared(true)).unwrap();
    let identity = file.identity().unwrap();
    let complete = || storage.complete_upload(path(PART), path("f"), identity, false);
    fs::rename(fixture.real(PART), fixture.real("moved")).unwrap();
    assert_eq!(errno(complete()), Some(Errno::NOENT));
    fs::write(fixture.real(PART), "another").unwrap();
    assert_eq!(errno(complete()), Some(Errno::STALE));
    assert!(!fixture.real("f").exists());
}

/// What another account could prepare in a directory in which it may write.
#[test]
fn links_and_files_of_others_are_neither_used_nor_followed() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    fs::write(fixture.real("victim"), "victim").unwrap();
    let real = fixture.real(PART);
    let mut preparations: Vec<Box<dyn Fn()>> = vec![
        Box::new(|| symlink("victim", &real).unwrap()),
        Box::new(|| symlink("nowhere", &real).unwrap()),
        Box::new(|| fs::hard_link(fixture.real("victim"), &real).unwrap()),
        Box::new(|| {
            let made = Command::new("mkfifo").arg(&real).status().unwrap();
            assert!(made.success());
        }),
    ];
    if is_superuser() {
        preparations.push(Box::new(|| {
            fs::write(&real, "foreign").unwrap();
            std::os::unix::fs::chown(&real, Some(65_534), Some(65_534)).unwrap();
        }));
    }
    for prepare in preparations {
        prepare();
        assert_eq!(
            errno(storage.open_upload(path(PART), shared(false))),
            Some(Errno::NOENT)
        );
        let file = storage.open_upload(path(PART), shared(true)).unwrap();
        add(&file, b"content");
        let found = fs::symlink_metadata(&real).unwrap();
        assert!(found.is_file() && found.nlink() == 1);
        assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(fs::read(&real).unwrap(), b"content");
        assert_eq!(fs::read(fixture.real("victim")).unwrap(), b"victim");
        fs::remove_file(&real).unwrap();
    }
}

#[test]
fn a_directory_at_either_name_is_an_error() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    fs::create_dir(fixture.real("f")).unwrap();
    let file = storage.open_upload(path(PART), shared(true)).unwrap();
    let identity = file.identity().unwrap();
    let completed = storage.complete_upload(path(PART), path("f"), identity, false);
    assert_eq!(errno(completed), Some(Errno::ISDIR));
    fs::remove_file(fixture.real(PART)).unwrap();
    fs::create_dir(fixture.real(PART)).unwrap();
    let opened = storage.open_upload(path(PART), shared(true));
    assert_eq!(errno(opened), Some(Errno::ISDIR));
}

#[test]
fn uploads_exclude_each_other_by_a_lock() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let open = || storage.open_upload(path(PART), shared(true)).unwrap();
    let (first, second) = (open(), open());
    assert!(first.try_lock());
    assert!(!second.try_lock());
    let duplicate = first.duplicate().unwrap();
    drop(first);
    assert!(!second.try_lock(), "the duplicate keeps it");
    drop(duplicate);
    assert!(second.try_lock());
}

#[test]
fn several_writers_of_one_upload_share_a_lock() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let open = || storage.open_upload(path(PART), shared(true)).unwrap();
    let (lead, member, other) = (open(), open(), open());
    assert!(lead.try_lock());
    assert!(!member.try_lock_shared());
    assert!(lead.try_lock_shared(), "in place of the exclusive one");
    assert!(member.try_lock_shared());
    assert!(!other.try_lock());
    drop(member);
    assert!(!other.try_lock());
    drop(lead);
    assert!(other.try_lock());
}

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";

/// The attribute of a list: a named user and the mask have `named`, the owner 6, and the owning group and others nothing.
fn access_list(named: u16) -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let entries = [
        (0x01_u16, 6_u16, NO_ID),
        (0x02, named, 54_321),
        (0x04, 0, NO_ID),
        (0x10, named, NO_ID),
        (0x20, 0, NO_ID),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

fn get_list(file: &std::path::Path) -> Option<Vec<u8>> {
    let mut value = [0; 1024];
    let length = rustix::fs::getxattr(file, ACCESS_LIST, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

fn set_list(file: &std::path::Path, name: &str, list: &[u8]) -> bool {
    let set = rustix::fs::setxattr(file, name, list, rustix::fs::XattrFlags::empty());
    if set == Err(Errno::OPNOTSUPP) {
        gridhaul_skip::skipped("this file system has no access control lists");
    }
    set.is_ok()
}

#[test]
fn an_upload_gets_the_rights_of_the_file_that_it_replaces() {
    let fixture = Fixture::new();
    let old = fixture.real("f");
    fs::write(&old, "old").unwrap();
    // The second kind began before there was an old file.
    for opening in [private(true), shared(true)] {
        for wanted in [0o600, 0o640, 0o664] {
            set_mode(&old, wanted);
            let before = fs::metadata(&old).unwrap().ino();
            replace(&fixture, opening).unwrap();
            assert_ne!(fs::metadata(&old).unwrap().ino(), before);
            assert_eq!(mode(&old), wanted);
            assert_eq!(get_list(&old), None);
        }
    }
}

#[test]
fn an_upload_that_will_replace_a_file_grants_nothing_to_others_before() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let part = fixture.real(PART);
    drop(storage.open_upload(path(PART), shared(true)).unwrap());
    assert_ne!(mode(&part) & 0o077, 0);
    // Another account may have it open.
    let descriptor = fs::File::open(&part).unwrap();
    assert_eq!(
        errno(storage.open_upload(path(PART), private(false))),
        Some(Errno::NOENT)
    );
    let file = storage.open_upload(path(PART), private(true)).unwrap();
    assert_eq!(mode(&part), 0o600);
    add(&file, b"secret");
    assert_eq!(descriptor.metadata().unwrap().len(), 0);
    // A restart continues it.
    let file = storage.open_upload(path(PART), private(false)).unwrap();
    assert_eq!(file.size_at_open(), 6);
    fs::remove_file(&part).unwrap();
    if set_list(fixture.directory.path(), DEFAULT_LIST, &access_list(6)) {
        drop(storage.open_upload(path(PART), private(true)).unwrap());
        assert_eq!(mode(&part), 0o600, "the mask excludes the named user");
    }
}

#[test]
fn an_upload_gets_the_access_control_list_of_the_file_that_it_replaces() {
    let fixture = Fixture::new();
    let old = fixture.real("f");
    fs::write(&old, "old").unwrap();
    let list = access_list(6);
    if !set_list(&old, ACCESS_LIST, &list) {
        return;
    }
    replace(&fixture, private(true)).unwrap();
    assert_eq!(
        get_list(&old),
        Some(list),
        "also the owning group, without rights"
    );
    // A list that the directory gives to new files does not widen the rights.
    fs::remove_file(&old).unwrap();
    fs::write(&old, "old").unwrap();
    set_mode(&old, 0o640);
    assert!(set_list(
        fixture.directory.path(),
        DEFAULT_LIST,
        &access_list(6)
    ));
    replace(&fixture, private(true)).unwrap();
    assert_eq!(get_list(&old), None);
    assert_eq!(mode(&old), 0o640);
}
