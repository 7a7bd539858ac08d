//! Directories.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gridhaul_interop::{Kind, chown_to_nobody};

use crate::site::Site;

/// The files and directories beneath a directory; a directory has no content.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            match path.is_dir() {
                true => {
                    found.insert(name, None);
                    left.push(path);
                }
                false => {
                    found.insert(name, Some(fs::read(&path).unwrap()));
                }
            }
        }
    }
    found
}

/// Compares two trees; says only the names that differ.
fn assert_equal_trees(one: &Path, other: &Path, words: &str) {
    let (one, other) = (tree(one), tree(other));
    let names = one.keys().chain(other.keys());
    let differ: Vec<_> = names
        .filter(|name| one.get(*name) != other.get(*name))
        .collect();
    assert!(differ.is_empty(), "{words}: {differ:?}");
}

/// Makes a tree with directories in directories, an empty one, many small files and names that must be quoted somewhere.
fn make_tree(root: &Path, kind: Kind) {
    for name in ["", "a", "a/b", "a/b/c", "empty", "many", "with space;=%20"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let mut names: Vec<&[u8]> = vec![
        b"plain",
        b"a/b/c/deep",
        b"a/empty file",
        b"with space;=%20/ leading",
        b"a/quote\"s",
    ];
    if kind == Kind::Gridhaul {
        // globus-gridftp-server leaves these bytes out.
        names.extend([&b"a/b/caf\xc3\xa9"[..], b"a/b/latin\xe9"]);
    }
    for (index, name) in names.into_iter().enumerate() {
        let content = vec![b'x'; index * 1000 % 6000];
        fs::write(root.join(OsStr::from_bytes(name)), content).unwrap();
    }
    for index in 0..100 {
        let path = root.join(format!("many/{index}"));
        fs::write(path, format!("content {index}")).unwrap();
    }
}

#[test]
fn trees_go_to_a_server_back_and_between_servers() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for options in [&[][..], &["--parallel", "2"], &["--mode", "stream"]] {
            let site = Site::anonymous(kind, &[]);
            make_tree(&site.local("tree"), kind);
            let (to, third) = (site.server.url("new"), site.server.url("third/"));
            let copy = |from: &str, to: &str| {
                site.must(&[&["copy", "-r"], options, &[from, to]].concat());
            };
            copy("tree", &to);
            let words = format!("{kind:?} {options:?}");
            let equal = |other: &Path| assert_equal_trees(&site.local("tree"), other, &words);
            equal(&site.served("new"));
            copy(&to, "back");
            equal(&site.local("back"));
            // Into directories that exist.
            copy(&to, "back/");
            copy(&format!("{to}/"), &third);
            equal(&site.served("third"));
            equal(&site.local("back"));
        }
    }
}

#[test]
fn trees_of_users_with_certificates_keep_their_channels() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        make_tree(&site.local("tree"), kind);
        for (index, options) in [&[][..], &["--protect"], &["--mode", "extended"]]
            .into_iter()
            .enumerate()
        {
            let (to, back) = (site.server.url(&format!("new{index}")), format!("b{index}"));
            let copy = |from: &str, to: &str| {
                site.must(&[&["copy", "-r", "-c", "2"], options, &[from, to]].concat());
            };
            copy("tree", &to);
            copy(&to, &back);
            let words = format!("{kind:?} {options:?}");
            assert_equal_trees(&site.local("tree"), &site.local(&back), &words);
        }
    }
}

#[test]
fn links_are_copied_as_files_and_links_to_directories_are_named() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let source = site.local("tree");
        fs::create_dir_all(source.join("real")).unwrap();
        fs::write(source.join("real/file"), "content").unwrap();
        symlink("real/file", source.join("to-file")).unwrap();
        symlink("real", source.join("to-directory")).unwrap();
        symlink(".", source.join("real/loop")).unwrap();
        let output = site.gridhaul(&["copy", "-r", "tree", &site.server.url("new")]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        for name in ["tree/to-directory", "tree/real/loop"] {
            assert!(stderr.contains(&format!("{name}: skipped")), "{stderr}");
        }
        let copied = tree(&site.served("new"));
        let names: Vec<_> = copied.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["real", "real/file", "to-file"]);
        assert_eq!(fs::read(site.served("new/to-file")).unwrap(), b"content");
        symlink("real", site.served("new/back-to-directory")).unwrap();
        symlink("real/file", site.served("new/back-to-file")).unwrap();
        let output = site.gridhaul(&["copy", "-r", &site.server.url("new"), "back"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains("back-to-directory: skipped"), "{stderr}");
        assert!(!site.local("back/back-to-directory").exists(), "{kind:?}");
        assert_eq!(
            fs::read(site.local("back/back-to-file")).unwrap(),
            b"content"
        );
    }
}

