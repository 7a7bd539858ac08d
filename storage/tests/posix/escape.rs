//! No call reads or changes a file outside the root, with any path, also if directories are renamed meanwhile.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use gridhaul_storage::{PosixOptions, Storage};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::{Files, content, entries, errno, open, path, snapshot, while_disturbed, write};

const SECRET: &[u8] = b"outside";

/// A served directory `root`, and a directory `outside` beside it, which must stay unreachable.
struct Prison {
    directory: TempDir,
    storage: Files,
}

impl Prison {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let at = |path: &str| directory.path().join(path);
        fs::create_dir_all(at("outside/tree")).unwrap();
        fs::write(at("outside/leaf"), SECRET).unwrap();
        fs::write(at("outside/tree/leaf"), SECRET).unwrap();
        fs::create_dir_all(at("root/dir")).unwrap();
        fs::write(at("root/inside"), b"inside").unwrap();
        let storage = open(&at("root"), PosixOptions::default()).unwrap();
        Self { directory, storage }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn outside(&self) -> String {
        self.at("outside").into_os_string().into_string().unwrap()
    }

    /// Makes every call with `path`, and checks that no result shows a file outside.
    fn try_everything(&self, path: &Path) {
        let outside = |name| fs::metadata(self.at("outside").join(name)).map(|facts| facts.ino());
        let secrets = [
            outside("."),
            outside("leaf"),
            outside("tree"),
            outside("tree/leaf"),
        ]
        .map(Result::unwrap);
        let storage = &self.storage;
        if let Ok(file) = storage.open_read(path) {
            assert_ne!(content(&file), SECRET, "{path:?} was read");
        }
        if let Ok(facts) = storage.stat(path) {
            assert!(!secrets.contains(&facts.inode), "{path:?} was seen");
        }
        for entry in entries(storage, path).unwrap_or_default() {
            assert!(
                !secrets.contains(&entry.metadata.inode),
                "{path:?} shows {entry:?}"
            );
        }
        // The effect of the following calls is checked by comparing the state outside.
        let _ = write(storage, path, b"overwritten");
        let _ = storage.truncate(path, 1);
        let _ = storage.set_mode(path, 0o777);
        let _ = storage.set_group(path, "0");
        let _ = storage.set_modified(path, UNIX_EPOCH + Duration::from_secs(1));
        let _ = storage.make_directory(path);
        let _ = storage.symlink(Path::new("inside"), path);
        let _ = storage.rename(path, Path::new("taken"));
        let _ = storage.rename(Path::new("taken"), path);
        let _ = storage.remove_file(path);
        let _ = storage.remove_directory(path);
        let _ = storage.remove_tree(path, &|| false);
    }

    fn run(&self, paths: &[String]) {
        let before = self.state_outside();
        for hostile in paths {
            self.try_everything(Path::new(hostile));
            assert_eq!(self.state_outside(), before, "changed through {hostile}");
        }
    }

    fn state_outside(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let outside = self.at("outside");
        let times = ["leaf", "tree", "tree/leaf"].map(|name| {
            let facts = fs::metadata(outside.join(name)).unwrap();
            (facts.modified().unwrap(), facts.gid())
        });
        (snapshot(&outside), times)
    }
}

#[test]
fn paths_stay_inside() {
    let prison = Prison::new();
    let outside = prison.outside();
    let paths = [
        "../outside/leaf",
        "/../outside/leaf",
        "dir/../../outside/leaf",
        "dir/../../outside",
        "../outside/tree",
        "../outside/new",
        "..//../..//outside/tree/leaf",
    ];
    let mut paths = paths.map(str::to_owned).to_vec();
    paths.push(format!("{outside}/leaf"));
    paths.push(format!("../../../../../../../..{outside}/leaf"));
    paths.push(outside);
    prison.run(&paths);
}

#[test]
fn links_stay_inside() {
    let prison = Prison::new();
    let outside = prison.outside();
    // Every call may destroy the link it goes through, so each path gets fresh ones.
    for hostile in [
        "absolute-file",
        "absolute",
        "absolute/leaf",
        "absolute/tree",
        "absolute/tree/leaf",
        "absolute/new",
        "relative-file",
        "relative",
        "relative/",
        "relative/leaf",
        "relative/tree/leaf",
        "relative/new",
        "chain/leaf",
        "slash/../outside/leaf",
        "dir/../relative/tree",
    ] {
        for (link, target) in [
            ("absolute-file", format!("{outside}/leaf")),
            ("absolute", outside.clone()),
            ("relative-file", "../outside/leaf".to_owned()),
            ("relative", "../outside".to_owned()),
            ("chain", "relative/tree".to_owned()),
            ("slash", "/".to_owned()),
        ] {
            let link = prison.at("root").join(link);
            let _ = fs::remove_file(&link);
            let _ = fs::remove_dir_all(&link);
            symlink(target, link).unwrap();
        }
        prison.run(&[hostile.to_owned()]);
    }
}

#[test]
fn a_link_to_etc_is_a_link_into_the_root() {
    let prison = Prison::new();
    symlink("/etc", prison.at("root/etc-link")).unwrap();
    let storage = &prison.storage;
    assert_eq!(
        errno(storage.open_read(path("etc-link/passwd"))),
        Some(Errno::NOENT)
    );
    fs::create_dir(prison.at("root/etc")).unwrap();
    fs::write(prison.at("root/etc/passwd"), b"ours").unwrap();
    assert_eq!(
        content(&storage.open_read(path("etc-link/passwd")).unwrap()),
        b"ours"
    );
    let facts = storage.stat(path("etc-link")).unwrap();
    assert_eq!(facts.link_target.as_deref(), Some(path("/etc")));
    assert_eq!(
        facts.inode,
        fs::metadata(prison.at("root/etc")).unwrap().ino()
    );
}

