//! The permissions of accounts, and which accounts may be used.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use gridhaul_accounts::{AccountError, Refusal};
use gridhaul_storage::{Storage as _, WriteMode};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::machine::{ALICE, BARRED, BOB, CAROL, DISABLED, EXPIRED, PLACE, TEAM};
use crate::{
    ACCOUNTS, BROKERS_DESCRIPTORS, Served, accounts, content, directory_of, errno, names, own,
    path, request, status, wait_for_few_descriptors, write,
};

#[test]
fn new_files_belong_to_the_account_and_its_group() {
    for account in [ALICE, BOB, CAROL] {
        let served = Served::new(account);
        let storage = &served.storage;
        write(storage, path("file"), b"content").unwrap();
        storage.make_directory(path("directory")).unwrap();
        storage.symlink(path("file"), path("link")).unwrap();
        for (name, mode) in [("file", 0o640), ("directory", 0o750), ("link", 0o777)] {
            let facts = fs::symlink_metadata(served.real(name)).unwrap();
            assert_eq!((facts.uid(), facts.gid()), (account.uid, account.uid));
            assert_eq!(facts.mode() & 0o777, mode, "{name}");
        }
        let facts = storage.stat(path("file")).unwrap();
        assert_eq!(facts.owner.name.as_deref(), Some(account.name));
        assert_eq!(facts.group.name.as_deref(), Some(account.name));
        storage.set_mode(path("file"), 0o400).unwrap();
        assert!(!storage.stat(path("file")).unwrap().access.write);
        assert_eq!(
            content(&storage.open_read(path("link")).unwrap()),
            b"content"
        );
    }
}

#[test]
fn accounts_open_their_files_past_the_page_cache() {
    let served = Served::new(ALICE);
    let storage = &served.storage;
    // A short file is opened once.
    write(storage, path("file"), &[7; 64 << 10]).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let has_direct = rustix::fs::open(served.real("file"), flags, Mode::empty()).is_ok();
    let read = storage.open_read_direct(path("file")).unwrap();
    assert_eq!(read.direct().is_some(), has_direct);
    let written = storage.open_write_direct(path("file"), WriteMode::Keep);
    assert_eq!(written.unwrap().direct().is_some(), has_direct);
    // The second descriptor has the access mode of the first.
    storage.set_mode(path("file"), 0o200).unwrap();
    let file = storage.open_write_direct(path("file"), WriteMode::Keep);
    assert_eq!(file.unwrap().direct().is_some(), has_direct);
    assert_eq!(
        errno(storage.open_read_direct(path("file"))),
        Some(Errno::ACCESS)
    );
}

#[test]
fn a_missing_file_is_made_only_if_the_mode_says_so() {
    let served = Served::new(ALICE);
    let storage = &served.storage;
    let open = |mode| storage.open_write(path("file"), mode);
    assert_eq!(errno(open(WriteMode::Existing)), Some(Errno::NOENT));
    open(WriteMode::Keep).unwrap();
    open(WriteMode::Existing).unwrap();
}

#[test]
fn attributes_are_read_and_set_with_the_permissions_of_the_account() {
    let place = directory_of(0, 0, 0o755);
    let file = place.path().join("file");
    fs::write(&file, "content").unwrap();
    own(&file, BOB.uid, BOB.uid, 0o644);
    let open = |name| ACCOUNTS.open(&request(name, place.path())).unwrap();
    let (alice, bob) = (open(ALICE.name), open(BOB.name));
    let set = bob.set_checksum_attribute(path("file"), Some(b"value"));
    if errno(set) == Some(Errno::OPNOTSUPP) {
        gridhaul_skip::skipped("no extended attributes where temporary files are");
        return;
    }
    let read = alice.checksum_attribute(path("file")).unwrap();
    assert_eq!(read.as_deref(), Some(&b"value"[..]));
    let denied = Some(Errno::ACCESS);
    assert_eq!(
        errno(alice.set_checksum_attribute(path("file"), None)),
        denied
    );
    own(&file, BOB.uid, BOB.uid, 0o600);
    assert_eq!(errno(alice.checksum_attribute(path("file"))), denied);
    bob.set_checksum_attribute(path("file"), None).unwrap();
    assert_eq!(bob.checksum_attribute(path("file")).unwrap(), None);
}

