//! Commands out of order, and commands with invalid arguments.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use gridhaul_interop::raw::{Control, Reply, get_blocks, get_stream};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::{Fixture, HELLO, assert_reply, give_to_server};

#[test]
fn commands_before_login_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = Control::greeted(fixture.address()).unwrap();
    let path = fixture.path(HELLO.0);
    let commands = [
        "PASV".to_owned(),
        "EPSV".to_owned(),
        "SPAS".to_owned(),
        "PORT 127,0,0,1,200,200".to_owned(),
        "PWD".to_owned(),
        format!("SIZE {path}"),
        format!("RETR {path}"),
        format!("STOR {path}"),
        format!("DELE {path}"),
        format!("MLST {path}"),
        format!("STAT {path}"),
        format!("CKSM MD5 0 -1 {path}"),
        format!("SITE RDEL {path}"),
        "MKD made".to_owned(),
        "MLSD".to_owned(),
    ];
    for command in commands {
        let reply = control.command(&command).unwrap();
        assert_reply(&reply, &[530], &["log in|login"]);
    }
    assert_eq!(fixture.content(HELLO.0), HELLO.1);
    assert!(!fixture.root().join("made").exists());
    control.log_in().unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn login_commands_out_of_order_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = Control::greeted(fixture.address()).unwrap();
    assert_reply(&control.command("PASS x").unwrap(), &[503], &["USER"]);
    control.must("USER anonymous", 331).unwrap();
    assert_reply(&control.command("PWD").unwrap(), &[530], &[]);
    control.must("PASS x", 230).unwrap();
    assert_reply(
        &control.command("USER anonymous").unwrap(),
        &[503],
        &["already"],
    );
    assert_reply(&control.command("PASS x").unwrap(), &[503], &["already"]);
    control.must("TYPE I", 200).unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn an_unknown_user_is_refused_like_a_wrong_password() {
    let fixture = Fixture::ours(&[]);
    let mut control = Control::greeted(fixture.address()).unwrap();
    let first = control.command("USER root").unwrap();
    let refused = if first.code == 331 {
        control.command("PASS toor").unwrap()
    } else {
        first
    };
    assert_reply(&refused, &[530], &["Login incorrect"]);
    control.log_in().unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn rename_needs_both_halves_in_order() {
    let fixture = Fixture::ours(&[]);
    fixture.file("a", b"a");
    let mut control = fixture.session();
    assert_reply(&control.command("RNTO b").unwrap(), &[501, 503], &["RNFR"]);
    control.must("RNFR a", 350).unwrap();
    control.must("RNTO b", 250).unwrap();
    assert_reply(&control.command("RNTO c").unwrap(), &[501, 503], &["RNFR"]);
    assert_reply(
        &control.command("RNFR a").unwrap(),
        &[500, 550],
        &["No such file"],
    );
    // A failed RNFR leaves no name for RNTO.
    assert_reply(&control.command("RNTO c").unwrap(), &[501, 503], &["RNFR"]);
    assert_eq!(fixture.content("b"), b"a");
    fixture.session_works(&mut control);
}

#[test]
fn symlink_needs_both_halves_in_order() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let reply = control.command("SITE SYMLINKTO link").unwrap();
    assert_reply(&reply, &[501, 503], &["SYMLINKFROM"]);
    fixture.session_works(&mut control);
}

#[test]
fn a_transfer_needs_a_data_port() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for mode in ["MODE S", "MODE E"] {
        control.must(mode, 200).unwrap();
        for command in [
            "RETR hello.txt",
            "STOR up",
            "APPE up",
            "MLSD",
            "LIST",
            "NLST",
            "MLSR",
        ] {
            let reply = control.command(command).unwrap();
            assert_reply(&reply, &[425, 500, 503], &["PASV|PORT"]);
        }
        for command in ["ERET P 0 5 hello.txt", "ESTO A 0 up"] {
            let reply = control.command(command).unwrap();
            assert_reply(&reply, &[425, 500, 503], &["PASV|PORT"]);
        }
    }
    assert!(
        !fixture.root().join("up").exists(),
        "a refused STOR made a file"
    );
    fixture.session_works(&mut control);
}

