//! Files that a process can open under Landlock. Each test runs in a thread of its own, because a domain cannot be left.

use std::fs;
use std::path::{Path, PathBuf};

use gridhaul_sandbox::{Access, Files, Place, landlock_abi};

fn under(files: Files, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            files.enforce_on_this_thread().unwrap();
            work();
        });
        confined.join().unwrap();
    });
}

/// Whether this kernel has Landlock; prints a message if not.
fn kernel_has_landlock() -> bool {
    let has = landlock_abi().is_some();
    if !has {
        gridhaul_skip::skipped("this kernel has no Landlock, or an old one");
    }
    has
}

fn refused<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
}

/// Directories `a/b` and `other`, each with a file `secret`.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for directory in ["a/b", "other"] {
            fs::create_dir_all(tree.path(directory)).unwrap();
            fs::write(tree.path(directory).join("secret"), "x").unwrap();
        }
        tree
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn unlisted_files_cannot_be_opened() {
    if !kernel_has_landlock() {
        return;
    }
    let tree = Tree::new();
    let files = Files::at([Place::new(tree.path("a/b"), Access::Read)]);
    assert_eq!(files.missing(), []);
    under(files, || {
        fs::read(tree.path("a/b/secret")).unwrap();
        assert!(refused(fs::read(tree.path("other/secret"))));
        assert!(refused(fs::read("/etc/passwd")));
        assert!(refused(fs::write(tree.path("a/b/secret"), "y")));
        assert!(refused(fs::write(tree.path("a/b/new"), "y")));
        assert!(refused(std::process::Command::new("/bin/true").status()));
    });
}

#[test]
fn a_directory_that_is_replaced_stays_open() {
    if !kernel_has_landlock() {
        return;
    }
    let tree = Tree::new();
    under(
        Files::at([Place::new(tree.path("a/b"), Access::Write)]),
        || {
            fs::rename(tree.path("a/b"), tree.path("a/old")).unwrap();
            fs::create_dir(tree.path("a/b")).unwrap();
            fs::write(tree.path("a/b/new"), "y").unwrap();
            assert!(refused(fs::write(tree.path("other/new"), "y")));
        },
    );
}

#[test]
fn a_file_that_is_replaced_stays_open_and_a_link_is_followed_to_its_place() {
    if !kernel_has_landlock() {
        return;
    }
    let tree = Tree::new();
    std::os::unix::fs::symlink("a/b/secret", tree.path("link")).unwrap();
    let renewed = tree.path("a/b/renewed");
    let files = Files::at([
        Place::new(tree.path("link"), Access::Read),
        Place::new("/dev/null", Access::Append),
    ]);
    under(files, || {
        fs::read(tree.path("link")).unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open("/dev/null")
            .unwrap();
        assert!(refused(fs::read("/dev/zero")));
    });
    fs::write(&renewed, "z").unwrap();
    let files = Files::at([Place::new(tree.path("link"), Access::Read)]);
    fs::rename(&renewed, tree.path("a/b/secret")).unwrap();
    under(files, || {
        assert_eq!(fs::read(tree.path("link")).unwrap(), b"z")
    });
}

#[test]
fn logs_can_be_created_and_appended_to_only() {
    if !kernel_has_landlock() {
        return;
    }
    let tree = Tree::new();
    let log = tree.path("other/log");
    under(Files::at([Place::new(&log, Access::Append)]), || {
        let open = || fs::OpenOptions::new().append(true).create(true).open(&log);
        drop(open().unwrap());
        drop(open().unwrap());
        assert!(refused(fs::read(&log)));
        assert!(refused(fs::remove_file(&log)));
    });
}

#[test]
fn links_in_a_directory_are_followed() {
    if !kernel_has_landlock() {
        return;
    }
    let tree = Tree::new();
    std::os::unix::fs::symlink("../../other/secret", tree.path("a/b/link")).unwrap();
    under(
        Files::at(Place::directory_of_links(tree.path("a/b"))),
        || {
            fs::read(tree.path("a/b/link")).unwrap();
        },
    );
    under(
        Files::at([Place::new(tree.path("a/b"), Access::Read)]),
        || {
            assert!(refused(fs::read(tree.path("a/b/link"))));
        },
    );
}

#[test]
fn missing_places_are_reported_unless_they_can_be_created() {
    let tree = Tree::new();
    let files = Files::at([
        Place::new("/no/such/directory", Access::Read),
        Place::fixed("/no/such/device", Access::Device),
        Place::new(tree.path("a/coming"), Access::Write),
    ]);
    let missing: Vec<_> = files
        .missing()
        .iter()
        .map(|(path, _)| path.as_path())
        .collect();
    assert_eq!(missing, [Path::new("/no/such/directory")]);
    if kernel_has_landlock() {
        under(files, || fs::create_dir(tree.path("a/coming")).unwrap());
    }
}

#[test]
fn without_a_network_no_port_can_be_used() {
    // Linux 6.7.
    if landlock_abi().is_none_or(|version| version < 4) {
        gridhaul_skip::skipped("this kernel's Landlock knows no ports");
        return;
    }
    let refused_ports = || refused(std::net::TcpListener::bind("127.0.0.1:0"));
    under(Files::at([]).without_network(), || assert!(refused_ports()));
    under(Files::at([]), || assert!(!refused_ports()));
}
