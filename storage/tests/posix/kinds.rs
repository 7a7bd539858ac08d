//! Opening what is no regular file, and regular files in every mode.

use std::os::unix::net::UnixListener;

use gridhaul_storage::{FileKind, PosixOptions, Storage as _, WriteMode};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::{Fixture, content, errno, open, path, write_mode};

#[test]
fn directories_are_refused_in_the_systems_words() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    storage.make_directory(path("d")).unwrap();
    let error = storage.open_read(path("d")).unwrap_err();
    assert_eq!(error.to_string(), "System error in open: Is a directory");
    for mode in [WriteMode::Truncate, WriteMode::Keep] {
        assert_eq!(
            errno(storage.open_write(path("d"), mode)),
            Some(Errno::ISDIR)
        );
    }
    assert_eq!(errno(storage.truncate(path("d"), 0)), Some(Errno::ISDIR));
    assert_eq!(errno(storage.list(path("d"))), None);
}

#[test]
fn fifos_and_sockets_are_refused_without_waiting() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    rustix::fs::mkfifoat(CWD, fixture.real("fifo"), Mode::from_raw_mode(0o666)).unwrap();
    let _listener = UnixListener::bind(fixture.real("socket")).unwrap();
    let refused = Some(Errno::OPNOTSUPP);
    let everything = |name| {
        assert_eq!(errno(storage.open_read(path(name))), refused, "{name}");
        for mode in [WriteMode::Truncate, WriteMode::Keep] {
            assert_eq!(
                errno(storage.open_write(path(name), mode)),
                refused,
                "{name}"
            );
        }
        assert_eq!(errno(storage.truncate(path(name), 0)), refused, "{name}");
    };
    everything("fifo");
    everything("socket");
    // With a reader, a FIFO could be opened for writing.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let _reader = rustix::fs::open(fixture.real("fifo"), flags, Mode::empty()).unwrap();
    everything("fifo");
    // Their attributes can be seen and changed all the same.
    assert_eq!(storage.stat(path("fifo")).unwrap().kind, FileKind::Pipe);
    assert_eq!(storage.stat(path("socket")).unwrap().kind, FileKind::Other);
    storage.set_mode(path("fifo"), 0o600).unwrap();
    assert_eq!(storage.stat(path("fifo")).unwrap().mode, 0o600);
    storage.remove_file(path("fifo")).unwrap();
}

#[test]
fn devices_are_refused() {
    let devices = open(path("/dev"), PosixOptions::default()).unwrap();
    assert_eq!(
        errno(devices.open_read(path("null"))),
        Some(Errno::OPNOTSUPP)
    );
    assert_eq!(
        errno(devices.open_write(path("null"), WriteMode::Truncate)),
        Some(Errno::OPNOTSUPP)
    );
    assert_eq!(
        errno(devices.truncate(path("null"), 0)),
        Some(Errno::OPNOTSUPP)
    );
    assert_eq!(
        devices.stat(path("null")).unwrap().kind,
        FileKind::CharacterDevice
    );
}

#[test]
fn writing_cuts_or_keeps() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    write_mode(storage, path("f"), WriteMode::Keep, b"0123456789").unwrap();
    write_mode(storage, path("f"), WriteMode::Keep, b"abc").unwrap();
    let file = storage.open_read(path("f")).unwrap();
    assert_eq!(file.size_at_open(), 10);
    assert_eq!(content(&file), b"abc3456789");
    let file = storage.open_write(path("f"), WriteMode::Truncate).unwrap();
    assert_eq!((file.size_at_open(), file.size().unwrap()), (0, 0));
    file.close().unwrap();
    storage.truncate(path("f"), 5).unwrap();
    assert_eq!(
        content(&storage.open_read(path("f")).unwrap()),
        b"\0\0\0\0\0"
    );
    assert_eq!(
        errno(storage.truncate(path("f"), u64::MAX)),
        Some(Errno::INVAL)
    );
}
