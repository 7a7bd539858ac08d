//! Copies between two servers whose bytes go through this machine.

use std::fs;

use gridhaul_interop::{Kind, Pki, chown_to_nobody};

use crate::site::{Site, assert_same, texts};

#[test]
fn bytes_go_through_this_machine() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let [from, to] = [(), ()].map(|()| Site::gsi(kind, &[]));
        from.must(&["copy", "source", &from.server.url("file")]);
        for (name, options) in [("plain", &[][..]), ("private", &["--protect"])] {
            let (source, copy) = (from.server.url("file"), to.server.url(name));
            // Only bytes of this machine have a limit.
            let rate = ["--rate", "1G"];
            let arguments = ["copy", "--relay", "--checksum", "MD5", &source, &copy];
            from.must(&[&arguments[..], &rate, options].concat());
            assert_same(&from.local("source"), &to.served(name), options);
        }
        let part = to.server.url("part");
        let source = from.server.url("file");
        let through = ["copy", "--relay", "--rate", "1G", "--offset", "100"];
        from.must(&[&through[..], &["--length", "10", &source, &part]].concat());
        let whole = fs::read(from.local("source")).unwrap();
        let copied = fs::read(to.served("part")).unwrap();
        assert_eq!(copied[100..], whole[100..110], "{kind:?}");
    }
}

#[test]
fn the_error_is_that_of_the_server_that_failed() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    site.must(&["copy", "source", &site.server.url("file")]);
    let copy = |from: &str, to: &str| {
        let (from, to) = (site.server.url(from), site.server.url(to));
        site.fails(&["copy", "--relay", "--retry", "0", &from, &to])
    };
    let error = copy("nosuch", "copy");
    assert!(
        error.contains("source: ") && error.contains("No such file"),
        "{error}"
    );
    let error = copy("file", "nosuch/copy");
    assert!(
        error.contains("destination: ") && error.contains("No such file"),
        "{error}"
    );
}

#[test]
fn the_option_is_refused_where_it_has_no_effect() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("file");
    fs::write(site.local("list"), format!("source {url}\n")).unwrap();
    for arguments in [
        &["copy", "--relay", "source", &url][..],
        &["copy", "--relay", &url, "back"],
        &["copy", "--relay", "-", &url],
        &["copy", "--relay", &url, "-"],
        &["copy", "--relay", "--from-file", "list"],
        &["rput", "--relay", "source", &url],
        &["rget", "--relay", &url, "back"],
    ] {
        let output = site.gridhaul(arguments);
        let (_, error) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("between two servers"), "{error}");
    }
    assert!(!site.served("file").exists());
    // One of several copies is between servers.
    fs::write(site.served("there"), "content").unwrap();
    let there = site.server.url("there");
    let into = site.server.url("into/");
    fs::create_dir(site.served("into")).unwrap();
    chown_to_nobody(&site.served("into")).unwrap();
    site.must(&["copy", "--relay", "source", &there, &into]);
    assert_eq!(fs::read(site.served("into/there")).unwrap(), b"content");
    assert_same(&site.local("source"), &site.served("into/source"), &[]);
}

#[test]
fn tls_servers_copy_through_this_machine() {
    let site = Site::tls("127.0.0.1");
    fs::write(site.served("file"), "content").unwrap();
    let url = |name: &str| site.server.url(name).replace("ftp://", "ftps://");
    let ca = Pki::shared().unwrap().authority();
    let (from, to) = (url("file"), url("copy"));
    site.must(&["copy", "--relay", "--ca", ca.to_str().unwrap(), &from, &to]);
    assert_eq!(fs::read(site.served("copy")).unwrap(), b"content");
}
