use std::borrow::Cow;

use jiff::Timestamp;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The facts of a regular file, as in a dialogue with globus-gridftp-server 13.24.
fn plain() -> FileFacts<'static> {
    FileFacts {
        file_type: Some(FileType::File),
        modified: Some(Timestamp::from_second(1_795_166_618).unwrap()),
        size: Some(3),
        permissions: Some(Permissions::of_file(true, true)),
        mode: Some(0o755),
        owner: Some(Cow::Borrowed(b"gridtest")),
        uid: Some(1001),
        group: Some(Cow::Borrowed(b"gridtest")),
        gid: Some(1001),
        unique: Some(Unique::Inode {
            device: 0xfe00,
            inode: 0x9a_68f4,
        }),
        link_target: None,
        entries: None,
    }
}

fn written(facts: &FileFacts<'_>, wanted: FactSelection, name: &[u8]) -> String {
    let mut line = Vec::new();
    facts.append_line(&mut line, wanted, name);
    String::from_utf8(line).expect("the name is UTF-8")
}

fn all() -> FactSelection {
    Fact::ALL.into_iter().collect()
}

/// Observed from globus-gridftp-server 13.24, with one that lacks permissions.
const RECORDED: [&str; 5] = [
    "Type=file;Modify=20261120092338;Size=3;Perm=awr;UNIX.mode=0755;UNIX.owner=gridtest;UNIX.uid=1001;\
     UNIX.group=gridtest;UNIX.gid=1001;Unique=fe00-9a68f4; /D/lst/plain",
    "Type=cdir;Modify=20261120092338;Size=4096;Perm=cfmpel;UNIX.mode=0755;UNIX.owner=gridtest;\
     UNIX.uid=1001;UNIX.group=gridtest;UNIX.gid=1001;Unique=fe00-9a68f3;X.count=17; .",
    "Type=dir;Modify=20261120092338;Size=4096;Perm=cfmpel;UNIX.mode=0755;UNIX.owner=gridtest;\
     UNIX.uid=1001;UNIX.group=gridtest;UNIX.gid=1001;Unique=fe00-9a68f5;UNIX.slink=/D/lst/sub; dlnk",
    "Type=OS.unix=pipe;Modify=20261120120452;Size=0;Perm=;UNIX.mode=0644;UNIX.owner=root;UNIX.uid=0;\
     UNIX.group=root;UNIX.gid=0;Unique=fe00-998d44; /pipe",
    "Type=file;Modify=20261120120452;Size=0;Perm=r;UNIX.mode=4755;UNIX.owner=root;UNIX.uid=0;\
     UNIX.group=root;UNIX.gid=0;Unique=fe00-998d3c;\
     UNIX.slink=/r/a%20b%3Bc%25d%3De\"f<g>#?&+~@:!$'()*,[]{}|\\^`-_.z%C3%A9;  name with spaces ",
];

#[test]
fn a_line_looks_as_recorded() {
    let line = written(&plain(), FactSelection::default(), b"/D/lst/plain");
    assert_eq!(line, RECORDED[0]);
}

#[test]
fn recorded_lines_are_read_and_written_again() {
    for recorded in RECORDED {
        let (facts, name) = FileFacts::parse_line(recorded.as_bytes()).expect("a line of facts");
        let wanted: FactSelection = Fact::ALL
            .into_iter()
            .filter(|&fact| fact != Fact::Charset)
            .collect();
        assert_eq!(written(&facts, wanted, name), recorded);
    }
    let (link, name) = FileFacts::parse_line(RECORDED[4].as_bytes()).expect("a line of facts");
    let target = "/r/a b;c%d=e\"f<g>#?&+~@:!$'()*,[]{}|\\^`-_.zé";
    assert_eq!(link.link_target.as_deref(), Some(target.as_bytes()));
    assert_eq!(name, b" name with spaces ");
}

#[test]
fn only_wanted_and_known_facts_are_written() {
    let wanted = FactSelection::from_names(["size", "type", "x.count"]);
    assert_eq!(written(&plain(), wanted, b"a b"), "Type=file;Size=3; a b");
    let charset = FactSelection::from_names(["charset"]);
    assert_eq!(written(&plain(), charset, b"x"), "Charset=UTF-8; x");
    assert_eq!(written(&plain(), FactSelection::NONE, b"x"), " x");
    assert_eq!(
        written(&FileFacts::default(), FactSelection::default(), b"x"),
        " x"
    );
}

#[test]
fn names_that_would_be_taken_for_other_files_are_shown_on_one_line() {
    for (name, shown) in [
        ("a\r\nType=file; b", " a??Type=file; b"),
        ("a\0b\nc\rd\u{1b}e\u{7f}f", " a?b?c?d?e?f"),
        ("a\u{85}b\u{2028}c\u{9b}", " a?b?c?"),
        ("tab\tü漢字\u{a0}", " tab\tü漢字\u{a0}"),
    ] {
        let line = written(&plain(), FactSelection::NONE, name.as_bytes());
        assert_eq!(line, shown);
    }
}

