//! The commands on names, as clients see them.

use crate::served::Served;

#[test]
fn directories_are_changed_made_and_removed() {
    let served = Served::new();
    let mut client = served.anonymous();
    assert_eq!(
        client.expect("PWD", 257),
        "257 \"/\" is current directory.\r\n"
    );
    let text = client.expect("MKD a/", 257);
    assert_eq!(text, "257 \"/a\" created successfully.\r\n");
    client.expect("CWD a", 250);
    client.expect("MKD b", 257);
    client.expect("CWD ~/a/b", 250);
    assert_eq!(
        client.expect("PWD", 257),
        "257 \"/a/b\" is current directory.\r\n"
    );
    client.expect("CDUP", 250);
    assert_eq!(
        client.expect("PWD", 257),
        "257 \"/a\" is current directory.\r\n"
    );
    let text = client.expect("MKD /a", 550);
    assert!(text.contains("File exists"), "{text}");
    let text = client.expect("RMD /a", 550);
    assert!(text.contains("Directory not empty"), "{text}");
    client.expect("RMD b", 250);
    client.expect("CWD ..", 250);
    client.expect("RMD a", 250);
    assert!(!served.path("a").exists());
}

#[test]
fn nobody_gets_above_the_root() {
    let served = Served::new();
    served.directory("in");
    std::os::unix::fs::symlink("/etc", served.path("out")).expect("linked");
    let mut client = served.anonymous();
    client.expect("CWD ../../..", 250);
    assert_eq!(
        client.expect("PWD", 257),
        "257 \"/\" is current directory.\r\n"
    );
    client.expect("SIZE /../../../in", 213);
    client.expect("SIZE /../../../etc/passwd", 550);
    client.expect("SIZE /out/passwd", 550);
    client.expect("CWD out", 550);
}

