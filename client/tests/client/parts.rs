//! `gridhaul copy --offset --length`, and `-off` and `-len` of globus-url-copy, with our server and the real one.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;

use gridhaul_interop::Kind;

use crate::scripted::{Scripted, gridhaul};
use crate::site::{SIZE, Site, texts};

/// The size of the copy before: larger than the parts, smaller than the source.
const BEFORE: usize = 2_000_000;

/// A copy that had `BEFORE` bytes, with this part of the source.
fn expected(source: &[u8], offset: usize, length: usize) -> Vec<u8> {
    let end = source.len().min(offset + length);
    let mut copy = vec![b'-'; BEFORE.max(end)];
    copy[offset..end].copy_from_slice(&source[offset..end]);
    if offset > BEFORE {
        copy[BEFORE..offset].fill(0);
    }
    copy
}

#[test]
fn a_part_goes_to_its_place_and_the_rest_stays() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let source = fs::read(site.local("source")).unwrap();
        site.must(&["copy", "source", &site.server.url("source")]);
        for mode in [&["--mode", "stream"][..], &["--parallel", "3"]] {
            for (offset, length) in [(0, 100), (1_048_575, 70_001), (3_000_000, 9_000_000)] {
                let words = format!("{kind:?} {mode:?} {offset} {length}");
                let copy = expected(&source, offset, length);
                let (offset, length) = (offset.to_string(), length.to_string());
                let part = ["--offset", &offset, "--length", &length];
                let (there, from) = (site.server.url("there"), site.server.url("source"));
                let ways = [("source", there.as_str()), (&from, &there), (&from, "here")];
                for (from, to) in ways {
                    let path = match to {
                        "here" => site.local("here"),
                        _ => site.served("there"),
                    };
                    fs::write(&path, vec![b'-'; BEFORE]).unwrap();
                    let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
                    fs::set_permissions(&path, anyone).unwrap();
                    site.must(&[&["copy"], mode, &part, &[from, to]].concat());
                    let found = fs::read(&path).unwrap();
                    assert!(found == copy, "{words}: {from} -> {to}");
                }
            }
        }
    }
}

#[test]
fn parts_are_compared_by_checksum() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let part = ["--offset", "1000", "--length", "5000", "--checksum", "md5"];
    for (from, to) in [(url.as_str(), "back"), (&url, &site.server.url("b"))] {
        let lines = site.must(&[&["copy", "--json"], &part[..], &[from, to]].concat());
        assert!(lines.contains(r#""bytes":5000"#), "{lines}");
        assert!(lines.contains(r#""checksum":""#), "{lines}");
    }
}

#[test]
fn a_part_past_the_end_is_empty() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let past = (SIZE + 1).to_string();
    let lines = site.must(&["copy", "--json", "--offset", &past, &url, "back"]);
    assert!(lines.contains(r#""bytes":0"#), "{lines}");
    assert_eq!(fs::metadata(site.local("back")).unwrap().len(), 0);
}

#[test]
fn a_server_that_has_no_parts_is_told_apart() {
    let data = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = data.local_addr().unwrap().port();
    let server = Scripted::start(Box::new(move |line, stream| {
        let reply = match line.split(' ').next() {
            Some("SIZE") => "213 10".to_owned(),
            Some("PASV") => format!("227 (127,0,0,1,{},{})", port / 256, port % 256),
            _ => return false,
        };
        stream.write_all(format!("{reply}\r\n").as_bytes()).is_ok()
    }));
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("a");
    let copy = copy.to_str().unwrap();
    let output = gridhaul(&["copy", "--length", "5", &server.url("a"), copy]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("refused ERET"), "{stderr}");
    for options in [
        &["--offset", "1", "--resume"][..],
        &["--length", "1", "--sync"],
        &["--length", "1", "--recursive"],
        &["--offset", "-1"],
        &["--offset", "9223372036854775808"],
    ] {
        let output = gridhaul(&[&["copy"], options, &["a", &server.url("a")]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
    let several = ["copy", "--offset", "1", "a", "b", &server.url("")];
    let (_, stderr) = texts(&gridhaul(&several));
    assert!(stderr.contains("name one source"), "{stderr}");
}
