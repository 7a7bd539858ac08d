//! The options of globus-url-copy: each command runs with it and with ours, and must have the same effect.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use gridhaul_interop::{Kind, PASSWORD, PASSWORD_USER, chown_to_nobody, url};

use crate::site::{Site, assert_same};

fn run(site: &Site, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(site.place());
    command.env("XDG_STATE_HOME", site.local("state"));
    command.output().unwrap()
}

/// Runs a command as `globus-url-copy`, which is a link to our program.
fn guc(site: &Site, arguments: &[&str]) -> Output {
    let link = site.local("globus-url-copy");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_gridhaul"), &link).unwrap();
    }
    run(site, link.to_str().unwrap(), arguments)
}

fn file_url(site: &Site, name: &str) -> String {
    format!("file://{}", site.local(name).display())
}

#[test]
fn both_programs_have_the_same_effects() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::create_dir_all(site.local("tree/a/b")).unwrap();
        for name in ["tree/x.dat", "tree/y.dat", "tree/z", "tree/a/b/deep"] {
            fs::write(site.local(name), name).unwrap();
        }
        let source = file_url(&site, "source");
        let tree = file_url(&site, "tree/");
        let pattern = file_url(&site, "tree/*.dat");
        type Try = fn(&Site, &[&str]) -> Output;
        let ours: Try = |site, arguments| guc(site, arguments);
        let theirs: Try = |site, arguments| run(site, "globus-url-copy", arguments);
        let mut seen = Vec::new();
        for (name, program) in [("theirs", theirs), ("ours", ours)] {
            let there = |path: &str| site.server.url(&format!("{name}/{path}"));
            let mut statuses = Vec::new();
            let mut must = |arguments: &[&str]| {
                let output = program(&site, arguments);
                // Shown when the test fails.
                println!(
                    "{name} {arguments:?}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                statuses.push(output.status.code());
            };
            must(&["-cd", &source, &there("one")]);
            must(&["-cd", "-p", "3", &source, &there("blocks")]);
            must(&["-cd", "-fast", &source, &there("into/")]);
            must(&["-cd", "-r", "-cc", "2", &tree, &there("tree/")]);
            must(&["-cd", &pattern, &there("matched/")]);
            must(&["-cd", "-r", "-fast", &there("tree/"), &there("again/")]);
            must(&["-sync", "-r", &there("tree/"), &there("again/")]);
            must(&["-cd", "-verify-checksum", &there("one"), &there("third")]);
            fs::create_dir(site.local(name)).unwrap();
            must(&[
                "-cd",
                "-r",
                &there("tree/"),
                &file_url(&site, &format!("{name}/")),
            ]);
            must(&[
                &there("missing"),
                &file_url(&site, &format!("{name}/missing")),
            ]);
            must(&[&source]);
            let list = site.local("list");
            let lines = format!(
                "# two\n{source} {}\n\"{source}\" {}\n",
                there("f1"),
                there("f2")
            );
            fs::write(&list, lines).unwrap();
            must(&["-f", list.to_str().unwrap()]);
            let find = Command::new("find")
                .arg(".")
                .current_dir(site.served(name))
                .output();
            let mut found: Vec<_> = String::from_utf8(find.unwrap().stdout)
                .unwrap()
                .lines()
                .map(ToOwned::to_owned)
                .collect();
            let find = Command::new("find")
                .arg(".")
                .current_dir(site.local(name))
                .output();
            found.extend(
                String::from_utf8(find.unwrap().stdout)
                    .unwrap()
                    .lines()
                    .map(ToOwned::to_owned),
            );
            // globus-url-copy leaves an empty file.
            found.retain(|path| path != "./missing");
            found.sort();
            for copy in ["one", "blocks", "into/source", "third", "f1", "f2"] {
                assert_same(
                    &site.local("source"),
                    &site.served(&format!("{name}/{copy}")),
                    &[copy],
                );
            }
            let failed = |code: Option<i32>| code.map(|code| code != 0);
            let statuses: Vec<_> = statuses.into_iter().map(failed).collect();
            seen.push((statuses, found));
        }
        assert_eq!(seen[0], seen[1], "{kind:?}");
    }
}