#[test]
fn in_mode_e_the_sender_connects() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    for command in [
        "RETR hello.txt",
        "ERET P 0 5 hello.txt",
        "MLSD",
        "LIST",
        "NLST",
    ] {
        control.passive().unwrap();
        let reply = control.command(command).unwrap();
        assert_reply(&reply, &[425, 500, 503], &["PORT"]);
    }
    for command in ["STOR up", "ESTO A 0 up", "APPE up"] {
        let _listener = control.listen().unwrap();
        let reply = control.command(command).unwrap();
        assert_reply(&reply, &[425, 500, 503], &["PASV"]);
    }
    assert!(
        !fixture.root().join("up").exists(),
        "a refused STOR made a file"
    );
    assert_eq!(
        get_blocks(&mut control, "hello.txt", 2)
            .unwrap()
            .file()
            .unwrap(),
        HELLO.1
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_data_port_serves_one_stream_transfer() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    assert_eq!(get_stream(&mut control, "hello.txt").unwrap(), HELLO.1);
    let reply = control.command("RETR hello.txt").unwrap();
    assert_reply(&reply, &[425, 500, 503], &["PASV|PORT"]);
    fixture.session_works(&mut control);
}

/// Lines with invalid arguments.
const NONSENSE: [&str; 69] = [
    "TYPE X",
    "TYPE",
    "MODE B",
    "MODE",
    "STRU R",
    "STRU P",
    "ALLO abc",
    "ALLO -1",
    "ALLO 99999999999999999999",
    "PORT 127,0,0,1,4",
    "PORT 127,0,0,1,4,5,6",
    "PORT 256,0,0,1,4,5",
    "PORT 127,0,0,1,-4,5",
    "PORT abc",
    "PORT",
    "SPOR",
    "SPOR 1,2,3",
    "EPRT foo",
    "EPRT |3|x|5|",
    "EPRT |1|127.0.0.1|70000|",
    "EPRT |1|127.0.0.1|",
    "EPRT |2|::1|x|",
    "EPSV 3",
    "REST abc",
    "REST 100-",
    "REST 10-5",
    "REST -5",
    "REST 99999999999999999999",
    "REST 0-10,5-",
    "ERET",
    "ERET Q hello.txt",
    "ERET P 5 -1 hello.txt",
    "ERET P -5 1 hello.txt",
    "ERET P x 1 hello.txt",
    "ESTO",
    "ESTO A up",
    "ESTO A -1 up",
    "ESTO Q 0 up",
    "CKSM",
    "CKSM MD5",
    "CKSM MD5 x 1 hello.txt",
    "CKSM NOPE 0 -1 hello.txt",
    "CKSM MD5 -5 1 hello.txt",
    "SBUF x",
    "SBUF -1",
    "TREV PERF x",
    "TREV NOPE 1",
    "PBSZ abc",
    "PROT X",
    "OPTS",
    "OPTS NOPE",
    "OPTS RETR Parallelism=0,0,0;",
    "OPTS RETR Parallelism=x;",
    "OPTS RETR Nope=1;",
    "MFMT",
    "MFMT 2020 hello.txt",
    "MFMT 20201399999999 hello.txt",
    "SITE",
    "SITE CHMOD u+x hello.txt",
    "SITE CHMOD 99999 hello.txt",
    "SITE UTIME 20 hello.txt",
    "SITE TRNC -1 hello.txt",
    "SITE RETRBUFSIZE x",
    "RETR",
    "STOR",
    "SIZE",
    "MKD",
    "DELE",
    "RNFR",
];

#[test]
fn invalid_arguments_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for line in NONSENSE {
        refused(&mut control, line);
    }
    assert_eq!(fixture.content(HELLO.0), HELLO.1);
    fixture.session_works(&mut control);
}

#[track_caller]
fn refused(control: &mut Control, line: &str) {
    let reply = control.command(line).unwrap();
    assert!((500..=553).contains(&reply.code), "{line}: {reply}");
    assert!(
        reply.tail().len() > 3,
        "{line}: a refusal without words: {reply}"
    );
}

#[test]
fn a_restart_marker_beyond_the_end_is_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for offset in ["18", "1000000", "9223372036854775807"] {
        control.must(&format!("REST {offset}"), 350).unwrap();
        let refused = get_stream(&mut control, "hello.txt").unwrap_err();
        assert!(refused.to_string().contains("554"), "{refused}");
    }
    fixture.session_works(&mut control);
}

