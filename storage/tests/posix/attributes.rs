//! Metadata of files, and the calls that change it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::time::{Duration, UNIX_EPOCH};

use gridhaul_storage::{Access, CHECKSUM_ATTRIBUTE_BYTES, FileKind, PosixOptions, Storage as _};
use rustix::io::Errno;

use crate::{Fixture, content, entries, errno, is_superuser, open, path, write};

#[test]
fn facts_are_those_of_the_system() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"content").unwrap();
    fs::hard_link(fixture.real("f"), fixture.real("g")).unwrap();
    let facts = storage.stat(path("f")).unwrap();
    let real = fs::metadata(fixture.real("f")).unwrap();
    assert_eq!(facts.kind, FileKind::File);
    assert_eq!((facts.size, facts.links), (7, 2));
    assert_eq!(facts.mode, real.mode() & 0o7777);
    assert_eq!((facts.owner.id, facts.group.id), (real.uid(), real.gid()));
    assert_eq!((facts.device, facts.inode), (real.dev(), real.ino()));
    assert_eq!(facts.modified, real.modified().unwrap());
    assert_eq!(facts.link_target, None);
    if is_superuser() {
        assert_eq!(facts.owner.name.as_deref(), Some("root"));
    }
    let root = storage.stat(path("/")).unwrap();
    assert_eq!(
        root.inode,
        fs::metadata(fixture.directory.path()).unwrap().ino()
    );
}

#[test]
fn links_are_followed_and_shown() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"content").unwrap();
    storage.symlink(path("f"), path("link")).unwrap();
    storage.symlink(path("link"), path("second")).unwrap();
    storage
        .symlink(path("any //string"), path("dangling"))
        .unwrap();
    storage.symlink(path("loop"), path("loop")).unwrap();
    let facts = storage.stat(path("second")).unwrap();
    assert_eq!((facts.kind, facts.size), (FileKind::File, 7));
    assert_eq!(facts.link_target.as_deref(), Some(path("link")));
    let error = storage.stat(path("dangling")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "System error in stat: No such file or directory"
    );
    assert_eq!(errno(storage.stat(path("loop"))), Some(Errno::LOOP));
    assert_eq!(
        fs::read_link(fixture.real("dangling")).unwrap(),
        path("any //string")
    );
    assert_eq!(
        errno(storage.symlink(path("f"), path("link"))),
        Some(Errno::EXIST)
    );
}

#[test]
fn modes() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"").unwrap();
    symlink("f", fixture.real("link")).unwrap();
    // The mode of a file that its owner cannot open can be changed.
    for mode in [0o000, 0o640, 0o777] {
        storage.set_mode(path("link"), mode).unwrap();
        assert_eq!(storage.stat(path("f")).unwrap().mode, mode);
    }
    for mode in [0o10_000, 0o100_644, u32::MAX] {
        assert_eq!(errno(storage.set_mode(path("f"), mode)), Some(Errno::INVAL));
    }
    storage.set_mode(path("/"), 0o711).unwrap();
    assert_eq!(storage.stat(path("/")).unwrap().mode, 0o711);
}

#[test]
fn no_file_gets_set_user_id_set_group_id_or_sticky() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"").unwrap();
    symlink("f", fixture.real("link")).unwrap();
    storage.make_directory(path("d")).unwrap();
    storage.set_mode(path("f"), 0o700).unwrap();
    for mode in [0o4755, 0o2755, 0o1755, 0o6755, 0o7777, 0o4000] {
        for name in ["f", "link"] {
            let error = storage.set_mode(path(name), mode).unwrap_err();
            assert_eq!(error.errno, Errno::PERM, "{name} {mode:o}");
            let text = error.to_string();
            assert!(
                text.starts_with("System error in chmod: Operation not permitted: set-user-ID"),
                "{text}"
            );
        }
        assert_eq!(storage.stat(path("f")).unwrap().mode, 0o700, "{mode:o}");
    }
    // Sites use set-group-ID on directories, so that new files belong to the directory's group.
    for mode in [0o2775, 0o1777, 0o3770, 0o755] {
        storage.set_mode(path("d"), mode).unwrap();
        assert_eq!(storage.stat(path("d")).unwrap().mode, mode);
    }
    let refused = Some(Errno::PERM);
    assert_eq!(errno(storage.set_mode(path("d"), 0o4755)), refused);
}

#[test]
fn groups() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"").unwrap();
    let own = storage.stat(path("f")).unwrap().group;
    storage.set_group(path("f"), &own.id.to_string()).unwrap();
    if let Some(name) = own.name {
        storage.set_group(path("f"), &name).unwrap();
    }
    let error = storage.set_group(path("f"), "no such group").unwrap_err();
    assert_eq!(
        error.to_string(),
        "System error in chgrp: Operation not permitted"
    );
    let other = storage.set_group(path("f"), "54321");
    if is_superuser() {
        other.unwrap();
        let group = storage.stat(path("f")).unwrap().group;
        assert_eq!((group.id, group.name), (54321, None));
    } else {
        assert_eq!(errno(other), Some(Errno::PERM));
    }
}

