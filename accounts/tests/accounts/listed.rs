//! Files and logs that the monitor opens as root for a server without permission.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gridhaul_accounts::{ListedFiles, Monitor, OpenError, may_be_appended};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Gid, Uid};

use crate::machine::{ALICE, PLACE};
use crate::{monitored, own};

static MONITOR: LazyLock<Monitor> = LazyLock::new(monitored::take_monitor);

/// The lists of the monitors; each file is in a directory of its own.
pub(crate) fn files() -> ListedFiles {
    let read = [
        "secret",
        "renewed",
        "link",
        "pipe",
        "directory",
        "exposed",
        "missing",
    ];
    let append = ["rotated", "exposed-log", "linked-log", "shared-log"];
    let path = |name: &str| Path::new(PLACE).join(format!("listed-{name}/file"));
    ListedFiles {
        read: read.map(path).into(),
        append: append.map(path).into(),
        socket: None,
        log_owner: Some(SERVER),
    }
}

/// A listed file. Its directory exists and belongs to root.
fn listed(name: &str) -> PathBuf {
    let file = Path::new(PLACE).join(format!("listed-{name}/file"));
    let directory = file.parent().unwrap();
    fs::create_dir(directory).unwrap();
    own(directory, 0, 0, 0o700);
    file
}

fn open(file: &Path) -> Result<String, OpenError> {
    let mut content = String::new();
    let place = MONITOR.place(file).expect("it is listed");
    MONITOR.open(place)?.read_to_string(&mut content).unwrap();
    Ok(content)
}

/// Runs a closure as Alice, in a thread of its own.
fn as_alice<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(ALICE.uid), Gid::from_raw(ALICE.uid));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        what()
    });
    thread.join().expect("it did not panic")
}

