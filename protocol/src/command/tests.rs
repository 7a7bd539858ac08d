//! Tests of both directions.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::reply::Reply;

fn parse(line: &str) -> Result<Command, CommandError> {
    Command::parse(line.as_bytes())
}

fn parsed(line: &str) -> Command {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn refusal(line: &str) -> Reply {
    match parse(line) {
        Ok(command) => panic!("{line} was taken for {command:?}"),
        Err(error) => error.reply(),
    }
}

fn path(text: &str) -> PathArgument {
    PathArgument::new(text).unwrap()
}

fn text(text: &str) -> Text {
    Text::new(text).unwrap()
}

/// What globus-url-copy 10.12 and gfal2 2.21 send; each line comes out of [`Command::encode`] as it is.
const RECORDED: &[&str] = &[
    "USER anonymous",
    "USER :globus-mapping:",
    "PASS globus@",
    "PASS ",
    "SITE HELP",
    "FEAT",
    "SITE CLIENTINFO scheme=ftp;appname=\"globus-url-copy\";appver=\"10.12 (gcc64, 1653033972-1) [Grid Community Toolkit 6.2]\";",
    "TYPE I",
    "PASV",
    "RETR /D/r1m.bin",
    "ALLO 1000000",
    "STOR /D/up/r1m.bin",
    "MODE E",
    "OPTS RETR Parallelism=4,4,4;",
    "OPTS RETR StripeLayout=Blocked;BlockSize=100000;Parallelism=2,2,2;",
    "OPTS RETR StripeLayout=Partitioned;",
    "PORT 127,0,0,1,237,221",
    "EPSV",
    "EPRT |2|::1|44747|",
    "SPAS",
    "SPAS 2",
    "SPOR 127,0,0,1,218,67 127,0,0,1,142,37",
    "OPTS PASV AllowDelayed=1;",
    "SITE RETRBUFSIZE 262144",
    "ERET P 100 500 /D/r1m.bin",
    "ESTO A 100 /D/up/part",
    "REST 0-262144,524288-800000",
    "REST 5",
    "CKSM MD5 0 -1 /D/r1m.bin",
    "SITE SETNETSTACK tcp,gsi",
    "SITE SETDISKSTACK popen:argv=#cat#/etc/os-release",
    "SITE CHMOD 0600 /D/up/gf/u3",
    "MLST /D/up/gf/u3",
    "MLSD /D/lst",
    "PBSZ 1048576",
    "PROT P",
    "DCAU N",
    "DCAU S /O=Grid/CN=A Host",
    "AUTH GSSAPI",
    "ADAT FgMBAYYBAAGCAwPdBB6+kNoKQ5kML8sYt/J1CJmwNjty",
    "DCSC P LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J",
    "QUIT",
];

#[test]
fn recorded_lines_go_in_and_out() {
    for line in RECORDED {
        assert_eq!(String::from_utf8(parsed(line).encode()).unwrap(), *line);
    }
}

#[test]
fn verbs_and_keywords_have_no_case() {
    assert_eq!(parsed("noop"), Command::Noop);
    assert_eq!(parsed("site chmod 0644 A"), parsed("SITE CHMOD 644 A"));
    assert_eq!(parsed("type i"), Command::Type(Representation::Image));
    assert_eq!(
        parsed("opts retr PARALLELISM=3;stripelayout=partitioned"),
        parsed("OPTS RETR StripeLayout=Partitioned;Parallelism=3,3,3;")
    );
    assert_eq!(parsed("CKSM md5 0 -1 A"), parsed("CKSM MD5 0 -1 A"));
    assert_eq!(parsed("eret p 1 2 A"), parsed("ERET P 1 2 A"));
}

#[test]
fn old_names_are_known() {
    assert_eq!(parsed("XPWD"), Command::Pwd);
    assert_eq!(parsed("XCUP"), Command::Cdup);
    assert_eq!(parsed("XCWD a"), Command::Cwd(path("a")));
    assert_eq!(parsed("XMKD a"), Command::Mkd(path("a")));
    assert_eq!(parsed("XRMD a"), Command::Rmd(path("a")));
}

#[test]
fn a_path_is_all_that_follows() {
    assert_eq!(parsed("RETR \"a b\" "), Command::Retr(path("\"a b\" ")));
    assert_eq!(parsed("RETR  a"), Command::Retr(path(" a")));
    assert_eq!(
        parsed("ERET P 1 2  a b "),
        Command::Eret {
            offset: 1,
            length: 2,
            path: path(" a b ")
        }
    );
    assert_eq!(
        Command::parse(b"STOR \xff\x80\n"),
        Ok(Command::Stor(PathArgument::new(b"\xff\x80\n").unwrap()))
    );
    assert_eq!(parsed("MLST"), Command::Mlst(None));
    assert_eq!(parsed("MLST "), Command::Mlst(None));
    assert_eq!(parsed("MLST -la"), Command::Mlst(Some(path("-la"))));
}

#[test]
fn flags_of_ls_are_taken_off() {
    let listed = |name: &str| Command::List(Some(ListPath::new(path(name))));
    assert_eq!(parsed("LIST"), Command::List(None));
    assert_eq!(parsed("LIST -la"), Command::List(None));
    assert_eq!(parsed("LIST -l -a a b"), listed("a b"));
    assert_eq!(parsed("LIST a -l"), listed("a -l"));
    assert_eq!(
        parsed("NLST -"),
        Command::Nlst(Some(ListPath::new(path("-"))))
    );
    assert_eq!(listed("-x").encode(), b"LIST ./-x");
}

#[test]
fn representations() {
    for line in ["TYPE A", "TYPE a n", "TYPE A N"] {
        assert_eq!(parsed(line), Command::Type(Representation::Ascii));
    }
    for line in ["TYPE I", "TYPE L 8"] {
        assert_eq!(parsed(line), Command::Type(Representation::Image));
    }
    for line in [
        "TYPE E",
        "TYPE A T",
        "TYPE L 36",
        "TYPE L",
        "MODE B",
        "MODE C",
        "STRU R",
        "STRU P",
    ] {
        assert_eq!(refusal(line).code(), 504, "{line}");
    }
    for line in ["TYPE X", "TYPE", "TYPE I N", "MODE Q", "STRU X", "STRU"] {
        assert_eq!(refusal(line).code(), 501, "{line}");
    }
}

#[test]
fn restarts() {
    assert_eq!(parsed("REST 0"), Command::Rest(Restart::At(0)));
    let Command::Rest(restart) = parsed("REST 0-10, 20-30") else {
        panic!("not a restart");
    };
    assert_eq!(restart.present(), [0..10, 20..30].into_iter().collect());
    assert_eq!(Restart::At(5).present(), std::iter::once(0..5).collect());
    for line in [
        "REST abc",
        "REST 100-",
        "REST",
        "REST ",
        "REST -1",
        "REST 10-5",
        "REST 9223372036854775808",
    ] {
        assert_eq!(refusal(line).code(), 501, "{line}");
    }
}

#[test]
fn data_ports() {
    for line in [
        "PORT 127,0,0,1,4",
        "PORT abc",
        "PORT 1,2,3,4,0,0",
        "EPRT foo",
        "SPOR",
        "EPRT |1|::1|5|",
    ] {
        assert_eq!(refusal(line).code(), 501, "{line}");
    }
    for line in ["EPRT |3|x|5|", "EPSV 3", "SPAS 3", "SPAS x"] {
        assert_eq!(refusal(line).code(), 522, "{line}");
    }
    assert_eq!(parsed("EPSV all"), Command::Epsv(EpsvRequest::All));
    assert_eq!(
        parsed("EPSV 2"),
        Command::Epsv(EpsvRequest::Family(Family::Ipv6))
    );
    let most = "SPOR".to_owned() + &" 127,0,0,1,4,5".repeat(StripeAddresses::MAX);
    assert!(parse(&most).is_ok());
    assert_eq!(refusal(&(most + " 127,0,0,1,4,5")).code(), 501);
    let mixed = parsed("SPOR  127,0,0,1,0,80  |2|::1|81|");
    assert_eq!(mixed.encode(), b"SPOR 127,0,0,1,0,80 |2|::1|81|");
}

#[test]
fn sizes_are_bounded_by_their_types() {
    assert_eq!(parsed("ALLO 5 R 6").encode(), b"ALLO 5 R 6");
    for line in [
        "ALLO abc",
        "ALLO -1",
        "ALLO 99999999999999999999",
        "ALLO 5 R",
        "ALLO 5 R x",
        "ALLO 5 6",
        "PBSZ 99999999999",
        "SBUF x",
        "TREV PERF x",
        "ERET P 5 -1 a",
        "CKSM MD5 -1 -1 a",
        "CKSM MD5 0 -2 a",
        "CKSM MD5 0 -1",
        "CKSM MD5 0 -1 ",
        "MFMT 20200102 a",
        "MFMT 20201301000000 a",
        "SITE UTIME 202101020304 a",
        "SITE CHMOD u+x a",
        "SITE CHMOD 999 a",
        "SITE CHMOD 10000 a",
        "SITE TRNC x a",
        "SITE RETRBUFSIZE x",
        "SCKS MD5 xyz",
        "OPTS STOR x=1;",
        "OPTS RETR Parallelism=0;",
        "OPTS RETR Parallelism=1,2;",
        "OPTS RETR Nonsense=1;",
        "OPTS RETR BlockSize=0;",
        "OPTS PASV AllowDelayed=2",
        "OPTS PASV",
        "OPTS UTF8",
        "OPTS",
        "DCAU X",
        "DCAU S",
        "NOOP x",
        "SITE STORATTR modify=now;",
    ] {
        assert_eq!(refusal(line).code(), 501, "{line}");
    }
}

#[test]
fn known_parameters_that_are_not_had() {
    assert_eq!(refusal("ERET foo=\"a=1\" path").code(), 504);
    assert_eq!(refusal("ESTO P 1 path").code(), 504);
    assert_eq!(refusal("TREV CPU 1").code(), 504);
    assert_eq!(refusal("DCSC Z x").code(), 504);
    assert_eq!(refusal("PROT E").code(), 536);
    assert_eq!(refusal("PROT X").code(), 536);
}

#[test]
fn unknown_and_unsupported_commands() {
    assert_eq!(
        refusal("XYZZY a").encode(),
        b"500 Invalid command 'XYZZY'. HELP lists the commands.\r\n"
    );
    assert_eq!(refusal("").code(), 500);
    assert_eq!(refusal(" NOOP").code(), 500);
    assert!(refusal("SITE XYZZY").text().contains("'SITE XYZZY'"));
    assert_eq!(refusal("SITE").code(), 501);
    for verb in [
        "GET a", "PUT a", "REIN", "ACCT a", "SMNT /", "STOU", "clnt x", "HOST a", "LPRT 1", "MFF",
    ] {
        let reply = refusal(verb);
        assert_eq!(reply.code(), 500);
        assert!(reply.text().starts_with("Command not supported"), "{verb}");
    }
    let long = refusal(&"x".repeat(60_000));
    assert!(long.encode().len() < 200);
}

#[test]
fn errors_say_what_would_be_right() {
    assert_eq!(
        refusal("CKSM MD5 abc -1 a").text(),
        "CKSM: 'abc' is not valid as the offset, which must be a decimal number. \
         Syntax: CKSM <sp> algorithm <sp> offset <sp> length <sp> pathname"
    );
    assert_eq!(
        refusal("RETR").text(),
        "RETR: the path is missing. Syntax: RETR <sp> pathname"
    );
}

#[test]
fn errors_use_no_words_that_clients_search_for() {
    // gfal2 takes an error for ENOENT, EACCES, EEXIST ... by such words in its text.
    let words = [
        "not found",
        "no such file",
        "exists",
        "credential",
        "permission denied",
        "is a directory",
    ];
    for line in [
        "", "FOO", "REIN", "RETR", "NOOP x", "PORT x", "PROT x", "TYPE e", "DCSC P ?", "REST x",
        "EPSV 3",
    ] {
        let text = refusal(line).text().to_lowercase();
        assert!(!words.iter().any(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn options() {
    assert_eq!(
        parsed("OPTS MLST Type;Size;"),
        Command::Opts(OptsCommand::Facts(vec![text("Type"), text("Size")]))
    );
    assert_eq!(
        parsed("OPTS MLST"),
        Command::Opts(OptsCommand::Facts(vec![]))
    );
    assert_eq!(
        refusal(&format!("OPTS MLST {}", "a;".repeat(65))).code(),
        501
    );
    assert_eq!(
        parsed("OPTS UTF8 ON"),
        Command::Opts(OptsCommand::Utf8(true))
    );
    assert_eq!(
        parsed("OPTS SPAS AllowDelayed=1"),
        Command::Opts(OptsCommand::DelayedPassive(true))
    );
    assert_eq!(
        parsed("OPTS CKSM markers=5;"),
        Command::Opts(OptsCommand::ChecksumMarkers(5))
    );
    let layout = |line| match parsed(line) {
        Command::Opts(OptsCommand::Retrieve(options)) => options.layout,
        other => panic!("{other:?}"),
    };
    let blocked = |block_bytes| Some(StripeLayout::Blocked { block_bytes });
    assert_eq!(
        layout("OPTS RETR StripeLayout=Blocked;"),
        blocked(StripeLayout::DEFAULT_BLOCK_BYTES)
    );
    assert_eq!(
        layout("OPTS RETR BlockSize=5;StripeLayout=Blocked;"),
        blocked(5)
    );
    assert_eq!(layout("OPTS RETR BlockSize=5;"), blocked(5));
    assert_eq!(
        layout("OPTS RETR BlockSize=5;StripeLayout=Partitioned;"),
        Some(StripeLayout::Partitioned)
    );
    assert_eq!(layout("OPTS RETR Markers=1;"), None);
}

#[test]
fn times() {
    let time = "2020-01-02T03:04:05Z".parse().unwrap();
    let expected = Command::Mfmt {
        modified: time,
        path: path("a b"),
    };
    assert_eq!(parsed("MFMT 20200102030405 a b"), expected);
    assert_eq!(parsed("MFMT 20200102030405.123 a b"), expected);
    assert_eq!(
        parsed("SITE STORATTR modify=20200102030405;checksum.md5=AB12;"),
        Command::Site(SiteCommand::StorAttr(StoreAttributes {
            modified: Some(time),
            checksum: Some((
                AlgorithmName::new("MD5").unwrap(),
                Checksum::new("ab12").unwrap()
            )),
        }))
    );
}

#[test]
fn logs_show_no_secrets() {
    for line in [
        "PASS sesame",
        "DCSC P sesame",
        "ADAT sesame",
        "ENC sesame",
        "SITE AUTHZ_ASSERT sesame",
    ] {
        let command = parsed(line);
        assert!(!command.to_string().contains("sesame"), "{command}");
        assert!(!format!("{command:?}").contains("sesame"), "{command:?}");
    }
    assert!(!refusal("DCSC P ?sesame").text().contains("sesame"));
    assert_eq!(parsed("PASS sesame").to_string(), "PASS ***");
    assert_eq!(parsed("RETR a\nb\u{1b}").to_string(), "RETR a\\nb\\u{1b}");
}

fn any_path() -> impl Strategy<Value = PathArgument> {
    prop_oneof![
        vec(any::<u8>(), 1..20).prop_filter_map("no path", PathArgument::new),
        "[- a~/.]{1,6}".prop_map(|text| path(&text)),
    ]
}

fn any_text() -> impl Strategy<Value = Text> {
    any::<String>().prop_filter_map("no text", Text::new)
}

fn any_word() -> impl Strategy<Value = Text> {
    "[!-~]{1,8}".prop_filter_map("no text", Text::new)
}

fn any_base64() -> impl Strategy<Value = Base64> {
    "[A-Za-z0-9+/=]{1,20}".prop_filter_map("no base64", Base64::new)
}

fn any_algorithm() -> impl Strategy<Value = AlgorithmName> {
    "[A-Za-z0-9-]{1,8}".prop_filter_map("no name", |name| AlgorithmName::new(&name))
}

fn any_checksum() -> impl Strategy<Value = Checksum> {
    "[0-9a-fA-F]{1,40}".prop_filter_map("no checksum", |digits| Checksum::new(&digits))
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    // The years 0001 to 9999.
    (-62_135_596_800i64..253_402_207_200).prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn any_socket_address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), 1u16..).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)]
}

fn any_restart() -> impl Strategy<Value = Restart> {
    prop_oneof![
        (0..=crate::ranges::MAX_OFFSET).prop_map(Restart::At),
        vec((0u64..1 << 40, 1u64..1 << 20), 0..8).prop_map(|ranges| Restart::Ranges(
            ranges
                .into_iter()
                .map(|(start, length)| start..start + length)
                .collect()
        )),
    ]
}

fn any_opts() -> impl Strategy<Value = OptsCommand> {
    let parallelism =
        (1u32.., 1u32.., 1u32..).prop_map(|(starting, minimum, maximum)| Parallelism {
            starting,
            minimum,
            maximum,
        });
    let layout = prop_oneof![
        Just(StripeLayout::Partitioned),
        (1u64..).prop_map(|block_bytes| StripeLayout::Blocked { block_bytes }),
    ];
    let retrieve = (
        option::of(parallelism),
        option::of(layout),
        any::<Option<u32>>(),
        option::of(1u64..),
    );
    let fact = "[A-Za-z.]{1,12}".prop_filter_map("no text", Text::new);
    prop_oneof![
        retrieve.prop_map(|(parallelism, layout, marker_seconds, packet_bytes)| {
            OptsCommand::Retrieve(RetrieveOptions {
                parallelism,
                layout,
                marker_seconds,
                packet_bytes,
            })
        }),
        any::<bool>().prop_map(OptsCommand::DelayedPassive),
        vec(fact, 0..OptsCommand::MAX_FACTS).prop_map(OptsCommand::Facts),
        any::<bool>().prop_map(OptsCommand::Utf8),
        any::<u32>().prop_map(OptsCommand::ChecksumMarkers),
    ]
}

fn any_site() -> impl Strategy<Value = SiteCommand> {
    use SiteCommand as S;
    let verb = proptest::sample::select(&BufferVerb::ALL[..]);
    let stack = || {
        prop_oneof![
            Just(StackRequest::Default),
            any_word()
                .prop_filter("taken", |text| !text
                    .as_str()
                    .eq_ignore_ascii_case("default"))
                .prop_map(StackRequest::Drivers),
        ]
    };
    let attributes = (
        option::of(any_time()),
        option::of((any_algorithm(), any_checksum())),
    );
    let files = prop_oneof![
        (0u16..=0o7777, any_path()).prop_map(|(bits, path)| S::Chmod {
            mode: FileMode::new(bits).unwrap(),
            path
        }),
        (any_word(), any_path()).prop_map(|(group, path)| S::Chgrp { group, path }),
        (any_time(), any_path()).prop_map(|(modified, path)| S::Utime { modified, path }),
        (any::<u64>(), any_path()).prop_map(|(length, path)| S::Trnc { length, path }),
        any_path().prop_map(S::SymlinkFrom),
        any_path().prop_map(S::SymlinkTo),
        any_path().prop_map(S::Rdel),
        any_path().prop_map(S::Chroot),
    ];
    let texts = prop_oneof![
        any_text().prop_map(S::ClientInfo),
        any_text().prop_map(S::TaskId),
        any_text().prop_map(|text| S::AuthzAssert(Assertion(text))),
        any_text().prop_map(S::Restrict),
        any_text().prop_map(S::Dsi),
        any_text().prop_map(S::Sharing),
        any_text().prop_map(S::Http),
        any_text().prop_map(S::Upas),
        any_text().prop_map(S::Uprt),
        any_text().prop_map(S::Fault),
    ];
    prop_oneof![
        files,
        texts,
        option::of(any_text()).prop_map(S::Help),
        (verb, any::<u64>()).prop_map(|(verb, bytes)| S::BufferSize { verb, bytes }),
        Just(S::Whoami),
        Just(S::Version),
        stack().prop_map(S::SetNetStack),
        stack().prop_map(S::SetDiskStack),
        attributes
            .prop_map(|(modified, checksum)| S::StorAttr(StoreAttributes { modified, checksum })),
    ]
}

fn any_security_command() -> impl Strategy<Value = Command> {
    use Command as C;
    prop_oneof![
        any_text().prop_map(C::User),
        vec(any::<u8>(), 0..20)
            .prop_filter_map("no password", |bytes| Password::new(bytes).map(C::Pass)),
        any_text().prop_map(C::Auth),
        any_base64().prop_map(C::Adat),
        any_base64().prop_map(C::Enc),
        any_base64().prop_map(C::Mic),
        any_base64().prop_map(C::Conf),
        any::<u32>().prop_map(C::Pbsz),
        Just(C::Prot(ProtectionLevel::Clear)),
        Just(C::Prot(ProtectionLevel::Safe)),
        Just(C::Prot(ProtectionLevel::Private)),
        Just(C::Dcau(DataChannelAuthentication::None)),
        Just(C::Dcau(DataChannelAuthentication::User)),
        any_text().prop_map(|subject| C::Dcau(DataChannelAuthentication::Subject(subject))),
        Just(C::Dcsc(DataChannelContext::Default)),
        any_base64().prop_map(|pem| C::Dcsc(DataChannelContext::Credential(pem))),
    ]
}

fn any_transfer_command() -> impl Strategy<Value = Command> {
    use Command as C;
    let event = prop_oneof![Just(MarkerEvent::Performance), Just(MarkerEvent::Restart)];
    prop_oneof![
        prop_oneof![Just(Representation::Ascii), Just(Representation::Image)].prop_map(C::Type),
        prop_oneof![Just(TransferMode::Stream), Just(TransferMode::Extended)].prop_map(C::Mode),
        any::<u64>().prop_map(C::Sbuf),
        (event, any::<u32>()).prop_map(|(event, seconds)| C::Trev { event, seconds }),
        any_family().prop_map(|family| C::Epsv(EpsvRequest::Family(family))),
        Just(C::Epsv(EpsvRequest::Same)),
        Just(C::Epsv(EpsvRequest::All)),
        option::of(any_family()).prop_map(C::Spas),
        (any::<Ipv4Addr>(), 1u16..).prop_map(|(ip, port)| C::Port(SocketAddrV4::new(ip, port))),
        any_socket_address().prop_map(C::Eprt),
        vec(any_socket_address(), 1..=StripeAddresses::MAX)
            .prop_map(|addresses| C::Spor(StripeAddresses::new(addresses).unwrap())),
        (any::<u64>(), any::<Option<u64>>()).prop_map(|(bytes, record_bytes)| C::Allo {
            bytes,
            record_bytes
        }),
        any_restart().prop_map(C::Rest),
        (any::<u64>(), any::<u64>(), any_path()).prop_map(|(offset, length, path)| C::Eret {
            offset,
            length,
            path
        }),
        (any::<u64>(), any_path()).prop_map(|(offset, path)| C::Esto { offset, path }),
        (
            any_algorithm(),
            any::<u64>(),
            any::<Option<u64>>(),
            any_path()
        )
            .prop_map(|(algorithm, offset, length, path)| C::Cksm {
                algorithm,
                offset,
                length,
                path
            }),
        (any_algorithm(), any_checksum()).prop_map(|(algorithm, checksum)| C::Scks {
            algorithm,
            checksum
        }),
        (any_time(), any_path()).prop_map(|(modified, path)| C::Mfmt { modified, path }),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    use Command as C;
    let with_path: [fn(PathArgument) -> C; 11] = [
        C::Retr,
        C::Stor,
        C::Appe,
        C::Size,
        C::Mdtm,
        C::Cwd,
        C::Mkd,
        C::Rmd,
        C::Dele,
        C::Rnfr,
        C::Rnto,
    ];
    let maybe_path: [fn(Option<PathArgument>) -> C; 5] =
        [C::Mlsd, C::Mlsr, C::Mlsc, C::Mlst, C::Stat];
    let list_path = || option::of(any_path().prop_map(ListPath::new));
    let alone = [
        C::Quit,
        C::Ccc,
        C::Feat,
        C::Syst,
        C::Noop,
        C::Stru,
        C::Pasv,
        C::Abor,
        C::Pwd,
        C::Cdup,
    ];
    prop_oneof![
        proptest::sample::select(alone.to_vec()),
        (proptest::sample::select(with_path.to_vec()), any_path())
            .prop_map(|(command, path)| command(path)),
        (
            proptest::sample::select(maybe_path.to_vec()),
            option::of(any_path())
        )
            .prop_map(|(command, path)| command(path)),
        list_path().prop_map(C::List),
        list_path().prop_map(C::Nlst),
        option::of(any_text()).prop_map(C::Help),
        option::of(any_text()).prop_map(C::Lang),
        any_opts().prop_map(C::Opts),
        any_site().prop_map(C::Site),
        any_security_command(),
        any_transfer_command(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn commands_survive(command in any_command()) {
        let line = command.encode();
        prop_assert!(crate::line::fits(&line));
        prop_assert_eq!(Command::parse(&line), Ok(command));
    }

    #[test]
    fn no_line_makes_the_parser_panic(line: Vec<u8>) {
        let _ = Command::parse(&line);
    }

    #[test]
    fn what_was_parsed_survives(
        verb in "(OPTS|SITE CHMOD|ALLO|TYPE|EPRT|SPOR|REST|LIST|CKSM|OPTS RETR|SITE STORATTR|MFMT)",
        argument in "[ -~]{0,24}",
    ) {
        if let Ok(command) = parse(&format!("{verb} {argument}")) {
            prop_assert_eq!(Command::parse(&command.encode()), Ok(command));
        }
    }
}