#[test]
fn names_of_groups_do_not_end_the_facts() {
    let facts = FileFacts {
        group: Some(Cow::Borrowed(b"Domain Users;")),
        ..FileFacts::default()
    };
    let line = written(&facts, all(), b"x");
    assert_eq!(line, "Charset=UTF-8;UNIX.group=Domain%20Users%3B; x");
    let raw = b"Type=file;UNIX.group=Domain Users;Size=3; a; b";
    let (facts, name) = FileFacts::parse_line(raw).expect("a line of facts");
    assert_eq!(facts.group.as_deref(), Some(&b"Domain Users"[..]));
    assert_eq!((facts.size, name), (Some(3), &b"a; b"[..]));
}

#[test]
fn lines_of_other_servers_are_read() {
    let line = b"type=OS.unix=slink:/else;MODIFY=20261120092338.250;size=1;perm=rawX;lang=en;\
        unix.mode=rw-r;UNIX.uid=joe;unique=AF00g3; x";
    let (facts, name) = FileFacts::parse_line(line).expect("a line of facts");
    let expected = FileFacts {
        file_type: Some(FileType::Symlink),
        modified: Some(Timestamp::from_millisecond(1_795_166_618_250).unwrap()),
        size: Some(1),
        permissions: Some(Permissions::of_file(true, true)),
        unique: Some(Unique::Token(Cow::Borrowed(b"AF00g3"))),
        ..FileFacts::default()
    };
    assert_eq!((facts, name), (expected, &b"x"[..]));
    let (facts, _) =
        FileFacts::parse_line(b"Type=OS.plan9=ghost;UNIX.owner=100%; x").expect("facts");
    assert_eq!(facts.file_type, Some(FileType::Other));
    assert_eq!(facts.owner.as_deref(), Some(&b"100%"[..]));
    let (facts, name) = FileFacts::parse_line(b"Size=1 x").expect("facts without the last ;");
    assert_eq!((facts.size, name), (Some(1), &b"x"[..]));
}

#[test]
fn errors_of_lines_name_the_cause() {
    for (line, error) in [
        (&b""[..], "there is no name in the line of facts ''"),
        (
            b"Type=file;Size=3;",
            "there is no name in the line of facts 'Type=file;Size=3;'",
        ),
        (
            b"Type=file; ",
            "there is no name in the line of facts 'Type=file; '",
        ),
        (
            b"Type; x",
            "'Type' is no fact; a fact is written as Size=3;",
        ),
        (b"Size=-3; x", "the size '-3' is no number of bytes"),
        (
            b"Size=99999999999999999999; x",
            "the size '99999999999999999999' is no number of bytes",
        ),
    ] {
        let refused = FileFacts::parse_line(line).expect_err("no line of facts");
        assert_eq!(refused.to_string(), error);
    }
    let refused = FileFacts::parse_line(b"Modify=20261320000000; x").expect_err("a bad time");
    assert!(refused.to_string().contains("13 cannot be the month"));
}

fn bytes() -> impl Strategy<Value = Cow<'static, [u8]>> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Cow::Owned)
}

fn unique_token() -> impl Strategy<Value = Unique<'static>> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(device, inode)| Unique::Inode { device, inode }),
        // Not to be confused with an inode.
        bytes().prop_map(|token| Unique::Token([b"=", &*token].concat().into())),
    ]
}

prop_compose! {
    fn any_facts()(
        (file_type, modified, size, permissions) in (
            option::of(select(FileType::ALL.to_vec())),
            option::of(0..200_000_000_000_i64),
            any::<Option<u64>>(),
            option::of(0..1_u16 << Permissions::LETTERS.len()),
        ),
        (mode, owner, uid, group, gid) in (
            option::of(0..=0o7777_u32),
            option::of(bytes()),
            any::<Option<u32>>(),
            option::of(bytes()),
            any::<Option<u32>>(),
        ),
        (unique, link_target, entries) in (
            option::of(unique_token()),
            option::of(bytes()),
            any::<Option<u64>>(),
        ),
    ) -> FileFacts<'static> {
        FileFacts {
            file_type,
            modified: modified.map(|second| Timestamp::from_second(second).unwrap()),
            size,
            permissions: permissions.map(Permissions),
            mode, owner, uid, group, gid, unique, link_target, entries,
        }
    }
}

proptest! {
    #[test]
    fn written_facts_read_the_same(facts in any_facts(), name in "[\t[:print:]üé漢字]{1,40}") {
        let mut line = Vec::new();
        facts.append_line(&mut line, all(), name.as_bytes());
        prop_assert_eq!(FileFacts::parse_line(&line), Ok((facts, name.as_bytes())));
    }

    #[test]
    fn no_name_makes_another_line(
        name in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[a\u{80}-\u{9f}\u{2028}-\u{2029}\\x00-\\x1f]{0,20}".prop_map(String::into_bytes),
        ],
    ) {
        let mut line = Vec::new();
        plain().append_line(&mut line, all(), &name);
        let text = String::from_utf8_lossy(&line);
        let ends = |c: char| c.is_control() && c != '\t' || matches!(c, '\u{2028}' | '\u{2029}');
        prop_assert!(!text.contains(ends), "{text:?}");
    }

    #[test]
    fn any_bytes_are_facts_or_an_error(
        line in prop::collection::vec(any::<u8>(), 0..100),
        text in "(Type|Size|Modify|Perm|UNIX.mode|Unique|x)=[0-9a-f%-]{0,16}(;| |; ).{0,20}",
    ) {
        let _ = FileFacts::parse_line(&line);
        let _ = FileFacts::parse_line(text.as_bytes());
    }
}
