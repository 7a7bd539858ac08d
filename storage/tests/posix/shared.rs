//! Shared accounts: the links and permission bits that their users may not set.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gridhaul_storage::{PosixOptions, PosixStorage, Rights, Storage as _};
use rustix::io::Errno;

use crate::{Fixture, errno, path, write};

fn shared(fixture: &Fixture) -> PosixStorage {
    let options = PosixOptions::default();
    assert_eq!(
        options.rights,
        Rights::Shared,
        "the careful one is the default"
    );
    PosixStorage::open(fixture.directory.path(), options).unwrap()
}

#[test]
fn links_lead_down_only() {
    let fixture = Fixture::new();
    let storage = shared(&fixture);
    storage.make_directory(path("d")).unwrap();
    for (target, link) in [
        ("d", "a"),
        ("./d/file", "b"),
        ("...", "d/c"),
        ("nowhere", "e"),
    ] {
        storage.symlink(path(target), path(link)).unwrap();
    }
    for target in [
        "/etc/passwd",
        "/d",
        "//",
        "..",
        "../x",
        "d/../../etc",
        "d/..",
        "./../x",
    ] {
        let error = storage.symlink(path(target), path("d/link")).unwrap_err();
        assert_eq!(error.errno, Errno::PERM, "{target}");
        assert!(error.to_string().contains("must be relative"), "{error}");
        // The owner of a local account could do the same without the server.
        fixture.storage.symlink(path(target), path("l")).unwrap();
        fixture.storage.remove_file(path("l")).unwrap();
    }
    assert!(fs::symlink_metadata(fixture.real("d/link")).is_err());
}

#[test]
fn special_bits_are_the_administrators() {
    let fixture = Fixture::new();
    let storage = shared(&fixture);
    let real_mode = |name| {
        fs::metadata(fixture.real(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    write(&storage, path("f"), b"").unwrap();
    storage.make_directory(path("d")).unwrap();
    let refused = Some(Errno::PERM);
    for special in 1..=7 {
        let mode = special << 9 | 0o755;
        assert_eq!(
            errno(storage.set_mode(path("f"), mode)),
            refused,
            "{mode:o}"
        );
        assert_eq!(
            errno(storage.set_mode(path("d"), mode)),
            refused,
            "{mode:o}"
        );
    }
    fs::set_permissions(fixture.real("d"), fs::Permissions::from_mode(0o3775)).unwrap();
    storage.set_mode(path("d"), 0o750).unwrap();
    assert_eq!(real_mode("d"), 0o3750);
    storage.set_mode(path("d"), 0o3770).unwrap();
    assert_eq!(real_mode("d"), 0o3770);
}

#[test]
fn what_is_made_has_no_special_bits_whatever_it_was_opened_with() {
    let fixture = Fixture::new();
    for (file_mode, directory_mode) in [(0o4755, 0o755), (0o2644, 0o755), (0o644, 0o4755)] {
        let options = PosixOptions {
            file_mode,
            directory_mode,
            ..PosixOptions::default()
        };
        let opened = PosixStorage::open(fixture.directory.path(), options);
        assert_eq!(errno(opened), Some(Errno::PERM), "{file_mode:o}");
    }
}
