//! Read-only storages.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::time::UNIX_EPOCH;

use gridhaul_storage::{
    FileIdentity, PosixOptions, Storage as _, StorageError, UploadOpening, WriteMode,
};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::{content, entries, open, path, snapshot};

#[test]
fn every_changing_call_is_refused() {
    let directory = TempDir::new().unwrap();
    fs::create_dir_all(directory.path().join("d/empty")).unwrap();
    fs::write(directory.path().join("f"), b"content").unwrap();
    symlink("f", directory.path().join("link")).unwrap();
    let options = PosixOptions {
        read_only: true,
        ..PosixOptions::default()
    };
    let storage = open(directory.path(), options).unwrap();
    let before = snapshot(directory.path());
    let facts = fs::metadata(directory.path().join("f")).unwrap();
    let identity = FileIdentity {
        device: facts.dev(),
        inode: facts.ino(),
    };
    let answers: [(&str, Result<(), StorageError>); 18] = [
        (
            "open",
            storage.open_write(path("f"), WriteMode::Truncate).map(drop),
        ),
        (
            "open",
            storage.open_write(path("f"), WriteMode::Keep).map(drop),
        ),
        (
            "open",
            storage.open_write(path("new"), WriteMode::Keep).map(drop),
        ),
        (
            "open",
            storage
                .open_upload(path("f"), UploadOpening::default())
                .map(drop),
        ),
        (
            "rename",
            storage.complete_upload(path("f"), path("new"), identity, false),
        ),
        ("mkdir", storage.make_directory(path("new"))),
        ("unlink", storage.remove_file(path("f"))),
        ("rmdir", storage.remove_directory(path("d/empty"))),
        ("unlink", storage.remove_tree(path("d"), &|| false)),
        ("rename", storage.rename(path("f"), path("new"))),
        ("chmod", storage.set_mode(path("f"), 0o777)),
        ("chgrp", storage.set_group(path("f"), "0")),
        ("utime", storage.set_modified(path("f"), UNIX_EPOCH)),
        ("symlink", storage.symlink(path("f"), path("new"))),
        ("truncate", storage.truncate(path("f"), 0)),
        ("truncate", storage.truncate(path("no/such"), 0)),
        (
            "setxattr",
            storage.set_checksum_attribute(path("f"), Some(b"x")),
        ),
        ("setxattr", storage.set_checksum_attribute(path("f"), None)),
    ];
    for (call, answer) in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.call, error.errno), (call, Errno::ACCESS));
        assert_eq!(
            error.to_string(),
            format!(
                "System error in {call}: Permission denied: this server gives this user read access only"
            )
        );
    }
    assert_eq!(snapshot(directory.path()), before);
    assert_eq!(
        content(&storage.open_read(path("link")).unwrap()),
        b"content"
    );
    assert_eq!(entries(&storage, path("/")).unwrap().len(), 3);
}