#[test]
fn parallelism_is_bounded() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let reply = control
        .command("OPTS RETR Parallelism=100000,100000,100000;")
        .unwrap();
    if reply.code != 200 {
        assert_reply(&reply, &[500, 501], &["64"]);
        return fixture.session_works(&mut control);
    }
    let listener = control.listen().unwrap();
    control.must("RETR hello.txt", 150).unwrap();
    let mut channels = Vec::new();
    while let Some(channel) = listener.accept_within(Duration::from_millis(500)).unwrap() {
        channels.push(channel);
        assert!(
            channels.len() <= 64,
            "the server opens connections without a bound"
        );
    }
}

#[test]
fn a_third_host_is_no_data_peer() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    // A service of another host, to which the server must not connect (RFC 2577).
    let third = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    third.set_nonblocking(true).unwrap();
    let [high, low] = third.local_addr().unwrap().port().to_be_bytes();
    let attempts = [
        format!("PORT 127,0,0,2,{high},{low}"),
        format!("EPRT |1|127.0.0.2|{}|", third.local_addr().unwrap().port()),
        "PORT 127,0,0,2,0,22".to_owned(),
        "PORT 10,1,2,3,0,25".to_owned(),
        "EPRT |1|127.0.0.2|80|".to_owned(),
    ];
    for attempt in attempts {
        let answer = port_or_transfer(&mut control, &attempt);
        assert_reply(
            &answer,
            &[425, 500, 501, 504, 522, 550],
            &["127.0.0.2|10.1.2.3|below 1024"],
        );
    }
    control.must("MODE E", 200).unwrap();
    let answer = port_or_transfer(&mut control, &format!("SPOR 127,0,0,2,{high},{low}"));
    assert_reply(&answer, &[425, 500, 501, 504, 522, 550], &["127.0.0.2"]);
    let nobody = third.accept().unwrap_err();
    assert_eq!(
        nobody.kind(),
        std::io::ErrorKind::WouldBlock,
        "the server went there"
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_low_port_is_no_data_port() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let answer = port_or_transfer(&mut control, "PORT 127,0,0,1,0,22");
    assert_reply(&answer, &[425, 500, 501, 504, 522, 550], &["22|port"]);
    let answer = port_or_transfer(&mut control, "PORT 127,0,0,1,0,0");
    assert_reply(&answer, &[425, 500, 501, 504, 522, 550], &["0|port"]);
    fixture.session_works(&mut control);
}

/// The refusal of PORT, or else that of the transfer.
#[track_caller]
fn port_or_transfer(control: &mut Control, port: &str) -> Reply {
    let reply = control.command(port).unwrap();
    if reply.code != 200 {
        return reply;
    }
    control.send_line("RETR hello.txt").unwrap();
    control.dialogue().unwrap().last
}

#[test]
fn transfers_of_non_files_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    fixture.folder("folder");
    for (command, words) in [
        ("RETR folder", "Is a directory"),
        ("STOR folder", "Is a directory"),
        ("RETR missing", "No such file or directory"),
        ("STOR missing/up", "No such file or directory"),
        ("RETR hello.txt/up", "Not a directory"),
        ("MLSD missing", "No such file or directory"),
    ] {
        refused_transfer(&mut control, command, words);
    }
    fixture.session_works(&mut control);
}

#[test]
fn transfers_of_pipes_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let path = fixture.root().join("special");
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
    give_to_server(&path);
    // open(2) of a FIFO would block until the other end is opened.
    for command in [
        "RETR special",
        "STOR special",
        "APPE special",
        "CKSM MD5 0 -1 special",
    ] {
        refused_transfer(&mut control, command, "regular file|pipe|FIFO");
    }
    fixture.session_works(&mut control);
}

#[track_caller]
fn refused_transfer(control: &mut Control, command: &str, words: &str) {
    control.passive().unwrap();
    control.send_line(command).unwrap();
    let refusal = control.dialogue().unwrap().last;
    assert_reply(&refusal, &[450, 451, 500, 501, 550, 553], &[words]);
}
