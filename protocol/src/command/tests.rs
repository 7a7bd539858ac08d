//! Tests with recorded lines of clients, and with invalid lines.

mod round_trip;

use super::*;
use crate::address::{Family, StripeAddresses};
use crate::path::PathArgument;
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

/// Recorded lines of globus-url-copy 10.12 and gfal2 2.21. [`Command::encode`] reproduces each line.
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
fn recorded_lines_are_read_and_written() {
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
fn old_names_are_accepted() {
    assert_eq!(parsed("XPWD"), Command::Pwd);
    assert_eq!(parsed("XCUP"), Command::Cdup);
    assert_eq!(parsed("XCWD a"), Command::Cwd(path("a")));
    assert_eq!(parsed("XMKD a"), Command::Mkd(path("a")));
    assert_eq!(parsed("XRMD a"), Command::Rmd(path("a")));
}

#[test]
fn a_path_is_the_rest_of_the_line() {
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
fn flags_of_ls_are_removed() {
    let listed = |name: &str| Command::List(ListPath::new(path(name)));
    assert_eq!(parsed("LIST"), Command::List(None));
    assert_eq!(parsed("LIST -la"), Command::List(None));
    assert_eq!(parsed("LIST -l -a a b"), listed("a b"));
    assert_eq!(parsed("LIST a -l"), listed("a -l"));
    assert_eq!(parsed("NLST -"), Command::Nlst(ListPath::new(path("-"))));
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
        "SITE CHMOD 1000000 a",
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
fn known_parameters_that_are_not_supported() {
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
        "GET a", "PUT a", "SMNT /", "clnt x", "HOST a", "LPRT 1", "MFF",
    ] {
        let reply = refusal(verb);
        assert_eq!(reply.code(), 500);
        assert!(reply.text().starts_with("Command not supported"), "{verb}");
    }
    let long = refusal(&"x".repeat(60_000));
    assert!(long.encode().len() < 200);
}

#[test]
fn errors_name_valid_values() {
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
fn errors_quote_the_input() {
    assert_eq!(
        refusal("REST it's").text(),
        "REST: 'it's' is no range; a restart is written as 1234 or as 0-1000,2000-3000. \
         Syntax: REST <sp> offset | start-end[,start-end]..."
    );
    assert!(refusal("SITE \"a\\b\"").text().contains("'SITE \"A\\B\"'"));
    assert!(refusal("MODE ü").text().contains("'ü'"));
    // Control characters and bytes that are not text are escaped once.
    assert!(refusal("MODE \u{7}").text().contains("'\\u{7}'"));
    let no_text = Command::parse(b"SITE \xff").expect_err("no command");
    assert!(no_text.reply().text().contains("'SITE \\xff'"));
}

#[test]
fn a_mode_may_have_a_file_type() {
    let mode = |line| match parsed(line) {
        Command::Site(SiteCommand::Chmod { mode, .. }) => mode.bits(),
        other => panic!("{other:?}"),
    };
    assert_eq!(mode("SITE CHMOD 40755 /d"), 0o755);
    assert_eq!(mode("SITE CHMOD 100644 /f"), 0o644);
    assert_eq!(mode("SITE CHMOD 0102755 /f"), 0o2755);
    assert_eq!(mode("SITE CHMOD 177777 /f"), 0o7777);
}

#[test]
fn errors_contain_no_text_that_clients_search_for() {
    // gfal2 maps errors to ENOENT, EACCES, EEXIST ... by such words in the text.
    let words = [
        "not found",
        "no such file",
        "exists",
        "credential",
        "permission denied",
        "is a directory",
    ];
    for line in [
        "", "FOO", "REIN x", "RETR", "NOOP x", "PORT x", "PROT x", "TYPE e", "DCSC P ?", "REST x",
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

#[test]
fn base64_is_decoded_with_and_without_padding() {
    let decoded = |text: &str| Some(Base64::new(text)?.decode()?.to_vec());
    assert_eq!(decoded("aGk="), Some(b"hi".to_vec()));
    assert_eq!(decoded("aGk"), Some(b"hi".to_vec()));
    for wrong in ["a", "aG=k", "====", "a-_k"] {
        assert_eq!(decoded(wrong), None, "{wrong}");
    }
    assert_eq!(Base64::encode(b"hi"), "aGk=");
}
