//! Devices and pipes of this machine as ends of a copy.

use std::fs::{self, File};
use std::io::Write as _;
use std::thread;

use gridhaul_interop::{Kind, chown_to_nobody};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::site::{Site, assert_same, texts};

fn make_fifo(site: &Site, name: &str) {
    mknodat(
        CWD,
        site.local(name),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
}

#[test]
fn the_null_device_takes_files_over_any_number_of_connections() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let url = site.server.url("a");
        site.must(&["copy", "source", &url]);
        for arguments in [
            &["copy", &url, "/dev/null"][..],
            &["copy", "--times", "--mode", "stream", &url, "/dev/null"],
            &["copy", "--parallel", "4", &url, "/dev/null"],
            &["guc", &url, "file:///dev/null"],
            &["guc", "-fast", "-p", "4", &url, "file:///dev/null"],
        ] {
            site.must(arguments);
        }
        let error = site.fails(&["copy", "--checksum", "md5", &url, "/dev/null"]);
        assert!(error.contains("it keeps nothing"), "{error}");
        fs::write(site.local("list"), format!("{url} file:///dev/null\n")).unwrap();
        site.must(&["guc", "-f", "list"]);
    }
}

#[test]
fn bytes_of_a_device_are_stored_as_many_as_are_wanted() {
    const LENGTH: u64 = 300_001;

    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let length = LENGTH.to_string();
        for (name, arguments) in [
            ("a", ["copy", "--length", &length, "/dev/zero"]),
            ("b", ["guc", "-len", &length, "file:///dev/zero"]),
        ] {
            site.must(&[&arguments[..], &[&site.server.url(name)]].concat());
            let stored = fs::read(site.served(name)).unwrap();
            assert!(stored == vec![0; 300_001], "{kind:?} {}", stored.len());
        }
        site.must(&["guc", "file:///dev/null", &site.server.url("empty")]);
        assert_eq!(fs::metadata(site.served("empty")).unwrap().len(), 0);
    }
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let offset = ["copy", "--offset", "5", "/dev/zero", &site.server.url("a")];
    let output = site.gridhaul(&offset);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("--offset is not possible with /dev/zero"),
        "{stderr}"
    );
}

#[test]
fn a_server_may_store_in_a_device() {
    // Ours refuses devices.
    let site = Site::anonymous(Kind::Globus, &[]);
    let null = site.served("null");
    mknodat(
        CWD,
        &null,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    chown_to_nobody(&null).unwrap();
    fs::set_permissions(&null, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let url = site.server.url("null");
    site.must(&["copy", "source", &url]);
    site.must(&["guc", "-len", "100000", "file:///dev/zero", &url]);
}

#[test]
fn named_pipes_go_both_ways() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    make_fifo(&site, "in");
    make_fifo(&site, "out");
    let source = fs::read(site.local("source")).unwrap();
    for options in [&[][..], &["--checksum", "md5"]] {
        let pipe = site.local("in");
        let bytes = source.clone();
        // Neither end waits for the other to be opened first.
        let writer = thread::spawn(move || File::create(pipe).unwrap().write_all(&bytes));
        site.must(&[&["copy"], options, &["in", &url]].concat());
        writer.join().unwrap().unwrap();
        assert_same(&site.local("source"), &site.served("a"), options);
        let pipe = site.local("out");
        let reader = thread::spawn(move || fs::read(pipe).unwrap());
        let said = site.must(&[&["copy"], options, &[&url, "out"]].concat());
        assert!(reader.join().unwrap() == source, "{said}");
        assert!(said.contains("-> out: "), "{said}");
    }
    // By itself only.
    let error = site.fails(&["copy", "source", "in", &site.server.url("")]);
    assert!(error.contains("copied by itself"), "{error}");
}
