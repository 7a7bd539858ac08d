//! Listings.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use gridhaul_storage::{FileKind, Metadata, Storage as _};
use rustix::io::Errno;

use crate::{Fixture, entries, errno, is_superuser, path, write};

#[test]
fn entries_have_the_facts_of_stat() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"content").unwrap();
    storage.make_directory(path("d")).unwrap();
    write(storage, path("d/inner"), b"").unwrap();
    symlink("d", fixture.real("relative")).unwrap();
    symlink("/f", fixture.real("absolute")).unwrap();
    symlink("../f", fixture.real("d/up")).unwrap();
    symlink("../../../d", fixture.real("d/far-up")).unwrap();
    for (directory, count) in [("/", 4), ("d", 3), ("relative", 3), ("/d/.", 3)] {
        let listed = entries(storage, path(directory)).unwrap();
        assert_eq!(listed.len(), count, "{directory}");
        for entry in listed {
            let single = storage.stat(&path(directory).join(&entry.name)).unwrap();
            assert_eq!(entry.metadata, single, "{entry:?}");
        }
    }
}

#[test]
fn links_that_lead_nowhere_are_shown_as_links() {
    let fixture = Fixture::new();
    for (link, target) in [("dangling", "no"), ("loop", "loop"), ("out", "/etc/passwd")] {
        symlink(target, fixture.real(link)).unwrap();
        let listed = entries(&fixture.storage, path("/")).unwrap();
        let real = fs::symlink_metadata(fixture.real(link)).unwrap();
        let Metadata {
            kind,
            inode,
            link_target,
            ..
        } = &listed[0].metadata;
        assert_eq!((*kind, *inode), (FileKind::Symlink, real.ino()));
        assert_eq!(link_target.as_deref(), Some(path(target)));
        fs::remove_file(fixture.real(link)).unwrap();
    }
}

#[test]
fn what_cannot_be_listed() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write(storage, path("f"), b"").unwrap();
    storage.make_directory(path("d")).unwrap();
    write(storage, path("d/f"), b"").unwrap();
    assert_eq!(errno(storage.list(path("f"))), Some(Errno::NOTDIR));
    assert_eq!(errno(storage.list(path("no"))), Some(Errno::NOENT));
    assert!(entries(storage, path("d")).unwrap().len() == 1);
    if !is_superuser() {
        storage.set_mode(path("d"), 0o300).unwrap();
        assert_eq!(errno(storage.list(path("d"))), Some(Errno::ACCESS));
        // The names can be read but not the metadata: an error is better than an empty listing.
        storage.set_mode(path("d"), 0o600).unwrap();
        assert_eq!(errno(entries(storage, path("d"))), Some(Errno::ACCESS));
        storage.set_mode(path("d"), 0o700).unwrap();
    }
}