#[test]
fn listings_have_the_same_names() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::create_dir_all(site.served("d/sub")).unwrap();
        fs::write(site.served("d/file"), "x").unwrap();
        let lines = |output: Output| {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let text = String::from_utf8(output.stdout).unwrap();
            let mut lines: Vec<_> = text
                .lines()
                .map(|line| line.trim_end().to_owned())
                .collect();
            lines.retain(|line| !line.is_empty());
            lines.sort();
            lines
        };
        for path in ["d/", "d/f*", "d/file"] {
            // A pattern is not encoded.
            let url = site.server.url("") + path;
            let ours = lines(guc(&site, &["-list", &url]));
            let theirs = lines(run(&site, "globus-url-copy", &["-list", &url]));
            assert_eq!(ours, theirs, "{kind:?} {path}");
        }
    }
}

#[test]
fn a_dump_file_has_what_was_not_copied_for_the_next_run() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (list, dump) = (site.local("list"), site.local("dump"));
    let late = file_url(&site, "late");
    let lines = format!(
        "{} {}\n{late} {}\n",
        file_url(&site, "source"),
        site.server.url("a"),
        site.server.url("b")
    );
    fs::write(&list, lines).unwrap();
    let arguments = ["-f", "list", "-df", "dump"];
    assert_eq!(guc(&site, &arguments).status.code(), Some(1));
    let left = fs::read_to_string(&dump).unwrap();
    assert_eq!(left.lines().count(), 1, "{left}");
    fs::write(site.local("late"), "late").unwrap();
    assert!(guc(&site, &arguments).status.success());
    assert_eq!(fs::read(site.served("b")).unwrap(), b"late");
    assert_eq!(fs::metadata(&dump).unwrap().len(), 0);
}

