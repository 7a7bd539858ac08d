//! `gridhaul copy --delete`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridhaul_interop::{Kind, chown_to_nobody};

use crate::site::{Site, texts};

/// Makes a file, unless there is an entry of its name, with the directories that it is in, in a tree that a server can change.
fn make(root: &Path, name: &str) {
    let path = root.join(name);
    let above = path.parent().unwrap();
    fs::create_dir_all(above).unwrap();
    if !path.exists() {
        fs::write(&path, "content").unwrap();
    }
    for directory in above.ancestors().take_while(|one| one.starts_with(root)) {
        chown_to_nobody(directory).unwrap();
    }
}

const DIRECTORIES: [&str; 4] = ["a", "b", "b/c", "d"];

/// Copies between `site`'s trees of these files, where each directory of the copy has more than the source, and something that cannot be
/// removed.
fn check(site: &Site, command: &mut Command, [source, copy]: [&Path; 2], stuck: &str) {
    let kept = DIRECTORIES.map(|directory| format!("{directory}/data"));
    for name in &kept {
        make(source, name);
        make(copy, name);
    }
    for directory in DIRECTORIES {
        for extra in ["extra", stuck, "z-extra/file"] {
            make(copy, &format!("{directory}/{extra}"));
        }
    }
    let output = command.output().unwrap();
    let (_, error) = texts(&output);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{error}\n{}",
        site.server.log()
    );
    for name in &kept {
        assert!(copy.join(name).exists(), "{name}: {error}");
    }
    for directory in DIRECTORIES {
        let there = |name: &str| copy.join(directory).join(name).exists();
        assert!(
            there(stuck) && !there("extra") && !there("z-extra"),
            "{error}"
        );
        // It is an error of the entry, and not of what the walk comes to next.
        let words = format!("copy/{directory}/stuck");
        assert_eq!(error.matches(&words).count(), 1, "{error}");
    }
    assert_eq!(error.lines().count(), DIRECTORIES.len(), "{error}");
}

#[test]
fn what_a_server_does_not_remove_costs_nothing_that_the_source_has() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("copy");
    let mut command = site.command(&["copy", "-r", "--sync=size", "--delete", "tree", &url]);
    // Names with control characters are refused, and listings show others in their place.
    let trees = [site.local("tree"), site.served("copy")];
    check(
        &site,
        &mut command,
        trees.each_ref().map(PathBuf::as_path),
        "stuck\u{1}",
    );
}

/// The client has a mount namespace of its own, in which a directory is busy. Nothing is left on the machine.
#[test]
fn what_this_machine_does_not_remove_costs_nothing_that_the_source_has() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        command
    };
    let possible = namespace()
        .args(["mount", "--bind", "/mnt", "/mnt"])
        .output();
    if !possible
        .as_ref()
        .is_ok_and(|output| output.status.success())
    {
        gridhaul_skip::skipped(&format!(
            "nothing can be mounted in a namespace here: {possible:?}"
        ));
        return;
    }
    let script = "for name in copy/a copy/b copy/b/c copy/d; do mount --bind $name/stuck $name/stuck || exit 3; done; exec \"$@\"";
    let mut command = namespace();
    command.args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_gridhaul")]);
    command.args([
        "copy",
        "-r",
        "--sync=size",
        "--delete",
        &site.server.url("tree"),
        "copy",
    ]);
    command.current_dir(site.place());
    for directory in DIRECTORIES {
        fs::create_dir_all(site.local("copy").join(directory).join("stuck")).unwrap();
    }
    let trees = [site.served("tree"), site.local("copy")];
    check(
        &site,
        &mut command,
        trees.each_ref().map(PathBuf::as_path),
        "stuck",
    );
}

#[test]
fn unfinished_copies_stay_as_long_as_the_source_has_the_file() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (url, tree) = (site.server.url("copy"), site.server.url("tree"));
    for (from, to, source, copy) in [
        (
            "tree",
            url.as_str(),
            site.local("tree"),
            site.served("copy"),
        ),
        (&tree, "copy", site.served("tree"), site.local("copy")),
    ] {
        for name in ["old", "new", "sub/new"] {
            make(&source, name);
        }
        for name in [
            "old",
            ".old.gridhaul-part",
            ".new.gridhaul-blocks",
            ".gone.gridhaul-part",
            "sub/.new.gridhaul-part",
            "sub/.old.gridhaul-blocks",
        ] {
            make(&copy, name);
        }
        let options = ["-r", "--sync=size", "--delete"];
        let said = site.must(&[&["copy", "-n"], &options[..], &[from, to]].concat());
        let removed: BTreeSet<_> = said
            .lines()
            .filter(|line| line.ends_with(": removed"))
            .collect();
        let expected = [".gone.gridhaul-part", "sub/.old.gridhaul-blocks"];
        let expected = expected.map(|name| format!("{to}/{name}: removed"));
        assert_eq!(
            removed,
            expected.iter().map(String::as_str).collect(),
            "{to}"
        );
        site.must(&[&["copy"], &options[..], &[from, to]].concat());
        for name in ["old", "new", "sub/new"] {
            assert_eq!(
                fs::read(copy.join(name)).unwrap(),
                b"content",
                "{to} {name}"
            );
        }
        assert!(!copy.join(".gone.gridhaul-part").exists(), "{to}");
    }
}