#[test]
fn what_is_no_directory_is_not_entered() {
    let served = Served::new();
    served.write("file", "x");
    let mut client = served.anonymous();
    assert_eq!(
        client.expect("CWD file", 550),
        "550 /file: Not a directory.\r\n"
    );
    let text = client.expect("CWD nowhere", 550);
    assert!(
        text.starts_with(
            "550-/nowhere: Could not change directory. : GlobusError: v=1 c=PATH_NOT_FOUND\r\n"
        ),
        "{text}"
    );
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn files_are_renamed_and_removed() {
    let served = Served::new();
    served.write("a", "x");
    let mut client = served.anonymous();
    client.expect("RNTO b", 503);
    client.expect("RNFR nothing", 550);
    // Some clients show the second reply only.
    let text = client.expect("RNTO b", 503);
    assert!(text.contains("send RNFR first"), "{text}");
    assert!(text.contains("No such file or directory"), "{text}");
    client.expect("RNTO b", 503);
    client.expect("RNFR a", 350);
    client.expect("NOOP", 200);
    client.expect("RNTO b", 250);
    assert_eq!(served.read("b"), b"x");
    client.expect("RNFR b", 350);
    client.expect("PWD", 257);
    client.expect("RNTO c", 503);
    client.expect("DELE b", 250);
    let text = client.expect("DELE b", 550);
    assert!(text.contains("GridFTP-Errno: 2\r\n"), "{text}");
    served.directory("d");
    client.expect("DELE d", 550);
}

#[test]
fn sizes_times_and_modes_are_told_and_set() {
    use std::os::unix::fs::PermissionsExt;

    let served = Served::new();
    served.write("a b", "12345");
    let mut client = served.anonymous();
    assert_eq!(client.expect("SIZE a b", 213), "213 5\r\n");
    assert_eq!(
        client.expect("MFMT 20200102030405 a b", 213),
        "213 Modify=20200102030405; a b\r\n"
    );
    assert_eq!(client.expect("MDTM a b", 213), "213 20200102030405\r\n");
    assert_eq!(
        client.expect("SITE UTIME 20210102030405 a b", 250),
        "250 OK.\r\n"
    );
    assert_eq!(client.expect("MDTM a b", 213), "213 20210102030405\r\n");
    client.expect("SITE CHMOD 0640 a b", 250);
    let mode = std::fs::metadata(served.path("a b"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o640);
    client.expect("SITE CHMOD 100604 a b", 250);
    let mode = std::fs::metadata(served.path("a b"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o604);
    client.expect("SITE TRNC 3 a b", 250);
    assert_eq!(served.read("a b"), b"123");
    assert_eq!(
        client.expect("SITE TRNC 4 a b", 500),
        "500 Current size is smaller than truncate size.\r\n"
    );
    client.expect("SITE CHMOD u+x a b", 501);
}

#[test]
fn links_are_made_and_trees_removed() {
    let served = Served::new();
    served.directory("tree/deep");
    served.write("tree/deep/file", "x");
    let mut client = served.anonymous();
    client.expect("SITE SYMLINKTO link", 503);
    client.expect("SITE SYMLINKFROM tree/deep", 350);
    client.expect("SITE SYMLINKTO link", 250);
    client.expect("SIZE link/file", 213);
    client.expect("SITE RDEL tree", 250);
    assert!(!served.path("tree").exists());
    client.expect("SITE RDEL tree", 550);
}

#[test]
fn names_are_bytes() {
    let served = Served::new();
    let mut client = served.anonymous();
    for name in [
        "  leading and trailing  ",
        "\"quoted\"",
        "-dash",
        "~tilde",
        "ümläut",
        "tab\tin it",
        "*",
    ] {
        client.expect(&format!("MKD {name}"), 257);
        assert!(served.path(name).is_dir(), "{name:?}");
        client.expect(&format!("RMD {name}"), 250);
    }
    let long = "x".repeat(256);
    let text = client.expect(&format!("MKD {long}"), 550);
    assert!(text.contains("File name too long"), "{text}");
}

#[test]
fn names_with_control_characters_are_refused_by_every_command_that_makes_one() {
    let served = Served::new();
    served.write("file", "x");
    let mut client = served.anonymous();
    for name in ["a\nType=file; forged", "a\r226 done", "\u{1b}[2J", "\u{7f}"] {
        let text = client.expect(&format!("MKD {name}"), 553);
        assert!(text.contains("control characters"), "{name:?}: {text}");
        for verb in ["STOR", "APPE", "ESTO A 5"] {
            let _data = client.passive();
            let text = client.expect(&format!("{verb} {name}"), 553);
            assert!(text.contains("control characters"), "{verb}: {text}");
        }
        let mut second = |first: &str, line: &str| {
            client.expect(first, 350);
            let text = client.expect(line, 553);
            assert!(text.contains("control characters"), "{line:?}: {text}");
        };
        second("RNFR file", &format!("RNTO {name}"));
        second("SITE SYMLINKFROM file", &format!("SITE SYMLINKTO {name}"));
        second(&format!("SITE SYMLINKFROM {name}"), "SITE SYMLINKTO link");
    }
    let left = std::fs::read_dir(served.path("")).expect("listed").count();
    assert_eq!(left, 1);
}

#[test]
fn users_of_a_shared_account_make_no_programs_with_its_rights_and_no_links_out() {
    use std::os::unix::fs::PermissionsExt;

    let served = Served::new();
    served.write("file", "x");
    served.directory("d");
    let mode = |name| {
        let facts = std::fs::metadata(served.path(name)).expect("there");
        facts.permissions().mode() & 0o7777
    };
    let before = (mode("file"), mode("d"));
    let mut client = served.anonymous();
    for bits in ["6755", "4755", "2755", "1755", "7777"] {
        for name in ["file", "d"] {
            let text = client.expect(&format!("SITE CHMOD {bits} {name}"), 550);
            assert!(text.contains("set-user-ID"), "{text}");
        }
    }
    assert_eq!((mode("file"), mode("d")), before);
    for target in ["/etc/passwd", "../../etc/passwd", "d/../../x", ".."] {
        client.expect(&format!("SITE SYMLINKFROM {target}"), 350);
        let text = client.expect("SITE SYMLINKTO d/link", 550);
        assert!(text.contains("must be relative"), "{text}");
    }
    assert!(std::fs::symlink_metadata(served.path("d/link")).is_err());
}

#[test]
fn reading_is_all_that_is_allowed_without_a_word_more() {
    let served = Served::with(|settings| settings.anonymous_write = None);
    served.write("file", "x");
    let mut client = served.anonymous();
    for line in [
        "MKD d",
        "DELE file",
        "SITE CHMOD 600 file",
        "SITE RDEL file",
        "SITE TRNC 0 file",
    ] {
        let text = client.expect(line, 550);
        assert!(text.contains("Permission denied"), "{line}: {text}");
    }
    client.expect("RNFR file", 350);
    client.expect("RNTO other", 550);
    assert_eq!(served.read("file"), b"x");
}
