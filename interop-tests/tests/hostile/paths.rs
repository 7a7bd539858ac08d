//! `..` and symbolic links that lead out of the root, in every command that takes a path.
//!
//! Beside the root is a directory that every user may read and write. No command may change it, or reveal
//! a name, a size or a byte of its files.

use std::io::Read;

use gridhaul_interop::raw::{get_stream, listing};

use crate::jail::{DIRECTORIES, FILES, Jail, LINKS, NEW, SECRET_NAME};

#[test]
fn retr() {
    Jail::new().receives("RETR {}", &[&FILES[..], &LINKS].concat());
}

#[test]
fn eret() {
    Jail::new().receives("ERET P 0 100 {}", &[&FILES[..], &LINKS].concat());
}

#[test]
fn stor() {
    Jail::new().sends(
        "STOR {}",
        &[&FILES[..], &LINKS, &NEW, &["dangling-link"]].concat(),
    );
}

#[test]
fn appe() {
    Jail::new().sends(
        "APPE {}",
        &[&FILES[..], &LINKS, &NEW, &["dangling-link"]].concat(),
    );
}

#[test]
fn esto() {
    Jail::new().sends(
        "ESTO A 5 {}",
        &[&FILES[..], &LINKS, &NEW, &["dangling-link"]].concat(),
    );
}

#[test]
fn size_and_mdtm() {
    let jail = Jail::new();
    jail.refused("SIZE {}", &[&FILES[..], &LINKS].concat());
    jail.refused("MDTM {}", &[&FILES[..], &LINKS].concat());
}

#[test]
fn mfmt_and_utime() {
    let jail = Jail::new();
    let names = [&FILES[..], &LINKS, &DIRECTORIES].concat();
    jail.refused("MFMT 20200102030405 {}", &names);
    jail.refused("SITE UTIME 20200102030405 {}", &names);
}

#[test]
fn mlst_and_stat() {
    let jail = Jail::new();
    let names = [&FILES[..], &DIRECTORIES].concat();
    jail.refused("MLST {}", &names);
    jail.refused("STAT {}", &names);
    // The attributes of the link itself may be shown.
    jail.control("MLST {}", &LINKS);
    jail.control("STAT {}", &LINKS);
}

#[test]
fn mlsc() {
    let jail = Jail::new();
    jail.refused("MLSC {}", &DIRECTORIES);
    jail.control("MLSC {}", &["/", ".", "..", "inside/.."]);
}

#[test]
fn mlsd() {
    Jail::new().receives(
        "MLSD {}",
        &[&DIRECTORIES[..], &["/", "..", "/inside/../.."]].concat(),
    );
}

#[test]
fn mlsr() {
    Jail::new().receives("MLSR {}", &[&DIRECTORIES[..], &["/", "inside"]].concat());
}

#[test]
fn list_and_nlst() {
    let jail = Jail::new();
    let globs = [
        "../outside/*",
        "relative-link/*",
        "absolute-link/un*",
        "*/*",
        "../*/*",
        "*",
    ];
    let names = [&DIRECTORIES[..], &["/", ".."], &globs].concat();
    jail.receives("LIST {}", &names);
    jail.receives("LIST -alR {}", &names);
    jail.receives("NLST {}", &names);
}

#[test]
fn cwd_and_cdup() {
    let jail = Jail::new();
    jail.refused("CWD {}", &DIRECTORIES);
    jail.control("CWD {} ; PWD ; SIZE unmistakable-name ; MLSC", &DIRECTORIES);
    let mut control = jail.fixture.session();
    control.must("CWD inside", 250).unwrap();
    for _ in 0..10 {
        let reply = control.command("CDUP").unwrap();
        assert!(reply.code == 250 || reply.code == 550, "{reply}");
    }
    assert_eq!(
        control.must("PWD", 257).unwrap().text(),
        "257 \"/\" is current directory."
    );
    jail.fixture.session_works(&mut control);
}

#[test]
fn mkd_and_rmd() {
    let jail = Jail::new();
    jail.refused("MKD {}", &[&NEW[..], &["dangling-link"]].concat());
    jail.refused(
        "RMD {}",
        &[
            "../outside/folder",
            "relative-link/folder",
            "absolute-link/folder",
        ],
    );
    jail.refused("RMD {}", &["..", "/", ".", "relative-link", "../outside"]);
}

#[test]
fn dele() {
    let jail = Jail::new();
    jail.refused("DELE {}", &FILES);
    // A link is a file of the root, independent of its target: the link may be removed, but not its target.
    jail.control("DELE {}", &LINKS);
}

#[test]
fn rename() {
    let jail = Jail::new();
    jail.refused("RNFR {} ; RNTO inside/stolen", &FILES);
    jail.refused("RNFR hello.txt ; RNTO {}", &NEW);
    jail.refused("RNFR hello.txt ; RNTO {}", &FILES);
    // The link itself is renamed; it still does not lead out of the root.
    let mut control = jail.fixture.session();
    if control.command("RNFR file-link").unwrap().code == 350 {
        control.must("RNTO inside/file-link", 250).unwrap();
        get_stream(&mut control, "inside/file-link").unwrap_err();
    }
    jail.intact("RNTO");
}