#[test]
fn a_listed_file_is_opened_for_a_process_without_permission() {
    let file = listed("secret");
    fs::write(&file, "key").unwrap();
    own(&file, 0, 0, 0o400);
    LazyLock::force(&MONITOR);
    let (alone, asked) = as_alice(move || (File::open(&file), open(&file)));
    assert_eq!(alone.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(asked, Ok("key".to_owned()));
}

#[test]
fn the_present_file_of_the_name_is_opened() {
    let file = listed("renewed");
    for content in ["old", "new"] {
        let new = file.with_extension("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, &file).unwrap();
        assert_eq!(open(&file).unwrap(), content);
    }
}

#[test]
fn a_place_that_the_list_does_not_have_is_refused() {
    for place in [files().read.len(), usize::MAX] {
        assert_eq!(MONITOR.open(place).unwrap_err(), OpenError::Unlisted);
        assert_eq!(MONITOR.append(place).unwrap_err(), OpenError::Unlisted);
    }
    assert_eq!(MONITOR.place(Path::new("/etc/shadow")), None);
}

#[test]
fn links_of_root_are_followed() {
    let link = listed("link");
    let archive = link.with_file_name("archive");
    fs::create_dir(&archive).unwrap();
    fs::write(archive.join("key"), "linked").unwrap();
    let absolute = archive.join("key");
    for target in [Path::new("archive/../archive/key"), &absolute] {
        symlink(target, &link).unwrap();
        assert_eq!(open(&link).unwrap(), "linked");
        fs::remove_file(&link).unwrap();
    }
    symlink("file", &link).unwrap();
    assert!(matches!(open(&link), Err(OpenError::Kernel(_))));
    fs::remove_file(&link).unwrap();

    let alices = archive.join("alices");
    fs::create_dir(&alices).unwrap();
    fs::write(alices.join("key"), "").unwrap();
    own(&alices, ALICE.uid, ALICE.uid, 0o755);
    symlink("archive/alices/key", &link).unwrap();
    assert_eq!(open(&link), Err(OpenError::Exposed));
}

#[test]
fn other_types_of_files_are_refused_at_once() {
    let pipe = listed("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(open(&pipe), Err(OpenError::NoFile));
    let directory = listed("directory");
    fs::create_dir(&directory).unwrap();
    assert_eq!(open(&directory), Err(OpenError::NoFile));
    let error = open(&Path::new(PLACE).join("listed-missing/file")).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn files_that_other_accounts_could_replace_are_refused() {
    let file = listed("exposed");
    fs::write(&file, "key").unwrap();
    let directory = file.parent().unwrap();
    for (uid, mode) in [(ALICE.uid, 0o700), (0, 0o770), (0, 0o707)] {
        own(directory, uid, ALICE.uid, mode);
        assert_eq!(open(&file), Err(OpenError::Exposed), "{uid} {mode:o}");
    }
    // In a world-writable directory with the sticky bit other accounts cannot replace root's files.
    own(directory, 0, 0, 0o1777);
    assert_eq!(open(&file).unwrap(), "key");
    // But they may have made it a second name of a file of root.
    let secret = Path::new(PLACE).join("listed-exposed-secret");
    fs::write(&secret, "secret").unwrap();
    fs::remove_file(&file).unwrap();
    fs::hard_link(&secret, &file).unwrap();
    assert_eq!(open(&file), Err(OpenError::Exposed));
    fs::remove_file(&secret).unwrap();
    assert_eq!(open(&file).unwrap(), "secret");
    own(&file, ALICE.uid, ALICE.uid, 0o400);
    assert_eq!(open(&file), Err(OpenError::Exposed));
}

/// The account of the server, to which logs may belong.
const SERVER: u32 = 65_534;

/// Appends a line to a log that the monitor opens.
fn append(log: &Path, line: &str) -> Result<(), OpenError> {
    let place = MONITOR.place_of_log(log).expect("it is listed");
    writeln!(MONITOR.append(place)?, "{line}").unwrap();
    Ok(())
}

#[test]
fn a_log_is_created_anew_and_only_appended_to() {
    let log = listed("rotated");
    assert_eq!(MONITOR.place(&log), None, "it cannot be read");
    LazyLock::force(&MONITOR);
    for name in ["one", "two"] {
        assert_eq!(may_be_appended(&log, Some(SERVER)), Ok(()));
        let asked = {
            let log = log.clone();
            as_alice(move || (append(&log, "first"), append(&log, "second")))
        };
        assert_eq!(asked, (Ok(()), Ok(())));
        assert_eq!(fs::read_to_string(&log).unwrap(), "first\nsecond\n");
        let mode = fs::metadata(&log).unwrap().permissions().mode();
        assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
        fs::rename(&log, log.with_file_name(name)).unwrap();
    }
}

#[test]
fn a_log_that_other_accounts_could_replace_or_create_is_refused() {
    let log = listed("exposed-log");
    let directory = log.parent().unwrap();
    for mode in [0o700, 0o770] {
        own(directory, ALICE.uid, ALICE.uid, mode);
        assert_eq!(append(&log, "x"), Err(OpenError::Exposed), "{mode:o}");
        assert_eq!(may_be_appended(&log, Some(SERVER)), Err(OpenError::Exposed));
    }
    assert!(!log.exists());
    own(directory, 0, 0, 0o755);
    fs::write(&log, "").unwrap();
    own(&log, ALICE.uid, ALICE.uid, 0o600);
    let denied = OpenError::Kernel(rustix::io::Errno::ACCESS.raw_os_error());
    assert_eq!(append(&log, "x"), Err(denied.clone()));
    assert_eq!(
        may_be_appended(&log, Some(SERVER)),
        Err(denied),
        "the check has the same result"
    );
}

#[test]
fn a_link_of_root_leads_to_the_log_and_one_of_others_is_refused() {
    let link = listed("linked-log");
    symlink("elsewhere", &link).unwrap();
    append(&link, "x").unwrap();
    let elsewhere = link.with_file_name("elsewhere");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "x\n");
    let alices = link.with_file_name("alices");
    fs::create_dir(&alices).unwrap();
    own(&alices, ALICE.uid, ALICE.uid, 0o755);
    fs::remove_file(&link).unwrap();
    symlink("alices/log", &link).unwrap();
    assert_eq!(append(&link, "x"), Err(OpenError::Exposed));
}

/// As `/var/log` of Ubuntu, to which the group `syslog` may write.
#[test]
fn in_a_directory_of_others_a_log_is_opened_and_what_they_put_there_is_not() {
    let log = listed("shared-log");
    let directory = log.parent().unwrap();
    let secret = Path::new(PLACE).join("listed-shared-secret");
    fs::write(&secret, "secret").unwrap();
    for mode in [0o775, 0o1777, 0o777] {
        own(directory, 0, ALICE.uid, mode);
        assert_eq!(may_be_appended(&log, Some(SERVER)), Ok(()));
        append(&log, "one").unwrap();
        append(&log, "two").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        assert_eq!(may_be_appended(&log, Some(SERVER)), Ok(()));
        // Root may write to it without ignoring permissions, as after logrotate's `create`.
        own(&log, SERVER, 0, 0o660);
        append(&log, "three").unwrap();

        let refused = |log: &Path| {
            assert_eq!(append(log, "x"), Err(OpenError::Planted), "{mode:o}");
            assert_eq!(may_be_appended(log, Some(SERVER)), Err(OpenError::Planted));
            fs::remove_file(log).unwrap();
        };
        own(&log, ALICE.uid, ALICE.uid, 0o666);
        refused(&log);
        for target in [&secret, &directory.join("new")] {
            symlink(target, &log).unwrap();
            lchown(&log, Some(ALICE.uid), None).unwrap();
            refused(&log);
        }
        fs::hard_link(&secret, &log).unwrap();
        refused(&log);
        mknodat(CWD, &log, FileType::Fifo, Mode::RUSR, 0).unwrap();
        lchown(&log, Some(ALICE.uid), None).unwrap();
        refused(&log);
        assert!(!directory.join("new").exists());
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
}