#[test]
fn a_directory_needs_recursive_and_several_ones_keep_their_names() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    for name in ["one", "two"] {
        fs::create_dir(site.local(name)).unwrap();
        fs::write(site.local(name).join(name), name).unwrap();
    }
    let error = site.fails(&["copy", "one", &site.server.url("new")]);
    assert!(error.contains("say --recursive"), "{error}");
    let url = site.server.url("all");
    site.must(&["copy", "-r", "one", "two", "source", &url]);
    let names: Vec<_> = tree(&site.served("all")).into_keys().collect();
    let expected = ["one", "one/one", "source", "two", "two/two"];
    assert_eq!(names, expected.map(PathBuf::from));
    let error = site.fails(&["copy", &url, "back"]);
    assert!(error.contains("say --recursive"), "{error}");
    let error = site.fails(&["copy", "-r", &url, &site.server.url("all/within")]);
    assert!(error.contains("within the source"), "{error}");
}

#[test]
fn a_directory_that_the_server_serves_is_not_copied_into_itself() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let all = site.served("all");
        let open = fs::Permissions::from_mode(0o777);
        for name in ["", "sub", "sub/got", "got", "got/old", "other", "other/got"] {
            fs::create_dir(all.join(name)).unwrap();
            fs::write(all.join(name).join("file"), name).unwrap();
        }
        chown_to_nobody(&all).unwrap();
        for name in ["got", "sub/got", "other/got"] {
            fs::set_permissions(all.join(name), open.clone()).unwrap();
        }
        let (from, got) = (site.server.url("all"), all.join("got"));
        let expected = [
            "file",
            "other/file",
            "other/got/file",
            "sub/file",
            "sub/got/file",
        ];
        let copied = |there: &Path| {
            let found = tree(there)
                .into_iter()
                .filter(|(_, content)| content.is_some());
            let names = found.map(|(name, _)| name.to_str().unwrap().to_owned());
            names
                .filter(|name| !name.starts_with("old"))
                .collect::<Vec<_>>()
        };
        // To this machine, under a name that does not show it.
        symlink(&got, site.local("link")).unwrap();
        let error = site.fails(&["copy", "-r", &from, "link"]);
        assert!(error.contains("not copied into itself"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(copied(&got), expected, "{kind:?}");
        assert!(!got.join("got").exists(), "{kind:?}");

        // To the server, by another name of the host.
        let host = site.server.url("").replace("127.0.0.1", "localhost");
        let error = site.fails(&["copy", "-r", &from, &format!("{host}all/sub/got")]);
        assert!(error.contains("not copied into itself"), "{error}");
        assert!(!all.join("sub/got/sub/got").exists(), "{kind:?}");
        let error = site.fails(&["copy", "-r", &from, &format!("{host}all")]);
        assert!(error.contains("the same directory"), "{error}");

        // From this machine.
        let all = all.to_str().unwrap();
        let to = site.server.url("all/other/got");
        let error = site.fails(&["copy", "-r", all, &to]);
        assert!(error.contains("not copied into itself"), "{error}");
        assert!(!site.served("all/other/got/other/got").exists(), "{kind:?}");
    }
}

#[test]
fn times_are_kept_where_that_is_wanted() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let past = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options().write(true).open(site.local("source"));
    file.unwrap().set_modified(past).unwrap();
    let (url, third) = (site.server.url("a"), site.server.url("b"));
    site.must(&["copy", "-t", "source", &url]);
    site.must(&["copy", "-t", &url, "back"]);
    site.must(&["copy", "-t", &url, &third]);
    for path in [site.served("a"), site.local("back"), site.served("b")] {
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(modified, past, "{}", path.display());
    }
}

