//! Opening files of each type, and regular files in each mode.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use gridhaul_storage::{FileKind, PosixOptions, Storage as _, WriteMode};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, inotify};
use rustix::io::Errno;

use crate::{Fixture, content, errno, open, path, while_disturbed, write_mode};

#[test]
fn directories_are_refused_in_the_systems_words() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    storage.make_directory(path("d")).unwrap();
    let error = storage.open_read(path("d")).unwrap_err();
    assert_eq!(error.to_string(), "System error in open: Is a directory");
    for mode in [WriteMode::Truncate, WriteMode::Keep, WriteMode::Existing] {
        assert_eq!(
            errno(storage.open_write(path("d"), mode)),
            Some(Errno::ISDIR)
        );
    }
    assert_eq!(errno(storage.truncate(path("d"), 0)), Some(Errno::ISDIR));
    assert_eq!(errno(storage.list(path("d"))), None);
}

#[test]
fn only_an_existing_file_is_opened_if_the_mode_says_so() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let open = |name| storage.open_write(path(name), WriteMode::Existing);
    assert_eq!(errno(open("f")), Some(Errno::NOENT));
    assert_eq!(errno(storage.stat(path("f"))), Some(Errno::NOENT));
    write_mode(storage, path("f"), WriteMode::Keep, b"content").unwrap();
    assert_eq!(open("f").unwrap().size_at_open(), 7);
    assert_eq!(storage.stat(path("f")).unwrap().size, 7);
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
        for mode in [WriteMode::Truncate, WriteMode::Keep, WriteMode::Existing] {
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
    // With a reader, opening the FIFO for writing would succeed.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let _reader = rustix::fs::open(fixture.real("fifo"), flags, Mode::empty()).unwrap();
    everything("fifo");
    // Their metadata can be read and changed.
    assert_eq!(storage.stat(path("fifo")).unwrap().kind, FileKind::Pipe);
    assert_eq!(storage.stat(path("socket")).unwrap().kind, FileKind::Other);
    storage.set_mode(path("fifo"), 0o600).unwrap();
    assert_eq!(storage.stat(path("fifo")).unwrap().mode, 0o600);
    storage.remove_file(path("fifo")).unwrap();
}

/// Detects whether a file is opened. Opening with `O_PATH` and `stat` do not count.
struct Watch(OwnedFd);

impl Watch {
    fn of(file: &Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, file, inotify::WatchFlags::OPEN).unwrap();
        Self(watch)
    }

    fn was_opened(&self) -> bool {
        let mut events = [MaybeUninit::uninit(); 512];
        let event = inotify::Reader::new(&self.0, &mut events).next().map(drop);
        assert!(matches!(event, Ok(()) | Err(Errno::AGAIN)), "{event:?}");
        event.is_ok()
    }
}

#[test]
fn fifos_and_devices_are_not_even_opened() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    let fifo = fixture.real("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o666)).unwrap();
    // The other end is open, so opening it would succeed without the check of its type.
    let other_end = rustix::fs::open(&fifo, OFlags::RDWR, Mode::empty()).unwrap();
    let mut names = vec!["fifo"];
    let device = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(CWD, fixture.real("device"), device.0, device.1, null).is_ok() {
        names.push("device");
    } else {
        gridhaul_skip::skipped("no device can be made here");
    }
    std::fs::write(fixture.real("file"), "").unwrap();
    let watch = Watch::of(&fixture.real("file"));
    storage.open_read(path("file")).unwrap();
    assert!(watch.was_opened(), "files are opened");
    for name in names {
        let watch = Watch::of(&fixture.real(name));
        let refused = Some(Errno::OPNOTSUPP);
        assert_eq!(errno(storage.open_read(path(name))), refused);
        assert_eq!(errno(storage.open_read_direct(path(name))), refused);
        for mode in [WriteMode::Truncate, WriteMode::Keep, WriteMode::Existing] {
            assert_eq!(errno(storage.open_write(path(name), mode)), refused);
            assert_eq!(errno(storage.open_write_direct(path(name), mode)), refused);
        }
        assert_eq!(errno(storage.truncate(path(name), 0)), refused);
        assert_eq!(errno(storage.list(path(name))), Some(Errno::NOTDIR));
        assert!(!watch.was_opened(), "{name} was opened");
    }
    drop(other_end);
}

#[test]
fn a_file_that_takes_turns_with_a_fifo_is_opened_or_refused() {
    let fixture = Fixture::new();
    let storage = &fixture.storage;
    std::fs::write(fixture.real("name"), "").unwrap();
    let fifo = fixture.real("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o666)).unwrap();
    let _other_end = rustix::fs::open(&fifo, OFlags::RDWR, Mode::empty()).unwrap();
    let watch = Watch::of(&fifo);
    let swap = |_| {
        let flags = RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, &fifo, CWD, fixture.real("name"), flags).unwrap();
    };
    while_disturbed(500, swap, |_| {
        let read = errno(storage.open_read(path("name")));
        let written = errno(storage.open_write(path("name"), WriteMode::Truncate));
        for opened in [read, written] {
            assert!(
                matches!(opened, None | Some(Errno::OPNOTSUPP)),
                "{opened:?}"
            );
        }
    });
    assert!(!watch.was_opened(), "the FIFO was opened");
}

#[test]
fn files_that_the_kernel_makes_up_are_refused() {
    for (root, name) in [
        ("/proc", "self/mem"),
        ("/proc", "self/environ"),
        ("/proc", "version"),
        ("/sys", "kernel/uevent_seqnum"),
    ] {
        let Ok(kernel) = open(path(root), PosixOptions::default()) else {
            gridhaul_skip::skipped(&format!("no {root}"));
            continue;
        };
        if kernel.stat(path(name)).is_err() {
            gridhaul_skip::skipped(&format!("no {root}/{name}"));
            continue;
        }
        let error = kernel.open_read(path(name)).unwrap_err();
        assert_eq!(error.errno, Errno::ACCESS, "{name}");
        assert!(error.to_string().contains("not served"), "{error}");
        let written = kernel.open_write(path(name), WriteMode::Keep);
        assert_eq!(errno(written), Some(Errno::ACCESS), "{name}");
        assert_eq!(errno(kernel.truncate(path(name), 0)), Some(Errno::ACCESS));
    }
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