#[test]
fn a_dump_file_has_names_as_urls() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (tree, there) = (site.local("tree"), site.served("there"));
    // The last ones are Latin-1, and not UTF-8.
    let names: [&[u8]; 5] = [b"a \"b\" c", b"d%#e", b"f%41", b"caf\xe9", b"caf\xea"];
    let names = names.map(OsStr::from_bytes);
    fs::create_dir(&tree).unwrap();
    for name in names {
        fs::write(tree.join(name), name.as_bytes()).unwrap();
        // A directory has its name at first.
        fs::create_dir_all(there.join(name)).unwrap();
    }
    chown_to_nobody(&there).unwrap();
    let (from, to) = (file_url(&site, "tree/"), site.server.url("there/"));
    let arguments = ["-df", "dump", "-r", "-cd", &from, &to];
    assert_eq!(guc(&site, &arguments).status.code(), Some(1));
    let left = fs::read_to_string(site.local("dump")).unwrap();
    assert_eq!(left.lines().count(), names.len(), "{left}");
    assert_eq!(left.matches('"').count(), 4 * names.len(), "{left}");
    for name in names {
        fs::remove_dir(there.join(name)).unwrap();
    }
    let output = guc(&site, &arguments);
    assert!(output.status.success(), "{output:?} {left}");
    for name in names {
        assert_eq!(fs::read(there.join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn options_that_it_does_not_have_are_refused() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let output = guc(&site, &["-af", "hosts", &file_url(&site, "source"), &url]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("does not have the option -af"), "{stderr}");
}

#[test]
fn a_password_in_a_url_is_sent_to_its_server_only() {
    let site = Site::tls("127.0.0.1");
    fs::write(site.served("a"), "content").unwrap();
    let port = site.server.address().port();
    let host = format!("127.0.0.1:{port}");
    let list = site.local("list");
    let place = format!("ftp://{PASSWORD_USER}:{}@{host}/a", url::escape(PASSWORD));
    fs::write(&list, format!("{place} {}\n", file_url(&site, "back"))).unwrap();
    let output = guc(&site, &["-f", "list"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(site.local("back")).unwrap(), b"content");
    let wrong = format!("ftp://{PASSWORD_USER}:wrong@{host}/a");
    let output = guc(&site, &[&wrong, &file_url(&site, "other")]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("530") && !stderr.contains("wrong"),
        "{stderr}"
    );
}

#[test]
fn a_malformed_password_is_an_error_that_does_not_have_it() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a").replace("ftp://", "ftp://joe:100%@");
    let back = file_url(&site, "back");
    fs::write(site.local("list"), format!("# none\n{url} {back}\n")).unwrap();
    for (arguments, place) in [
        (&[url.as_str(), &back][..], ""),
        (&["-f", "list"], "list, line 2: "),
    ] {
        let output = guc(&site, arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let words = format!("error: {place}the password in a URL: after %");
        assert!(stderr.contains(&words), "{stderr}");
        assert!(!stderr.contains("100%"), "{stderr}");
    }
}

#[test]
fn a_list_of_planned_copies_is_read_by_both_programs() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir_all(site.served("tree/sub")).unwrap();
    fs::write(site.served("tree/sub/a b"), "content").unwrap();
    let (tree, copy) = (site.server.url("tree/"), file_url(&site, "copy/"));
    let output = guc(&site, &["-r", "-do", "plan", &tree, &copy]);
    assert!(output.status.success(), "{output:?}");
    assert!(!site.local("copy").exists());
    for (name, program) in [("ours", true), ("theirs", false)] {
        let options = ["-cd", "-f", "plan"];
        let output = match program {
            true => guc(&site, &options),
            false => run(&site, "globus-url-copy", &options),
        };
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(fs::read(site.local("copy/sub/a b")).unwrap(), b"content");
        fs::remove_dir_all(site.local("copy")).unwrap();
    }
}

#[test]
fn each_end_has_options_of_its_own() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (source, url) = (file_url(&site, "source"), site.server.url("a"));
    assert!(guc(&site, &[&source, &url]).status.success());
    for (options, end) in [
        (["-src-fsstack", "nosuchdriver"], "source"),
        (["-dst-fsstack", "nosuchdriver"], "destination"),
    ] {
        let copy = site.server.url("b");
        let output = guc(&site, &[&options[..], &[&url, &copy]].concat());
        assert_eq!(output.status.code(), Some(1), "{end}: {output:?}");
        assert!(!site.served("b").exists());
    }
    // Each is for the other end.
    for options in [
        [
            "-src-fsstack",
            "nosuchdriver",
            &source,
            &site.server.url("c"),
        ],
        ["-dst-fsstack", "nosuchdriver", &url, &file_url(&site, "c")],
    ] {
        let output = guc(&site, &options);
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
}

#[test]
fn options_of_one_end_do_not_copy_a_file_onto_itself() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let mut list = String::new();
    for name in ["a", "b"] {
        fs::write(site.served(name), name).unwrap();
        chown_to_nobody(&site.served(name)).unwrap();
        let url = site.server.url(name);
        list += &format!("{url} {url}\n");
    }
    fs::write(site.local("list"), list).unwrap();
    let output = guc(&site, &["-src-fsstack", "file", "-f", "list"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let refused = stderr.matches("are the same file").count();
    assert_eq!(refused, 2, "{stderr}");
    for name in ["a", "b"] {
        assert_eq!(fs::read(site.served(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn a_hyphen_is_standard_input_or_output() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let url = site.server.url("a");
    let link = site.local("globus-url-copy");
    symlink(env!("CARGO_BIN_EXE_gridhaul"), &link).unwrap();
    let program = |arguments: &[&str]| {
        let mut command = Command::new(&link);
        command.args(arguments).current_dir(site.place());
        command
    };
    let source = fs::File::open(site.local("source")).unwrap();
    let put = program(&["-", &url]).stdin(source).output().unwrap();
    assert!(put.status.success(), "{put:?}");
    assert_same(&site.local("source"), &site.served("a"), &[]);
    let got = program(&[&url, "-"]).output().unwrap();
    assert!(got.stdout == fs::read(site.local("source")).unwrap());
}

#[test]
fn options_of_the_destination_hold_for_standard_input() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (url, none) = (site.server.url("a"), ["nosuchdriver", "-"]);
    let output = guc(&site, &[&["-dst-fsstack"], &none[..], &[&url]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!site.served("a").exists());
    let output = guc(&site, &[&["-src-fsstack"], &none[..], &[&url]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(site.served("a").exists());
}

#[test]
fn site_commands_of_options_are_sent_after_the_login() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::write(site.local("assertion"), "some assertion\n").unwrap();
        let (source, url) = (file_url(&site, "source"), site.server.url("a"));
        for options in [["-fsstack", "file"], ["-aa", "assertion"]] {
            let output = guc(&site, &[&options[..], &[&source, &url]].concat());
            assert!(output.status.success(), "{kind:?} {options:?}: {output:?}");
        }
        for options in [
            ["-fsstack", "nosuchdriver"],
            ["-src-pipe", "#cat#/etc/passwd"],
        ] {
            let back = file_url(&site, "back");
            let output = guc(&site, &[&options[..], &[&url, &back]].concat());
            assert_eq!(output.status.code(), Some(1), "{options:?}: {output:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            let words = "the server responded with an error";
            assert!(stderr.contains(words), "{kind:?} {options:?}: {stderr}");
            assert!(!site.local("back").exists());
        }
    }
}
