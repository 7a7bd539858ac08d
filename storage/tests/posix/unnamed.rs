//! Files without a name until they are complete.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, UNIX_EPOCH};

use gridhaul_storage::{OpenedFile, PosixOptions, PosixStorage, Storage as _, UnnamedFile};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Fixture, errno, path};

/// The file system of the tests may have no such files.
fn is_supported(fixture: &Fixture) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY;
    rustix::fs::open(fixture.directory.path(), flags, Mode::RUSR).is_ok()
}

fn open(fixture: &Fixture, name: &str) -> Option<(OpenedFile, Box<dyn UnnamedFile>)> {
    let opened = fixture.storage.open_unnamed(path(name));
    assert_eq!(opened.is_some(), is_supported(fixture), "{name}");
    opened
}

fn write(file: OpenedFile, content: &[u8]) {
    assert_eq!(
        rustix::io::pwrite(&file, content, 0).unwrap(),
        content.len()
    );
    file.close().unwrap();
}

fn names(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_file_has_no_name_before_it_is_complete() {
    let fixture = Fixture::new();
    let Some((file, unnamed)) = open(&fixture, "/f") else {
        return;
    };
    assert_eq!(file.size_at_open(), 0);
    write(file, b"content");
    assert!(names(&fixture).is_empty());
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    unnamed.set_modified(time).unwrap();
    unnamed.give_name().unwrap();
    assert_eq!(names(&fixture), ["f"]);
    let found = fs::metadata(fixture.real("f")).unwrap();
    assert_eq!(found.modified().unwrap(), time);
    assert_eq!(fs::read(fixture.real("f")).unwrap(), b"content");
    // As any new file.
    fs::write(fixture.real("other"), "").unwrap();
    let other = fs::metadata(fixture.real("other")).unwrap();
    assert_eq!(
        found.permissions().mode() & 0o777,
        other.permissions().mode() & 0o644
    );
}

#[test]
fn a_file_that_gets_no_name_leaves_nothing() {
    let fixture = Fixture::new();
    let Some((file, unnamed)) = open(&fixture, "f") else {
        return;
    };
    write(file, b"content");
    drop(unnamed);
    assert!(names(&fixture).is_empty());
}

#[test]
fn a_file_that_appears_meanwhile_stays() {
    let fixture = Fixture::new();
    let appear: [fn(&Fixture); 3] = [
        |fixture| fs::write(fixture.real("f"), "another").unwrap(),
        |fixture| symlink("nowhere", fixture.real("f")).unwrap(),
        |fixture| fs::create_dir(fixture.real("f")).unwrap(),
    ];
    for appear in appear {
        let Some((file, unnamed)) = open(&fixture, "f") else {
            return;
        };
        write(file, b"content");
        appear(&fixture);
        let before = fs::symlink_metadata(fixture.real("f")).unwrap();
        assert_eq!(errno(unnamed.give_name()), Some(Errno::EXIST));
        let after = fs::symlink_metadata(fixture.real("f")).unwrap();
        assert_eq!(after.file_type(), before.file_type());
        assert_eq!(after.len(), before.len());
        assert_eq!(names(&fixture), ["f"]);
        // Not where a file is already, or a link, even if it leads to nothing.
        assert!(fixture.storage.open_unnamed(path("f")).is_none());
        let real = fixture.real("f");
        fs::remove_file(&real)
            .or_else(|_| fs::remove_dir(&real))
            .unwrap();
    }
}

#[test]
fn the_file_gets_its_name_in_the_directory_that_it_was_made_in() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.real("d")).unwrap();
    let Some((file, unnamed)) = open(&fixture, "d/f") else {
        return;
    };
    write(file, b"content");
    fs::rename(fixture.real("d"), fixture.real("moved")).unwrap();
    fs::create_dir(fixture.real("d")).unwrap();
    unnamed.give_name().unwrap();
    assert!(fixture.real("moved/f").exists() && !fixture.real("d/f").exists());
    let Some((_, unnamed)) = open(&fixture, "d/g") else {
        return;
    };
    fs::remove_dir(fixture.real("d")).unwrap();
    assert_eq!(errno(unnamed.give_name()), Some(Errno::NOENT));
}

/// It may be that of an upload that runs.
#[test]
fn an_unfinished_upload_of_the_file_is_not_touched() {
    let fixture = Fixture::new();
    for unfinished in [".f.gridhaul-part", ".f.gridhaul-blocks"] {
        let Some((_, unnamed)) = open(&fixture, "f") else {
            return;
        };
        fs::write(fixture.real(unfinished), "part").unwrap();
        assert!(fixture.storage.open_unnamed(path("f")).is_none());
        unnamed.give_name().unwrap();
        assert_eq!(names(&fixture), [unfinished, "f"]);
        for name in [unfinished, "f"] {
            fs::remove_file(fixture.real(name)).unwrap();
        }
    }
    fs::write(fixture.real(".g.gridhaul-part"), "part").unwrap();
    assert!(open(&fixture, "f").is_some() || !is_supported(&fixture));
}

#[test]
fn files_with_names_have_the_errors() {
    let fixture = Fixture::new();
    for name in ["missing/f", "..", "", "/", "f/", "bell\u{7}"] {
        assert!(fixture.storage.open_unnamed(path(name)).is_none(), "{name}");
    }
    let options = PosixOptions {
        read_only: true,
        ..PosixOptions::default()
    };
    let storage = PosixStorage::open(fixture.directory.path(), options).unwrap();
    assert!(storage.open_unnamed(path("f")).is_none());
    assert!(names(&fixture).is_empty());
}