#[test]
fn the_kernel_refuses_calls_without_permission() {
    let place = directory_of(0, 0, 0o755);
    let bobs = place.path().join("bobs");
    fs::write(&bobs, "secret").unwrap();
    own(&bobs, BOB.uid, BOB.uid, 0o600);
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    own(&closed, BOB.uid, BOB.uid, 0o700);
    let open = |name| ACCOUNTS.open(&request(name, place.path())).unwrap();
    let (alice, bob) = (open(ALICE.name), open(BOB.name));

    assert_eq!(content(&bob.open_read(path("bobs")).unwrap()), b"secret");
    bob.make_directory(path("closed/d")).unwrap();
    let error = alice.open_read(path("bobs")).unwrap_err();
    assert_eq!(error.to_string(), "System error in open: Permission denied");
    let denied = Some(Errno::ACCESS);
    assert_eq!(errno(write(&alice, path("bobs"), b"")), denied);
    assert_eq!(errno(alice.truncate(path("bobs"), 0)), denied);
    assert_eq!(errno(alice.list(path("closed"))), denied);
    assert_eq!(errno(alice.stat(path("closed/d"))), denied);
    assert_eq!(errno(alice.make_directory(path("new"))), denied);
    assert_eq!(errno(alice.remove_file(path("bobs"))), denied);
    assert_eq!(errno(alice.rename(path("bobs"), path("new"))), denied);
    assert_eq!(
        errno(alice.set_mode(path("bobs"), 0o666)),
        Some(Errno::PERM)
    );
    assert_eq!(fs::read(&bobs).unwrap(), b"secret");
    // The account may see the metadata, which includes its access.
    assert_eq!(names(&alice, path("/")).unwrap().len(), 2);
    assert!(!alice.stat(path("bobs")).unwrap().access.read);
    assert!(bob.stat(path("bobs")).unwrap().access.read);
}

#[test]
fn an_account_has_its_supplementary_groups() {
    let place = directory_of(0, TEAM.1, 0o2770);
    let open = |account| ACCOUNTS.open(&request(account, place.path()));
    let alice = open(ALICE.name).unwrap();
    write(&alice, path("shared"), b"ours").unwrap();
    assert!(alice.stat(path("/")).unwrap().access.write);
    let bob = open(BOB.name).unwrap();
    assert_eq!(content(&bob.open_read(path("shared")).unwrap()), b"ours");
    let refused = open(CAROL.name).unwrap_err();
    assert!(
        refused.to_string().contains("Permission denied"),
        "{refused}"
    );

    let served = Served::new(ALICE);
    write(&served.storage, path("f"), b"").unwrap();
    served.storage.set_group(path("f"), TEAM.0).unwrap();
    let group = served.storage.stat(path("f")).unwrap().group;
    assert_eq!((group.id, group.name.as_deref()), (TEAM.1, Some(TEAM.0)));
    let foreign = served.storage.set_group(path("f"), CAROL.name);
    assert_eq!(errno(foreign), Some(Errno::PERM));
}

#[test]
fn a_read_only_account_changes_nothing() {
    let served = Served::new(ALICE);
    write(&served.storage, path("f"), b"content").unwrap();
    let mut request = request(ALICE.name, served.directory.path());
    request.read_only = true;
    let reader = ACCOUNTS.open(&request).unwrap();
    assert_eq!(content(&reader.open_read(path("f")).unwrap()), b"content");
    let denied = Some(Errno::ACCESS);
    assert_eq!(errno(write(&reader, path("f"), b"")), denied);
    assert_eq!(errno(reader.remove_tree(path("f"), &|| false)), denied);
    assert_eq!(errno(reader.set_mode(path("f"), 0o777)), denied);
    assert!(!reader.stat(path("f")).unwrap().access.write);
}

#[test]
fn the_root_is_opened_as_the_account() {
    let bobs = directory_of(BOB.uid, BOB.uid, 0o700);
    let refused = ACCOUNTS
        .open(&request(ALICE.name, bobs.path()))
        .unwrap_err();
    let text = refused.to_string();
    assert!(matches!(
        refused,
        AccountError::Refused(Refusal::Directory { .. })
    ));
    for word in [
        ALICE.name,
        bobs.path().to_str().unwrap(),
        "Permission denied",
    ] {
        assert!(text.contains(word), "{text}");
    }
    let missing = ACCOUNTS
        .open(&request(ALICE.name, "/nonexistent"))
        .unwrap_err();
    assert!(missing.to_string().contains("No such file or directory"));
    let relative = ACCOUNTS.open(&request(ALICE.name, "")).unwrap_err();
    assert!(matches!(
        relative,
        AccountError::Refused(Refusal::Directory { .. })
    ));
}

