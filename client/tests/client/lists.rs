//! `gridhaul copy --from-file`.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use gridhaul_interop::Kind;

use crate::site::{Site, assert_same};

#[test]
fn all_files_of_a_list_are_copied() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let (one, two) = (site.server.url("one"), site.server.url("two words"));
        fs::copy(site.local("source"), site.local("a source")).unwrap();
        let lines = format!("# a comment\n\nsource {one}\n\"a source\" \"{two}\"\n");
        fs::write(site.local("list"), lines).unwrap();
        site.must(&["copy", "--from-file", "list"]);
        for name in ["one", "two words"] {
            assert!(site.served(name).exists(), "{kind:?} {name}");
            assert_same(&site.local("source"), &site.served(name), &[name]);
        }
        let mut child = site
            .command(&["copy", "--from-file", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{one} back").unwrap();
        drop(input);
        assert!(child.wait().unwrap().success());
        assert_same(&site.local("source"), &site.local("back"), &[]);
    }
}

#[test]
fn names_in_lists_may_have_bytes_that_are_no_text() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    // Latin-1, and not UTF-8.
    let name = OsStr::from_bytes(b"caf\xe9");
    fs::write(site.place().join(name), "content").unwrap();
    let line = |from: &[u8], to: &[u8]| [from, b" ", to, b"\n"].concat();
    let url = [site.server.url("there-").as_bytes(), name.as_bytes()].concat();
    fs::write(site.local("list"), line(name.as_bytes(), &url)).unwrap();
    site.must(&["copy", "--from-file", "list"]);
    let there = site.served("").join(OsStr::from_bytes(b"there-caf\xe9"));
    assert_eq!(fs::read(there).unwrap(), b"content");
    let local = [b"file://", site.place().as_os_str().as_bytes(), b"/back-"].concat();
    let back = [&local[..], name.as_bytes()].concat();
    fs::write(site.local("list"), line(&url, &back)).unwrap();
    site.must(&["guc", "-f", "list"]);
    let back = site.place().join(OsStr::from_bytes(b"back-caf\xe9"));
    assert_eq!(fs::read(back).unwrap(), b"content");
}

#[test]
fn a_failed_list_is_completed_with_its_journal() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let lines = format!(
        "source {}\nlate {}\n",
        site.server.url("a"),
        site.server.url("b")
    );
    fs::write(site.local("list"), lines).unwrap();
    let error = site.fails(&["copy", "--from-file", "list"]);
    assert!(error.contains("late: No such file"), "{error}");
    fs::write(site.local("late"), "late").unwrap();
    let done = site.must(&["copy", "--resume", "--from-file", "list"]);
    assert!(done.contains("1 unchanged"), "{done}");
    assert_eq!(fs::read(site.served("b")).unwrap(), b"late");
}

#[test]
fn wrong_lists_are_refused_before_anything_is_copied() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    for (wrong, expected) in [
        ("x", "line 2: a line is SOURCE DESTINATION"),
        ("a b c", "line 2: a line is SOURCE DESTINATION"),
        ("http://h/ b", "line 2: 'http://h/': the scheme must be"),
    ] {
        let lines = format!("source {}\n{wrong}\n", site.server.url("a"));
        fs::write(site.local("list"), lines).unwrap();
        let output = site.gridhaul(&["copy", "--from-file", "list"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!site.served("a").exists());
    }
    let both = site.gridhaul(&["copy", "--from-file", "list", "a", "b"]);
    assert_eq!(both.status.code(), Some(2));
}