#[test]
fn times() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"").unwrap();
    let accessed = fs::metadata(fixture.real("f")).unwrap().accessed().unwrap();
    for time in [
        UNIX_EPOCH,
        UNIX_EPOCH + Duration::new(1_577_930_645, 987_654_321),
        UNIX_EPOCH + Duration::from_secs(5_000_000_000),
        UNIX_EPOCH - Duration::from_secs(1),
        UNIX_EPOCH - Duration::new(1, 1),
    ] {
        storage.set_modified(path("f"), time).unwrap();
        assert_eq!(storage.stat(path("f")).unwrap().modified, time);
        let real = fs::metadata(fixture.real("f")).unwrap();
        assert_eq!(real.modified().unwrap(), time);
        assert_eq!(real.accessed().unwrap(), accessed);
    }
}

#[test]
fn rename_replaces_files() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("a"), b"a").unwrap();
    write(storage, path("b"), b"b").unwrap();
    storage.make_directory(path("d")).unwrap();
    storage.rename(path("a"), path("b")).unwrap();
    assert_eq!(content(&storage.open_read(path("b")).unwrap()), b"a");
    assert_eq!(
        errno(storage.rename(path("a"), path("b"))),
        Some(Errno::NOENT)
    );
    assert_eq!(
        errno(storage.rename(path("b"), path("d"))),
        Some(Errno::ISDIR)
    );
    assert_eq!(
        errno(storage.rename(path("d"), path("d/e"))),
        Some(Errno::INVAL)
    );
    assert_eq!(
        errno(storage.remove_directory(path("b"))),
        Some(Errno::NOTDIR)
    );
    assert_eq!(errno(storage.remove_file(path("d"))), Some(Errno::ISDIR));
}

#[test]
fn access_of_the_own_account() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let read_only = PosixOptions {
        read_only: true,
        ..PosixOptions::default()
    };
    let read_only = open(fixture.directory.path(), read_only).unwrap();
    let all = is_superuser();
    for mode in [0o000, 0o100, 0o200, 0o400, 0o500, 0o600, 0o700] {
        write(storage, path("f"), b"").unwrap();
        storage.make_directory(path("d")).unwrap();
        storage.set_mode(path("f"), mode).unwrap();
        storage.set_mode(path("d"), mode).unwrap();
        let expected = |write, directory| Access {
            read: all || mode & 0o400 != 0,
            write: write && (all || mode & 0o200 != 0),
            search: directory && (all || mode & 0o100 != 0),
        };
        for (name, directory) in [("f", false), ("d", true)] {
            let access = storage.stat(path(name)).unwrap().access;
            assert_eq!(access, expected(true, directory), "{name} {mode:o}");
            let access = read_only.stat(path(name)).unwrap().access;
            assert_eq!(access, expected(false, directory), "{name} {mode:o}");
            let listed = entries(storage, path("/")).unwrap();
            let entry = listed.iter().find(|entry| entry.name == *name).unwrap();
            assert_eq!(
                entry.metadata.access,
                expected(true, directory),
                "{name} {mode:o}"
            );
        }
        if !all {
            let read = storage.open_read(path("f"));
            assert_eq!(errno(read), (mode & 0o400 == 0).then_some(Errno::ACCESS));
        }
        storage.remove_tree(path("d"), &|| false).unwrap();
        storage.remove_file(path("f")).unwrap();
    }
}

#[test]
fn files_carry_an_attribute_until_it_is_removed() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"content").unwrap();
    let missing = storage.checksum_attribute(path("g"));
    assert_eq!(errno(missing), Some(Errno::NOENT));
    if errno(storage.set_checksum_attribute(path("f"), Some(b"one"))).is_some() {
        gridhaul_skip::skipped("no extended attributes where temporary files are");
        return;
    }
    symlink("f", fixture.real("link")).unwrap();
    let of_link = storage.checksum_attribute(path("link"));
    assert_eq!(of_link.unwrap().as_deref(), Some(&b"one"[..]));
    let longest = [b'x'; CHECKSUM_ATTRIBUTE_BYTES];
    for value in [&b""[..], &longest] {
        storage
            .set_checksum_attribute(path("f"), Some(value))
            .unwrap();
        let read = storage.checksum_attribute(path("f")).unwrap();
        assert_eq!(read.as_deref(), Some(value));
    }
    // A value that is too long is that of another program.
    let longer = [b'x'; CHECKSUM_ATTRIBUTE_BYTES + 1];
    storage
        .set_checksum_attribute(path("f"), Some(&longer))
        .unwrap();
    assert_eq!(storage.checksum_attribute(path("f")).unwrap(), None);
    for _ in 0..2 {
        storage.set_checksum_attribute(path("f"), None).unwrap();
        assert_eq!(storage.checksum_attribute(path("f")).unwrap(), None);
    }
}
