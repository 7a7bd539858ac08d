//! Files with a second descriptor that bypasses the page cache.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

use gridhaul_storage::{OpenedFile, Storage as _, WriteMode};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;

use crate::{Fixture, content, errno, path, write};

/// Whether the file system of the tests has direct I/O; prints a message if not.
fn has_direct(fixture: &Fixture) -> bool {
    let probe = fixture.real("probe");
    fs::write(&probe, "").unwrap();
    let opened = rustix::fs::open(
        &probe,
        OFlags::RDONLY | OFlags::DIRECT,
        rustix::fs::Mode::empty(),
    );
    fs::remove_file(&probe).unwrap();
    if opened.is_err() {
        gridhaul_skip::skipped("the file system of temporary files has no direct I/O");
    }
    opened.is_ok()
}

fn is_direct(descriptor: impl AsFd) -> bool {
    fcntl_getfl(descriptor).unwrap().contains(OFlags::DIRECT)
}

fn identity(descriptor: impl AsFd) -> (u64, u64) {
    let facts = fstat(descriptor).unwrap();
    (facts.st_dev, facts.st_ino)
}

fn expect_twice(file: &OpenedFile) {
    let direct = file.direct().expect("the file system has direct I/O");
    assert_eq!((is_direct(file), is_direct(direct)), (false, true));
    assert_eq!(identity(file), identity(direct));
}

#[test]
fn a_file_is_opened_twice_only_if_that_is_wanted_and_it_is_long() {
    let fixture = Fixture::new();
    if !has_direct(&fixture) {
        return;
    }
    let storage = &fixture.storage;
    expect_twice(
        &storage
            .open_write_direct(path("f"), WriteMode::Keep)
            .unwrap(),
    );
    write(storage, path("f"), b"content").unwrap();
    let file = storage.open_read_direct(path("f")).unwrap();
    assert!(file.direct().is_none(), "it is short");
    let long = vec![7; 64 << 10];
    write(storage, path("f"), &long).unwrap();
    let file = storage.open_read_direct(path("f")).unwrap();
    expect_twice(&file);
    assert_eq!((file.size_at_open(), content(&file)), (64 << 10, long));
    let file = storage
        .open_write_direct(path("f"), WriteMode::Truncate)
        .unwrap();
    expect_twice(&file);
    assert_eq!(file.size().unwrap(), 0);
    file.close().unwrap();
    assert!(storage.open_read(path("f")).unwrap().direct().is_none());
}

/// A file system without direct I/O, mounted until this is dropped.
struct Ramfs(PathBuf);

impl Ramfs {
    fn mount(fixture: &Fixture) -> Option<Self> {
        let at = fixture.real("ramfs");
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ramfs", "ramfs"]).arg(&at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at))
    }
}

impl Drop for Ramfs {
    fn drop(&mut self) {
        // A lazy unmount: files on it may still be open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn what_cannot_be_opened_twice_is_opened_once() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let missing = storage.open_read_direct(path("missing"));
    assert_eq!(errno(missing), Some(Errno::NOENT));
    let directory = storage.open_write_direct(path("/"), WriteMode::Keep);
    assert_eq!(errno(directory), Some(Errno::ISDIR));
    let Some(_mounted) = Ramfs::mount(&fixture) else {
        gridhaul_skip::skipped("no ramfs can be mounted, which has no direct I/O");
        return;
    };
    write(storage, path("ramfs/f"), b"content").unwrap();
    let file = storage.open_read_direct(path("ramfs/f")).unwrap();
    assert!(file.direct().is_none());
    assert_eq!(content(&file), b"content");
}
