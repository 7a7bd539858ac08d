//! Memory, stack and descriptors do not grow with the size of directories and trees.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gridhaul_storage::{Entries, PosixOptions, PosixStorage, Storage as _};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use tempfile::TempDir;

/// Both tests measure the process, so they must not run concurrently.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_long_listing_takes_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const FILES: usize = 20_000;
    let directory = TempDir::new().unwrap();
    let name = |number| format!("{number:05}{}", "n".repeat(200));
    for number in 0..FILES {
        fs::write(directory.path().join(name(number)), b"").unwrap();
    }
    let storage = PosixStorage::open(directory.path(), PosixOptions::default()).unwrap();
    let mut entries = Entries::new(storage.list(Path::new("/")).unwrap(), 256);
    let mut seen = vec![false; FILES];
    let before = resident_bytes();
    while let Some(entry) = entries.next_entry().unwrap() {
        let number: usize = entry.name.to_str().unwrap()[..5].parse().unwrap();
        assert!(
            !std::mem::replace(&mut seen[number], true),
            "{number} came twice"
        );
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(seen.into_iter().all(|seen| seen));
    // The names alone are 4 MB.
    assert!(grown < 1_000_000, "{grown} bytes");
}

#[test]
fn a_deep_tree_takes_no_stack_and_no_descriptors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const LEVELS: usize = 10_000;
    let directory = TempDir::new().unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut level = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
    for depth in 0..LEVELS {
        rustix::fs::mkdirat(&level, "d", Mode::RWXU).unwrap();
        if depth % 100 == 0 {
            rustix::fs::mkdirat(&level, "e", Mode::RWXU).unwrap();
        }
        level = rustix::fs::openat(&level, "d", flags, Mode::empty()).unwrap();
    }
    drop(level);
    let few = Rlimit {
        current: Some(64),
        ..rustix::process::getrlimit(Resource::Nofile)
    };
    rustix::process::setrlimit(Resource::Nofile, few).unwrap();
    let storage = PosixStorage::open(directory.path(), PosixOptions::default()).unwrap();
    let remover = std::thread::Builder::new().stack_size(64 * 1024);
    let remover = remover.spawn(move || {
        storage.remove_tree(Path::new("d"), &|| false).unwrap();
    });
    remover.unwrap().join().unwrap();
    rustix::fs::unlinkat(
        rustix::fs::CWD,
        directory.path().join("e"),
        AtFlags::REMOVEDIR,
    )
    .unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let resident: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    resident * rustix::param::page_size()
}