#[test]
fn a_session_begins_at_home() {
    let begins = |root: &Path| ACCOUNTS.open(&request(ALICE.name, root)).unwrap().home();
    assert_eq!(begins(path("/")), path(&ALICE.home()));
    assert_eq!(begins(path(PLACE)), path("/home").join(ALICE.name));
    assert_eq!(begins(path("$HOME")), path("/"));
    assert_eq!(begins(&path(PLACE).join("home/$USER")), path("/"));
    let elsewhere = directory_of(ALICE.uid, ALICE.uid, 0o700);
    assert_eq!(begins(elsewhere.path()), path("/"));
    // In a root with all home directories, those of other accounts are inaccessible.
    let all = ACCOUNTS.open(&request(ALICE.name, PLACE)).unwrap();
    let bobs = format!("home/{}", BOB.name);
    assert_eq!(errno(all.list(path(&bobs))), Some(Errno::ACCESS));
    all.list(&all.home()).unwrap();
}

#[test]
fn accounts_that_may_not_be_used_are_refused_with_the_reason() {
    for (account, words) in [
        ("root", "allow-root"),
        ("daemon", "least-uid"),
        ("no-such-account", "no local account"),
        (DISABLED.name, "/nonexistent/shell"),
        (EXPIRED.name, "has expired"),
        (BARRED.name, "PAM's service 'gridhaul-tests' refuses"),
    ] {
        for _ in 0..2 {
            let refused = ACCOUNTS.open(&request(account, "/")).unwrap_err();
            assert!(matches!(refused, AccountError::Refused(_)), "{refused:?}");
            let text = refused.to_string();
            assert!(text.contains(account) && text.contains(words), "{text}");
        }
    }
    let too_long = "/".repeat(5000);
    ACCOUNTS.open(&request(ALICE.name, too_long)).unwrap_err();
    let too_long = "a".repeat(20_000);
    ACCOUNTS.open(&request(&too_long, "/")).unwrap_err();
}

#[test]
fn nothing_outside_the_root_is_opened() {
    let served = Served::new(ALICE);
    let storage = &served.storage;
    symlink("/etc/passwd", served.real("absolute")).unwrap();
    symlink("../../../../etc/passwd", served.real("relative")).unwrap();
    symlink("/proc/self/root/etc/passwd", served.real("magic")).unwrap();
    let missing = Some(Errno::NOENT);
    for outside in [
        "absolute",
        "relative",
        "magic",
        "/etc/passwd",
        "../../etc/passwd",
        "/../../../../etc/passwd",
    ] {
        assert_eq!(
            errno(storage.open_read(path(outside))),
            missing,
            "{outside}"
        );
        assert_eq!(errno(storage.stat(path(outside))), missing, "{outside}");
        assert_eq!(
            errno(storage.truncate(path(outside), 0)),
            missing,
            "{outside}"
        );
    }
}

#[test]
fn a_broker_has_the_rights_of_its_account_and_no_others() {
    let served = Served::new(ALICE);
    let pid = served.storage.broker().unwrap();
    let four = |id: u32| [id; 4].map(|id| id.to_string()).join("\t");
    assert_eq!(status(pid, "Uid"), four(ALICE.uid));
    assert_eq!(status(pid, "Gid"), four(ALICE.uid));
    let groups = status(pid, "Groups");
    let groups: BTreeSet<u32> = groups.split(' ').map(|id| id.parse().unwrap()).collect();
    assert_eq!(groups, BTreeSet::from([ALICE.uid, TEAM.1]));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    // The /proc files of a process that is not dumpable belong to root.
    assert_eq!(
        fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid(),
        0
    );
    // It has the monitor's filter and its own.
    assert_eq!(
        (status(pid, "Seccomp"), status(pid, "Seccomp_filters")),
        ("2".into(), "2".into())
    );
    wait_for_few_descriptors(pid, BROKERS_DESCRIPTORS);
}

#[test]
fn the_monitor_keeps_what_it_needs_of_root() {
    let accounts = accounts(1, Duration::from_secs(600));
    let served = Served::by(&accounts, ALICE);
    let broker = served.storage.broker().unwrap();
    let monitor = status(broker, "PPid").parse().unwrap();
    let kept = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_READ_SEARCH;
    let kept = format!("{:016x}", kept.bits());
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(status(monitor, set), kept, "{set}");
    }
    assert_eq!(status(monitor, "NoNewPrivs"), "1");
    assert_eq!(status(monitor, "Threads"), "1");
    // Standard descriptors, the socket to the server, and a pidfd of the broker.
    wait_for_few_descriptors(monitor, 3 + 1 + 1);
}
