use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The time of the recorded listing: 20261120120452 in UTC.
const NOW: i64 = 1_795_176_292;

/// Observed from globus-gridftp-server 13.24, in the time zone UTC.
const RECORDED: [&str; 5] = [
    "-rwxr-xr-x   1 gridtest gridtest            3 Nov 20 09:23 plain",
    "drwxrwxrwx   2     root     root         4096 Nov 20 09:23 owned_by_root",
    "drwxr-xr-x  12     root     root         4096 Nov 20 12:04 .",
    "prw-r--r--   1     root     root            0 Nov 20 12:04 pipe",
    "-rw-r--r--   1     root     root            0 Nov 20 12:04  lead",
];

fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn listed(modified: i64) -> ListTime {
    ListTime::new(timestamp(modified), timestamp(NOW), &TimeZone::UTC)
}

fn written(line: &ListLine<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    line.append(&mut bytes);
    bytes
}

fn parsed(line: &str) -> ListLine<'_> {
    let line = ListLine::parse(line.as_bytes()).expect("a line of a listing");
    line.expect("a line that lists something")
}

fn plain() -> ListLine<'static> {
    ListLine {
        file_type: FileType::File,
        mode: 0o755,
        links: 1,
        owner: Cow::Borrowed(b"gridtest"),
        group: Cow::Borrowed(b"gridtest"),
        size: 3,
        modified: listed(1_795_166_618),
        name: Cow::Borrowed(b"plain"),
        link_target: None,
    }
}

#[test]
fn a_line_looks_as_recorded() {
    assert_eq!(written(&plain()), RECORDED[0].as_bytes());
    assert_eq!(parsed(RECORDED[0]), plain());
}

#[test]
fn recorded_lines_are_read_and_written_again() {
    for recorded in RECORDED {
        assert_eq!(written(&parsed(recorded)), recorded.as_bytes());
    }
    assert_eq!(parsed(RECORDED[2]).file_type, FileType::CurrentDirectory);
    assert_eq!(&*parsed(RECORDED[4]).name, b" lead");
}

#[test]
fn times_outside_of_the_last_six_months_have_a_year() {
    let day = 86_400;
    for (modified, shown) in [
        (NOW, "Nov 20 12:04"),
        (NOW - 182 * day, "May 22 12:04"),
        (NOW - 183 * day, "May 21  2026"),
        (1_577_934_245, "Jan  2  2020"),
        (NOW + 1, "Nov 20  2026"),
        (NOW + 60 * day, "Jan 19  2027"),
        (-315_532_800, "Jan  2  1960"),
        (Timestamp::MIN.as_second(), "Jan  2  0000"),
    ] {
        assert_eq!(listed(modified).to_string(), shown);
    }
}

#[test]
fn times_are_those_of_the_servers_zone() {
    let zone = TimeZone::fixed(jiff::tz::offset(-5));
    let time = ListTime::new(timestamp(1_795_148_618), timestamp(NOW), &zone);
    assert_eq!(time.to_string(), "Nov 19 23:23");
}

#[test]
fn a_client_guesses_the_year() {
    let now = DateTime::constant(2027, 1, 10, 12, 0, 0, 0);
    for (listed, meant) in [
        ("Jan 10 12:00", Some("2027-01-10T12:00:00")),
        // The server's zone may be a day ahead.
        ("Jan 11 11:59", Some("2027-01-11T11:59:00")),
        ("Jan 11 12:01", Some("2026-01-11T12:01:00")),
        ("Nov 20 09:23", Some("2026-11-20T09:23:00")),
        ("Nov 20  2019", Some("2019-11-20T00:00:00")),
        ("Feb 29  2024", Some("2024-02-29T00:00:00")),
        ("Feb 29 09:23", None),
    ] {
        let line = format!("-rw-r--r-- 1 a b 0 {listed} x");
        let time = parsed(&line).modified.guess(now);
        assert_eq!(
            time.map(|time| time.to_string()).as_deref(),
            meant,
            "{listed}"
        );
    }
    let new_year = DateTime::constant(2026, 12, 31, 20, 0, 0, 0);
    let time = parsed("-rw-r--r-- 1 a b 0 Jan  1 03:00 x")
        .modified
        .guess(new_year);
    assert_eq!(time, Some(DateTime::constant(2027, 1, 1, 3, 0, 0, 0)));
}

#[test]
fn modes_are_those_of_ls() {
    for (mode, letters) in [
        (0o0000, "---------"),
        (0o4755, "rwsr-xr-x"),
        (0o2755, "rwxr-sr-x"),
        (0o1777, "rwxrwxrwt"),
        (0o7644, "rwSr-Sr-T"),
    ] {
        let line = ListLine { mode, ..plain() };
        let written = written(&line);
        assert_eq!(&written[1..10], letters.as_bytes());
        assert_eq!(ListLine::parse(&written), Ok(Some(line)));
    }
}

#[test]
fn lines_of_other_servers_are_read() {
    let acl = parsed("-rw-rw-r--+  1 joe  users  1048576 nov  3  2019 two words");
    assert_eq!((acl.size, &*acl.name), (1_048_576, &b"two words"[..]));
    let no_group = parsed("drwxr-xr-x 3 ftp 512 Jan 2 03:04 pub");
    assert_eq!(
        (&*no_group.owner, &*no_group.group),
        (&b"ftp"[..], &b""[..])
    );
    assert_eq!(no_group.size, 512);
    let device = parsed("crw-rw---- 1 root tty 4, 64 Nov 20 09:23 ttyS0");
    assert_eq!(
        (device.file_type, device.size),
        (FileType::CharacterDevice, 0)
    );
    let link = parsed("lrwxrwxrwx 1 root root 4 Nov 20 09:23 a -> b -> c");
    assert_eq!(&*link.name, b"a");
    assert_eq!(link.link_target.as_deref(), Some(&b"b -> c"[..]));
    let no_link = parsed("-rw-r--r-- 1 root root 4 Nov 20 09:23 a -> b");
    assert_eq!(
        (&*no_link.name, no_link.link_target),
        (&b"a -> b"[..], None)
    );
    for line in ["total 12", "", "  "] {
        assert_eq!(ListLine::parse(line.as_bytes()), Ok(None));
    }
}

