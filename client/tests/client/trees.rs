//! `chmod`, `du` and `tree`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use gridhaul_interop::{Kind, chown_to_nobody};

use crate::site::Site;

/// Makes `top` with two directories, three files of 111 bytes in all, and links that lead back and out.
fn make_tree(site: &Site) {
    let path = |name: &str| site.served(name);
    for name in ["top", "top/b", "top/b/empty", "kept"] {
        fs::create_dir(path(name)).unwrap();
    }
    for (name, bytes) in [("top/a", 1), ("top/b/c", 10), ("top/z", 100), ("kept/k", 7)] {
        fs::write(path(name), vec![b'x'; bytes]).unwrap();
    }
    symlink("..", path("top/b/loop")).unwrap();
    symlink("../kept/k", path("top/link")).unwrap();
    for name in [
        "top",
        "top/b",
        "top/b/empty",
        "top/a",
        "top/b/c",
        "top/z",
        "kept",
        "kept/k",
    ] {
        chown_to_nobody(&path(name)).unwrap();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn trees_are_drawn_and_summed() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        make_tree(&site);
        let url = site.server.url("top");
        let drawn = site.must(&["tree", &url]);
        let expected = "\
├── a
├── b/
│   ├── c
│   ├── empty/
│   └── loop
├── link
└── z

2 directories, 5 files
";
        let (first, rest) = drawn.split_once('\n').unwrap();
        assert_eq!((first, rest), (url.as_str(), expected), "{kind:?}");
        let lines = site.must(&["tree", "--json", &url]);
        let line = lines.lines().find(|line| line.contains("top/b/c")).unwrap();
        assert!(line.contains(r#""depth":2"#), "{line}");
        assert!(line.contains(r#""size":10"#), "{line}");
        let file = site.server.url("top/z");
        let summed = site.must(&["du", &url, &file]);
        assert_eq!(summed, format!("111\t{url}\n100\t{file}\n"), "{kind:?}");
        let json = site.must(&["du", "--json", &url]);
        assert!(json.contains(r#""bytes":111"#), "{json}");
        assert!(json.contains(r#""directories":2"#), "{json}");
        assert_eq!(site.must(&["du", "-h", &url]), format!("111 B\t{url}\n"));
        let error = site.fails(&["du", &site.server.url("missing"), &url]);
        assert!(error.contains("missing: no such file"), "{error}");
    }
}

#[test]
fn modes_change_but_not_those_behind_links() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        make_tree(&site);
        let file = site.server.url("top/a");
        site.must(&["chmod", "0600", &file]);
        assert_eq!(mode(&site.served("top/a")), 0o600, "{kind:?}");
        fs::set_permissions(site.served("kept/k"), Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(site.served("top/z"), Permissions::from_mode(0o644)).unwrap();
        site.must(&["chmod", "750", &site.server.url("top")]);
        assert_eq!(mode(&site.served("top/z")), 0o644, "{kind:?}");
        site.must(&["chmod", "-r", "700", &site.server.url("top")]);
        for name in ["top", "top/a", "top/b", "top/b/empty", "top/b/c", "top/z"] {
            assert_eq!(mode(&site.served(name)), 0o700, "{kind:?} {name}");
        }
        assert_eq!(mode(&site.served("kept/k")), 0o644, "{kind:?}");
        let error = site.fails(&["chmod", "600", &site.server.url("missing")]);
        assert!(error.contains("the server refused SITE"), "{error}");
        for wrong in ["888", "+777", "12345", "u+x"] {
            let output = site.gridhaul(&["chmod", wrong, &file]);
            assert_eq!(output.status.code(), Some(2), "{wrong}");
        }
    }
}

#[test]
fn names_in_trees_cannot_control_a_terminal() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir(site.served("d")).unwrap();
    fs::write(site.served("d/a\u{1b}[31mred"), "x").unwrap();
    let lines = site.must(&["tree", &site.server.url("d")]);
    assert!(lines.contains("red"), "{lines:?}");
    assert!(!lines.contains('\u{1b}'), "{lines:?}");
}

#[test]
fn a_directory_that_cannot_be_listed_is_named_and_left_out() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    make_tree(&site);
    fs::set_permissions(site.served("top/b"), Permissions::from_mode(0o000)).unwrap();
    let output = site.gridhaul(&["du", &site.server.url("top")]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("top/b: "), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.starts_with("101\t"), "{stdout}");
}
