//! Unusual names, and special names in the last component of a path.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gridhaul_storage::{Storage as _, StorageError, WriteMode};
use rustix::io::Errno;

use crate::{Fixture, content, entries, errno, path, write, write_mode};

#[test]
fn names_are_bytes() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let longest = "n".repeat(255);
    let names: [&[u8]; 9] = [
        b"tab\tin it",
        b"-rf",
        b"~",
        b" ",
        b"*",
        b"\xff\xfe not UTF-8",
        "gr\u{fc}\u{df}e".as_bytes(),
        b"...",
        longest.as_bytes(),
    ];
    for name in names {
        let path = Path::new(OsStr::from_bytes(name));
        write(storage, path, name).unwrap();
        assert_eq!(content(&storage.open_read(path).unwrap()), name);
        storage.rename(path, Path::new("elsewhere")).unwrap();
        storage.rename(Path::new("elsewhere"), path).unwrap();
        assert_eq!(fs::read(fixture.directory.path().join(path)).unwrap(), name);
    }
    let mut listed: Vec<_> = entries(storage, path("/"))
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let mut expected = names
        .map(|name| OsStr::from_bytes(name).to_owned())
        .to_vec();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    for name in names {
        storage
            .remove_file(Path::new(OsStr::from_bytes(name)))
            .unwrap();
    }
}

/// Clients split listings into lines at some of these, and terminals interpret others.
const CONTROL: [&str; 8] = [
    "a\nb",
    "a\rb",
    "a\r\nb",
    "\u{1b}[2Jb",
    "\u{1}b",
    "b\u{7f}",
    "a\u{85}b",
    "a\u{2028}b",
];

#[test]
fn names_with_control_characters_are_not_made() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"content").unwrap();
    let refused = |result: Result<(), StorageError>, call: &str| {
        let text = result.unwrap_err().to_string();
        let words = format!("System error in {call}: Invalid name: it has control characters");
        assert!(text.starts_with(&words), "{text}");
    };
    for name in CONTROL.map(path) {
        refused(write(storage, name, b""), "open");
        refused(write_mode(storage, name, WriteMode::Keep, b""), "open");
        refused(storage.make_directory(name), "mkdir");
        refused(storage.make_directory(&name.join("")), "mkdir");
        refused(storage.rename(path("f"), name), "rename");
        refused(storage.symlink(path("f"), name), "symlink");
        refused(storage.symlink(name, path("link")), "symlink");
        // Nor is it made through a dangling link.
        symlink(name, fixture.real("dangling")).unwrap();
        refused(write(storage, path("dangling"), b""), "open");
        fs::remove_file(fixture.real("dangling")).unwrap();
    }
    let left: Vec<_> = entries(storage, path("/")).unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn names_with_control_characters_that_exist_can_be_used_and_mended() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    for name in CONTROL {
        fs::write(fixture.real(name), "old").unwrap();
        write(storage, path(name), b"new").unwrap();
        assert_eq!(content(&storage.open_read(path(name)).unwrap()), b"new");
        storage.rename(path(name), path("mended")).unwrap();
        fs::create_dir(fixture.real(name)).unwrap();
        write(storage, &path(name).join("inside"), b"").unwrap();
        storage.remove_tree(path(name), &|| false).unwrap();
    }
}

#[test]
fn a_file_is_made_where_links_lead() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    storage.make_directory(path("d")).unwrap();
    symlink("d/second", fixture.real("first")).unwrap();
    symlink("/third", fixture.real("d/second")).unwrap();
    symlink("d/../new", fixture.real("third")).unwrap();
    write(storage, path("./first"), b"content").unwrap();
    assert_eq!(fs::read(fixture.real("new")).unwrap(), b"content");
    symlink("round", fixture.real("round")).unwrap();
    assert_eq!(errno(write(storage, path("round"), b"")), Some(Errno::LOOP));
    symlink("no/new", fixture.real("nowhere")).unwrap();
    let missing = errno(write(storage, path("nowhere"), b""));
    assert_eq!(missing, Some(Errno::NOENT));
}

#[test]
fn impossible_names_are_refused() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let too_long = PathBuf::from("n".repeat(256));
    assert_eq!(
        errno(write(storage, &too_long, b"")),
        Some(Errno::NAMETOOLONG)
    );
    assert_eq!(
        errno(storage.make_directory(&too_long)),
        Some(Errno::NAMETOOLONG)
    );
    let far_too_long = PathBuf::from("n/".repeat(4096));
    assert_eq!(errno(storage.stat(&far_too_long)), Some(Errno::NAMETOOLONG));
    assert_eq!(
        errno(storage.make_directory(&far_too_long)),
        Some(Errno::NAMETOOLONG)
    );
    let nul = path("a\0b");
    assert_eq!(errno(storage.stat(nul)), Some(Errno::INVAL));
    assert_eq!(errno(storage.make_directory(nul)), Some(Errno::ILSEQ));
    assert_eq!(
        errno(storage.remove_tree(nul, &|| false)),
        Some(Errno::INVAL)
    );
    assert_eq!(
        errno(storage.symlink(nul, path("link"))),
        Some(Errno::ILSEQ)
    );
}