#[test]
fn cksm() {
    Jail::new().refused("CKSM MD5 0 -1 {}", &[&FILES[..], &LINKS].concat());
}

#[test]
fn chmod_and_chgrp() {
    let jail = Jail::new();
    let names = [&FILES[..], &LINKS, &DIRECTORIES].concat();
    jail.refused("SITE CHMOD 700 {}", &names);
    jail.refused("SITE CHGRP nogroup {}", &names);
}

#[test]
fn symlink() {
    let jail = Jail::new();
    jail.refused("SITE SYMLINKFROM hello.txt ; SITE SYMLINKTO {}", &NEW);
    // A link may have any target, but no path through it may leave the root.
    for (index, target) in [&FILES[..], &DIRECTORIES].concat().iter().enumerate() {
        let link = format!("inside/link-{index}");
        // Anonymous users cannot make it, but other users of the host can.
        std::os::unix::fs::symlink(target, jail.fixture.root().join(&link)).unwrap();
        jail.refused("SIZE {}", &[&link, &format!("{link}/{SECRET_NAME}")]);
        jail.receives("RETR {}", &[&link, &format!("{link}/{SECRET_NAME}")]);
    }
    jail.receives("MLSR {}", &["/"]);
}

#[test]
fn rdel() {
    let jail = Jail::new();
    jail.refused(
        "SITE RDEL {}",
        &[&FILES[..], &["../outside", "relative-link/folder"]].concat(),
    );
    jail.refused("SITE RDEL {}", &["/", "..", "."]);
    let inside = jail.fixture.root().join("inside");
    std::os::unix::fs::symlink("../../outside", inside.join("deep-link")).unwrap();
    std::os::unix::fs::symlink(&jail.outside, inside.join("deep-absolute-link")).unwrap();
    // The links are removed with the directory, but not their targets.
    jail.fixture
        .session()
        .must("SITE RDEL inside", 250)
        .unwrap();
    assert!(!inside.exists());
    jail.intact("SITE RDEL inside");
    jail.control("SITE RDEL {}", &["relative-link", "absolute-link"]);
}

#[test]
fn trnc() {
    Jail::new().refused("SITE TRNC 0 {}", &[&FILES[..], &LINKS].concat());
}

#[test]
fn dots_within_the_root_are_fine() {
    let jail = Jail::new();
    let mut control = jail.fixture.session();
    for name in [
        "inside/../hello.txt",
        "/inside/.././hello.txt",
        "/../hello.txt",
        ".//hello.txt",
    ] {
        assert_eq!(
            get_stream(&mut control, name).unwrap(),
            b"hello, data node\n",
            "{name}"
        );
    }
    // An absolute link resolves beneath the root, as in a chroot.
    std::os::unix::fs::symlink("/hello.txt", jail.fixture.root().join("inside/up")).unwrap();
    assert_eq!(
        get_stream(&mut control, "inside/up").unwrap(),
        b"hello, data node\n"
    );
}

#[test]
fn loops_and_magic_links_are_refused() {
    let jail = Jail::new();
    let root = jail.fixture.root();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    std::os::unix::fs::symlink(".", root.join("inside/here")).unwrap();
    std::os::unix::fs::symlink("/proc/self/root", root.join("magic")).unwrap();
    jail.refused("SIZE {}", &["loop", "loop/x", "magic/etc/passwd", "magic"]);
    let mut control = jail.fixture.session();
    let deep = format!("inside/{}../hello.txt", "here/".repeat(30));
    assert_eq!(
        get_stream(&mut control, &deep).unwrap(),
        b"hello, data node\n"
    );
    jail.refused("SIZE {}", &[&format!("inside/{}x", "here/".repeat(50))]);
    // A recursive listing ends although a link points to its own directory.
    let lines = listing(&mut control, "MLSR /").unwrap();
    assert!(lines.len() < 100_000, "{} bytes", lines.len());
}

#[test]
fn a_root_that_is_a_proc_directory_has_no_magic_links() {
    // The server's own descriptors and root in /proc must not lead out, even if /proc is served.
    let launch = gridhaul_interop::Launch::new(gridhaul_interop::Kind::Gridhaul, "/proc");
    let server = launch.read_only().start().unwrap();
    let mut control = gridhaul_interop::raw::Control::anonymous(server.address()).unwrap();
    for name in [
        "self/root/etc/passwd",
        "self/cwd/etc/passwd",
        "thread-self/root/etc/passwd",
    ] {
        let refused = control.command(&format!("SIZE {name}")).unwrap();
        assert!(refused.code >= 400, "{name}: {refused}");
    }
    // The files of /proc have size 0 and are still read to their end, or refused with a reason.
    if let Ok(bytes) = get_stream(&mut control, "version") {
        let version = std::fs::File::open("/proc/version").and_then(|mut file| {
            let mut text = Vec::new();
            file.read_to_end(&mut text).map(|_| text)
        });
        assert!(bytes.is_empty() || bytes == version.unwrap());
    }
}