#[test]
fn dot_dot_at_the_root_stays_there() {
    let prison = Prison::new();
    for same in [
        "inside",
        "/inside",
        "../inside",
        "/../../inside",
        "dir/../../inside",
    ] {
        assert_eq!(
            content(&prison.storage.open_read(path(same)).unwrap()),
            b"inside",
            "{same}"
        );
    }
}

#[test]
fn magic_links_are_refused() {
    let prison = Prison::new();
    let proc = open(path("/proc"), PosixOptions::default()).unwrap();
    let before = prison.state_outside();
    let outside = prison.outside();
    for magic in [
        "self/root".to_owned(),
        "self/cwd".to_owned(),
        format!("self/root{outside}"),
        format!("self/root{outside}/leaf"),
        format!("thread-self/root{outside}/tree/leaf"),
        format!("self/root{outside}/new"),
    ] {
        let path = Path::new(&magic);
        let refused = Some(Errno::LOOP);
        assert_eq!(errno(proc.open_read(path)), refused, "{magic}");
        assert_eq!(errno(proc.stat(path)), refused, "{magic}");
        assert_eq!(errno(proc.list(path)), refused, "{magic}");
        assert_eq!(
            errno(write(&proc, path, b"overwritten")),
            refused,
            "{magic}"
        );
        assert_eq!(errno(proc.truncate(path, 1)), refused, "{magic}");
        assert_eq!(errno(proc.set_mode(path, 0o777)), refused, "{magic}");
        assert_eq!(errno(proc.set_group(path, "0")), refused, "{magic}");
        assert_eq!(
            errno(proc.set_modified(path, UNIX_EPOCH)),
            refused,
            "{magic}"
        );
    }
    let leaf = format!("self/root{outside}/leaf");
    let leaf = Path::new(&leaf);
    let refused = Some(Errno::LOOP);
    assert_eq!(errno(proc.make_directory(leaf)), refused);
    assert_eq!(errno(proc.remove_file(leaf)), refused);
    assert_eq!(errno(proc.remove_directory(leaf)), refused);
    assert_eq!(errno(proc.remove_tree(leaf, &|| false)), refused);
    assert_eq!(errno(proc.rename(leaf, leaf)), refused);
    assert_eq!(errno(proc.symlink(path("x"), leaf)), refused);
    assert_eq!(prison.state_outside(), before);
}

#[test]
fn a_directory_swapped_for_a_link_leads_nowhere() {
    let prison = Prison::new();
    let stock = prison.at("stock");
    fs::create_dir(&stock).unwrap();
    let swap = prison.at("root/swap");
    let before = prison.state_outside();
    let disturb = |round: usize| {
        let directory = stock.join(format!("directory{round}"));
        let link = stock.join(format!("link{round}"));
        fs::create_dir_all(directory.join("tree")).unwrap();
        fs::write(directory.join("leaf"), b"inside").unwrap();
        fs::write(directory.join("tree/leaf"), b"inside").unwrap();
        symlink("../outside", &link).unwrap();
        let _ = fs::rename(&directory, &swap);
        for _ in 0..20 {
            // It may be missing, because it is removed concurrently.
            let _ = renameat_with(CWD, &link, CWD, &swap, RenameFlags::EXCHANGE);
        }
        let _ = fs::rename(&swap, stock.join(format!("used{round}")));
    };
    let paths = [
        "swap",
        "swap/leaf",
        "swap/tree",
        "swap/tree/leaf",
        "swap/new",
    ];
    while_disturbed(500, disturb, |round| {
        prison.try_everything(Path::new(paths[round % paths.len()]));
    });
    assert_eq!(prison.state_outside(), before);
}

#[test]
fn a_directory_moved_out_of_the_root_takes_no_session_along() {
    let prison = Prison::new();
    fs::create_dir_all(prison.at("root/a/b/c")).unwrap();
    let inside = prison.at("root/a/b");
    let moved = prison.at("moved");
    let disturb = |_| {
        fs::rename(&inside, &moved).unwrap();
        fs::rename(&moved, &inside).unwrap();
    };
    // Seen from the place that `b` is moved to, its `..` contains `outside`. The path is long, so that there is time to move
    // it during the resolution.
    let hostile = "a/b/".to_owned() + &"c/../".repeat(500) + "../outside/leaf";
    while_disturbed(2000, disturb, |_| {
        if let Ok(file) = prison.storage.open_read(path(&hostile)) {
            panic!("the outside was read: {:?}", content(&file));
        }
    });
}

#[test]
fn renames_elsewhere_have_no_effect() {
    let prison = Prison::new();
    let (one, other) = (prison.at("one"), prison.at("other"));
    fs::write(&one, b"").unwrap();
    let disturb = |_| {
        fs::rename(&one, &other).unwrap();
        fs::rename(&other, &one).unwrap();
    };
    while_disturbed(5000, disturb, |_| {
        // Resolving `..` fails during a rename, and is repeated.
        prison
            .storage
            .open_read(path("dir/../dir/../dir/../inside"))
            .unwrap();
    });
}