#[test]
fn the_root_and_dots_in_the_last_place() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    storage.make_directory(path("d")).unwrap();
    storage.make_directory(path("d/e")).unwrap();
    storage.make_directory(path("other")).unwrap();
    let cases = [
        // path, mkdir, unlink, rmdir, remove tree, rename
        (
            "/",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::BUSY,
            Errno::BUSY,
            Errno::BUSY,
        ),
        (
            "//",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::BUSY,
            Errno::BUSY,
            Errno::BUSY,
        ),
        (
            ".",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::INVAL,
            Errno::INVAL,
            Errno::BUSY,
        ),
        (
            "..",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::NOTEMPTY,
            Errno::NOTEMPTY,
            Errno::BUSY,
        ),
        (
            "/..",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::NOTEMPTY,
            Errno::NOTEMPTY,
            Errno::BUSY,
        ),
        (
            "d/e/..",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::NOTEMPTY,
            Errno::NOTEMPTY,
            Errno::BUSY,
        ),
        (
            "d/e/../",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::NOTEMPTY,
            Errno::NOTEMPTY,
            Errno::BUSY,
        ),
        (
            "d/.",
            Errno::EXIST,
            Errno::ISDIR,
            Errno::INVAL,
            Errno::INVAL,
            Errno::BUSY,
        ),
        (
            "",
            Errno::NOENT,
            Errno::NOENT,
            Errno::NOENT,
            Errno::NOENT,
            Errno::NOENT,
        ),
        (
            "no/..",
            Errno::NOENT,
            Errno::NOENT,
            Errno::NOENT,
            Errno::NOENT,
            Errno::NOENT,
        ),
    ];
    for (name, mkdir, unlink, rmdir, tree, rename) in cases {
        let last = path(name);
        assert_eq!(
            errno(storage.make_directory(last)),
            Some(mkdir),
            "mkdir {name:?}"
        );
        assert_eq!(
            errno(storage.remove_file(last)),
            Some(unlink),
            "unlink {name:?}"
        );
        assert_eq!(
            errno(storage.remove_directory(last)),
            Some(rmdir),
            "rmdir {name:?}"
        );
        assert_eq!(
            errno(storage.remove_tree(last, &|| false)),
            Some(tree),
            "tree {name:?}"
        );
        assert_eq!(
            errno(storage.rename(last, path("x"))),
            Some(rename),
            "rename {name:?}"
        );
        assert_eq!(
            errno(storage.rename(path("other"), last)),
            Some(rename),
            "onto {name:?}"
        );
        assert_eq!(
            errno(storage.symlink(path("x"), last)),
            Some(mkdir),
            "symlink {name:?}"
        );
    }
    let error = storage.make_directory(path("/")).unwrap_err();
    assert_eq!(error.to_string(), "System error in mkdir: File exists");
    assert!(fixture.real("d/e").is_dir());
    assert!(fixture.real("other").is_dir());
}

#[test]
fn slashes_at_the_end_want_a_directory() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    storage.make_directory(path("a/")).unwrap();
    storage.make_directory(path("/a//b//")).unwrap();
    storage.rename(path("a/b/"), path("a/c/")).unwrap();
    write(storage, path("f"), b"").unwrap();
    symlink("a", fixture.real("link")).unwrap();
    for wrong in ["f/", "link/"] {
        assert_eq!(
            errno(storage.remove_file(path(wrong))),
            Some(Errno::NOTDIR),
            "{wrong}"
        );
        assert_eq!(
            errno(storage.remove_directory(path(wrong))),
            Some(Errno::NOTDIR),
            "{wrong}"
        );
        assert_eq!(
            errno(storage.remove_tree(path(wrong), &|| false)),
            Some(Errno::NOTDIR)
        );
        assert_eq!(
            errno(storage.rename(path(wrong), path("g"))),
            Some(Errno::NOTDIR),
            "{wrong}"
        );
    }
    assert_eq!(errno(storage.open_read(path("f/"))), Some(Errno::NOTDIR));
    assert_eq!(errno(write(storage, path("new/"), b"")), Some(Errno::ISDIR));
    assert_eq!(
        errno(storage.symlink(path("x"), path("new/"))),
        Some(Errno::NOENT)
    );
    assert_eq!(storage.stat(path("link/")).unwrap().link_target, None);
    storage.remove_directory(path("a/c/")).unwrap();
    storage.remove_tree(path("a/"), &|| false).unwrap();
    assert!(!fixture.real("a").exists());
}

#[test]
fn missing_parents_and_files_as_parents() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"").unwrap();
    for (name, expected) in [("no/x", Errno::NOENT), ("f/x", Errno::NOTDIR)] {
        let wrong = path(name);
        let expected = Some(expected);
        assert_eq!(errno(storage.open_read(wrong)), expected);
        assert_eq!(errno(write(storage, wrong, b"")), expected);
        assert_eq!(errno(storage.stat(wrong)), expected);
        assert_eq!(errno(storage.list(wrong)), expected);
        assert_eq!(errno(storage.make_directory(wrong)), expected);
        assert_eq!(errno(storage.remove_file(wrong)), expected);
        assert_eq!(errno(storage.remove_directory(wrong)), expected);
        assert_eq!(errno(storage.remove_tree(wrong, &|| false)), expected);
        assert_eq!(errno(storage.rename(wrong, path("y"))), expected);
        assert_eq!(errno(storage.rename(path("f"), wrong)), expected);
        assert_eq!(errno(storage.set_mode(wrong, 0o600)), expected);
        assert_eq!(errno(storage.set_group(wrong, "0")), expected);
        assert_eq!(
            errno(storage.set_modified(wrong, std::time::UNIX_EPOCH)),
            expected
        );
        assert_eq!(errno(storage.symlink(path("t"), wrong)), expected);
        assert_eq!(errno(storage.truncate(wrong, 0)), expected);
    }
}
