//! Removing trees, also while other programs change them.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;

use gridhaul_storage::Storage as _;
use rustix::io::Errno;

use crate::{Fixture, errno, is_superuser, path, while_disturbed, write};

fn plant(fixture: &Fixture) {
    for directory in ["t/a/b/c", "t/a/d", "t/e", "t/f"] {
        fs::create_dir_all(fixture.real(directory)).unwrap();
        for file in 0..10 {
            fs::write(fixture.real(directory).join(format!("file{file}")), b"x").unwrap();
        }
    }
}

#[test]
fn files_links_and_trees_go() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    fs::create_dir(fixture.real("kept")).unwrap();
    fs::write(fixture.real("kept/file"), b"x").unwrap();
    plant(&fixture);
    symlink("../kept", fixture.real("t/link")).unwrap();
    symlink("/kept", fixture.real("link")).unwrap();
    write(storage, path("file"), b"x").unwrap();
    for gone in ["link", "file", "t"] {
        storage.remove_tree(path(gone), &|| false).unwrap();
        assert!(fs::symlink_metadata(fixture.real(gone)).is_err(), "{gone}");
    }
    assert!(fixture.real("kept/file").exists());
    assert_eq!(
        errno(storage.remove_tree(path("t"), &|| false)),
        Some(Errno::NOENT)
    );
}

#[test]
fn cancelled_between_two_entries() {
    let fixture = Fixture::new();
    plant(&fixture);
    let asked = Cell::new(0);
    let after_five = || {
        asked.set(asked.get() + 1);
        asked.get() > 5
    };
    let result = fixture.storage.remove_tree(path("t"), &after_five);
    assert_eq!(errno(result), Some(Errno::CANCELED));
    let left = crate::snapshot(fixture.directory.path()).len();
    // There were 46 entries, and each call of `cancelled` allowed the removal of one.
    assert!((41..46).contains(&left), "{left}");
    fixture.storage.remove_tree(path("t"), &|| false).unwrap();
}

#[test]
fn directories_that_cannot_be_read() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    plant(&fixture);
    storage.make_directory(path("t/empty")).unwrap();
    storage.set_mode(path("t/empty"), 0o000).unwrap();
    storage.remove_tree(path("t/empty"), &|| false).unwrap();
    if !is_superuser() {
        storage.set_mode(path("t/f"), 0o000).unwrap();
        let error = storage.remove_tree(path("t"), &|| false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "System error in scandir: Permission denied"
        );
        storage.set_mode(path("t/f"), 0o700).unwrap();
    }
    storage.remove_tree(path("t"), &|| false).unwrap();
}

#[test]
fn a_directory_swapped_for_a_link_is_not_followed() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.real("kept")).unwrap();
    fs::write(fixture.real("kept/file"), b"x").unwrap();
    for directory in ["t/a", "t/b"] {
        fs::create_dir_all(fixture.real(directory)).unwrap();
    }
    let asked = Cell::new(0);
    // At the second call of `cancelled` the names of both have been read, and one has been entered.
    let swap = || {
        asked.set(asked.get() + 1);
        if asked.get() == 2 {
            for name in ["a", "b"] {
                let directory = fixture.real("t").join(name);
                fs::rename(&directory, fixture.real(name)).unwrap();
                symlink("../kept", directory).unwrap();
            }
        }
        false
    };
    fixture.storage.remove_tree(path("t"), &swap).unwrap();
    assert!(!fixture.real("t").exists());
    assert!(fixture.real("kept/file").exists());
}

#[test]
fn what_vanishes_during_a_listing_is_left_out() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    storage.make_directory(path("d")).unwrap();
    for name in ["d/a", "d/b", "d/c"] {
        write(storage, path(name), b"").unwrap();
    }
    let mut stream = storage.list(path("d")).unwrap();
    // The kernel returns all three names in one call.
    let mut run = stream.next_run(1).unwrap().unwrap();
    assert_eq!(run.count(), 3);
    storage.remove_tree(path("d"), &|| false).unwrap();
    run.entries(&mut |name, _| panic!("{name:?} is still there"))
        .unwrap();
    let rest = stream.next_run(1).map(|run| run.is_none());
    // Some file systems report a removed directory as missing, some as empty.
    assert!(matches!(
        rest.map_err(|error| error.errno),
        Ok(true) | Err(Errno::NOENT)
    ));
}

#[test]
fn what_is_added_meanwhile_goes_too() {
    let fixture = Fixture::new();
    plant(&fixture);
    let asked = Cell::new(0);
    let add = || {
        asked.set(asked.get() + 1);
        // It depends on the file system whether these are found in the same pass or in the next.
        if asked.get() % 10 == 0 && asked.get() < 60 {
            for number in 0..20 {
                let _ = fs::write(
                    fixture.real(&format!("t/late{}-{number}", asked.get())),
                    b"x",
                );
            }
        }
        false
    };
    fixture.storage.remove_tree(path("t"), &add).unwrap();
    assert!(!fixture.real("t").exists());
}

#[test]
fn others_who_keep_adding_end_it_in_time() {
    let fixture = Fixture::new();
    let add = |round| {
        // Fails while the directory is gone.
        let _ = fs::write(fixture.real(&format!("t/a/new{round}")), b"x");
    };
    while_disturbed(100, add, |_| {
        fs::create_dir_all(fixture.real("t/a")).unwrap();
        let result = fixture.storage.remove_tree(path("t"), &|| false);
        assert!(matches!(errno(result), None | Some(Errno::NOTEMPTY)));
    });
}

#[test]
fn a_subtree_moved_away_is_not_followed_back() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    // Deeper than the number of open directories, so that the way up uses `..`.
    let deep = "t/".to_owned() + &"d/".repeat(40);
    fs::create_dir_all(fixture.real(&deep)).unwrap();
    fs::create_dir_all(fixture.real("kept/t")).unwrap();
    fs::write(fixture.real("kept/t/file"), b"x").unwrap();
    fs::write(fixture.real(&deep).join("last"), b"x").unwrap();
    let asked = Cell::new(0);
    // The 41st call of `cancelled` happens at the bottom. The upper part is moved away then.
    let cut = || {
        asked.set(asked.get() + 1);
        if asked.get() == 42 {
            fs::rename(fixture.real("t/d/d"), fixture.real("kept/d")).unwrap();
        }
        false
    };
    assert_eq!(
        errno(storage.remove_tree(path("t"), &cut)),
        Some(Errno::BUSY)
    );
    assert!(fixture.real("kept/t/file").exists());
    assert!(fixture.real("t/d").exists());
}