#[test]
fn lines_without_an_entry_are_refused() {
    for line in [
        "hello",
        "totally 12",
        "total 12 Nov 20 09:23 x",
        "-rw-r--r-- 1 root root 4 Nov 20 09:23",
        "-rw-r--r-- 1 root root 4 Nov 20 09:23 ",
        "-rw-r--r-- 1 root root 4 Nov 31 09:23 x",
        "-rw-r--r-- 1 root root 4 Nov 20 24:00 x",
        "-rw-r--r-- 1 root root 4 Nov 20 99999 x",
        "-rw-r--r-- 1 root root 4 Nob 20 09:23 x",
        "-rw-r--r-- 1 root root 99999999999999999999 Nov 20 09:23 x",
        "-rw-r--r-- x root root 4 Nov 20 09:23 x",
        "-rw-q--r-- 1 root root 4 Nov 20 09:23 x",
        "02-15-26  09:23AM       <DIR>          pub",
    ] {
        let error = ListLine::parse(line.as_bytes()).expect_err(line);
        assert!(error.to_string().contains(line));
    }
}

#[test]
fn no_name_makes_another_line_or_column() {
    let line = ListLine {
        owner: Cow::Borrowed(b""),
        group: Cow::Borrowed(b"Domain Users"),
        name: Cow::Borrowed(b"a\r\nb\0c d"),
        ..plain()
    };
    assert_eq!(
        String::from_utf8(written(&line)).unwrap(),
        "-rwxr-xr-x   1        ? Domain_Users            3 Nov 20 09:23 a??b?c d"
    );
}

#[test]
fn names_are_unchanged_except_line_ends() {
    for (name, listed) in [
        (&b" a b\xff "[..], &b" a b\xff "[..]),
        (b"a\r\nb", b"a??b"),
        (b"a\0b\nc", b"a?b?c"),
    ] {
        let mut line = Vec::new();
        append_name(&mut line, name);
        assert_eq!(line, listed);
    }
}

fn list_time() -> impl Strategy<Value = ListTime> {
    let ago = prop_oneof![0..RECENT_SECONDS, -1_000_000_000..NOW];
    ago.prop_map(|ago| listed(NOW - ago))
}

fn account() -> impl Strategy<Value = Cow<'static, [u8]>> {
    "[!-~é]{1,12}".prop_map(|name| Cow::Owned(name.into_bytes()))
}

fn name() -> impl Strategy<Value = Cow<'static, [u8]>> {
    let bytes = prop::collection::vec(select((1..=255).collect::<Vec<u8>>()), 1..20);
    let clean = bytes.prop_map(|name| {
        let name: Vec<u8> = name
            .into_iter()
            .map(|byte| if byte == b'>' { b'x' } else { byte })
            .collect();
        let mut shown = Vec::new();
        line::append_shown(&mut shown, &name);
        Cow::Owned(shown)
    });
    clean.prop_filter("these have types of their own", |name: &Cow<'_, [u8]>| {
        !matches!(&**name, b"." | b"..")
    })
}

prop_compose! {
    fn any_line()(
        (file_type, mode, links) in (
            select(vec![
                FileType::File,
                FileType::Directory,
                FileType::Pipe,
                FileType::CharacterDevice,
                FileType::BlockDevice,
                FileType::Symlink,
                FileType::Other,
            ]),
            0..=0o7777_u32,
            any::<u64>(),
        ),
        (owner, group, size) in (account(), account(), any::<u64>()),
        (modified, name, target) in (list_time(), name(), option::of(name())),
    ) -> ListLine<'static> {
        let link_target = target.filter(|_| file_type == FileType::Symlink);
        ListLine { file_type, mode, links, owner, group, size, modified, name, link_target }
    }
}

proptest! {
    #[test]
    fn a_written_line_reads_the_same(line in any_line()) {
        let bytes = written(&line);
        prop_assert_eq!(ListLine::parse(&bytes), Ok(Some(line)));
    }

    #[test]
    fn a_recent_time_is_guessed_right(ago in 0..RECENT_SECONDS) {
        let now = TimeZone::UTC.to_datetime(timestamp(NOW));
        let truth = TimeZone::UTC.to_datetime(timestamp(NOW - ago));
        let guess = listed(NOW - ago).guess(now).unwrap();
        prop_assert_eq!(guess, truth.with().second(0).build().unwrap());
    }

    #[test]
    fn any_bytes_are_a_line_or_an_error(
        line in prop::collection::vec(any::<u8>(), 0..100),
        mode in "[-dlcb][-rwxsStT]{9} {1,3}",
        accounts in "[0-9]{1,3} [a-z]{1,4} ([a-z]{1,4} )?",
        size in "[0-9]{1,20}(, [0-9]{1,3})? ",
        time in "(Jan|Feb|Nob) {1,2}[0-9]{1,3} {1,2}[0-9:]{1,6}",
        name in ".{0,9}",
    ) {
        let _ = ListLine::parse(&line);
        let _ = ListLine::parse(format!("{mode}{accounts}{size}{time}{name}").as_bytes());
    }
}