#[test]
fn a_second_run_with_sync_copies_what_differs_and_delete_removes_the_rest() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        make_tree(&site.local("tree"), kind);
        let (url, third) = (site.server.url("new"), site.server.url("third"));
        let sync = |from: &str, to: &str, options: &[&str]| {
            let all = [&["copy", "-r", "--sync"], options, &["--json", from, to]].concat();
            let lines = site.must(&all);
            let count = |event: &str| {
                let event = format!("{{\"event\":\"{event}\"");
                lines
                    .lines()
                    .filter(|line| line.starts_with(&event))
                    .count()
            };
            (count("file") + count("would"), count("remove"))
        };
        let files = tree(&site.local("tree"));
        let files = files.values().filter(|content| content.is_some()).count();
        let ways = [("tree", url.as_str()), (&url, "back"), (&url, &third)];
        for (from, to) in ways {
            assert_eq!(sync(from, to, &["-n"]).0, files, "{kind:?} {to}");
            assert_eq!(sync(from, to, &[]), (files, 0), "{kind:?} {to}");
            let again = sync(from, to, &[]);
            // globus-gridftp-server has no command for the time of a file.
            if kind == Kind::Gridhaul || to == "back" {
                assert_eq!(again, (0, 0), "{kind:?} {to}");
            }
        }
        fs::write(site.local("tree/many/1"), "other").unwrap();
        fs::remove_file(site.local("tree/many/2")).unwrap();
        fs::remove_dir_all(site.local("tree/a")).unwrap();
        fs::write(site.local("tree/a"), "a file in the place of a directory").unwrap();
        fs::remove_file(site.local("tree/a")).unwrap();
        let dry = sync("tree", &url, &["--delete", "-n"]);
        assert_eq!(dry.1, 2, "{kind:?}");
        assert!(site.served("new/a/b/c/deep").exists());
        let by_size = ["copy", "-r", "--sync=size", "--delete", "tree", &url];
        site.must(&by_size);
        assert_equal_trees(
            &site.local("tree"),
            &site.served("new"),
            &format!("{kind:?}"),
        );
        site.must(&["copy", "-r", "--sync=size", "--delete", &url, "back"]);
        assert_equal_trees(
            &site.local("tree"),
            &site.local("back"),
            &format!("{kind:?}"),
        );
    }
}

#[test]
fn contents_are_compared_by_checksum_where_that_is_wanted() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    fs::write(site.local("x"), "one").unwrap();
    let copies = || {
        let lines = site.must(&["copy", "--json", "--sync=checksum", "x", &url]);
        lines.contains(r#""event":"file""#)
    };
    assert!(copies());
    assert!(!copies());
    fs::write(site.local("x"), "two").unwrap();
    assert!(copies());
    assert_eq!(fs::read(site.served("a")).unwrap(), b"two");
}

#[test]
fn what_killed_copies_have_left_is_removed_by_later_ones() {
    const OLD: Duration = Duration::from_secs(8 * 24 * 3600);

    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let make = |place: &Path, is_served: bool| {
            let own = |path: &Path| {
                if is_served {
                    chown_to_nobody(path).unwrap();
                }
            };
            fs::create_dir(place).unwrap();
            own(place);
            for (name, age) in [
                (".gridhaul-00112233445566aa", OLD),
                (".gridhaul-00112233445566bb", OLD),
                (".gridhaul-00112233445566cc", OLD / 4),
                (".gridhaul-00112233", OLD),
            ] {
                let path = place.join(name);
                fs::create_dir(&path).unwrap();
                if name.ends_with("bb") {
                    fs::write(path.join("file"), "content").unwrap();
                }
                own(&path);
                let directory = fs::File::open(&path).unwrap();
                directory.set_modified(SystemTime::now() - age).unwrap();
            }
        };
        let names = |place: &Path| {
            let entries = fs::read_dir(place).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<BTreeSet<_>>()
        };
        let expected = [
            ".gridhaul-00112233",
            ".gridhaul-00112233445566bb",
            ".gridhaul-00112233445566cc",
            "file",
        ];
        let expected = BTreeSet::from(expected.map(str::to_owned));
        fs::create_dir_all(site.local("source-of/same")).unwrap();
        fs::write(site.local("source-of/same/file"), "content").unwrap();
        make(&site.served("same"), true);
        let url = site.server.url("same");
        // A copy that does not need the entries of the destination does not list them.
        site.must(&["copy", "-r", "source-of/same", &url]);
        let old = ".gridhaul-00112233445566aa";
        assert!(names(&site.served("same")).contains(old), "{kind:?}");
        site.must(&["copy", "-r", "--sync=size", "source-of/same", &url]);
        assert_eq!(names(&site.served("same")), expected, "{kind:?}");
        fs::create_dir_all(site.served("from/same")).unwrap();
        fs::write(site.served("from/same/file"), "content").unwrap();
        make(&site.local("same"), false);
        let url = site.server.url("from/same");
        site.must(&["copy", "-r", &url, "same"]);
        assert!(names(&site.local("same")).contains(old), "{kind:?}");
        site.must(&["copy", "-r", "--sync=size", &url, "same"]);
        assert_eq!(names(&site.local("same")), expected, "{kind:?}");
    }
}
