//! Lines that a client may send: commands with likely arguments, and anything else.

use crate::fuzz_input::Input;

/// Paths, most of which try to leave the root.
const PATHS: &[&str] = &[
    "a",
    "d",
    "d/b",
    "new",
    "d/new",
    "/",
    ".",
    "..",
    "../outside/secret",
    "/../outside/secret",
    "d/../../outside/secret",
    "link",
    "out",
    "out/secret",
    "out/new",
    "absolute",
    "absolute/secret",
    "~/a",
    "*",
    "out/*",
    "{a,d}*",
    "d/[a-c]",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "5",
    "1000",
    "100000",
    "-1",
    "18446744073709551615",
    "x",
];

/// Templates of commands: `P` stands for a path, `N` for a number, `H` for the client's own port in the form of `PORT`, and
/// `E` in the form of `EPRT`.
const COMMANDS: &[&str] = &[
    "USER anonymous",
    "PASS x@",
    "USER P",
    "ACCT x",
    "REIN",
    "NOOP",
    "FEAT",
    "HELP",
    "SYST",
    "STAT",
    "STAT P",
    "PWD",
    "CWD P",
    "CDUP",
    "XCWD P",
    "TYPE A",
    "TYPE I",
    "TYPE E",
    "MODE S",
    "MODE E",
    "MODE B",
    "STRU F",
    "STRU R",
    "PASV",
    "EPSV",
    "EPSV ALL",
    "EPSV 1",
    "SPAS",
    "PORT H",
    "EPRT E",
    "SPOR H",
    "PORT 127,0,0,1,0,1",
    "PORT 10,0,0,1,4,1",
    "RETR P",
    "RETR P",
    "STOR P",
    "STOR P",
    "APPE P",
    "STOU",
    "LIST P",
    "LIST -a P",
    "NLST P",
    "NLST",
    "MLSD P",
    "MLSD",
    "MLST P",
    "MLSC P",
    "MLSR P",
    "SIZE P",
    "MDTM P",
    "MFMT 20200101000000 P",
    "DELE P",
    "RMD P",
    "MKD P",
    "RNFR P",
    "RNTO P",
    "REST N",
    "REST 0-N,N-N",
    "ALLO N",
    "ABOR",
    "\u{f2}ABOR",
    "ERET P N N P",
    "ERET P 0 N P",
    "ESTO A N P",
    "CKSM MD5 0 -1 P",
    "CKSM ADLER32 N N P",
    "SITE CHMOD 600 P",
    "SITE CHMOD 6755 P",
    "SITE CHGRP 0 P",
    "SITE UTIME 20200101000000 P",
    "SITE SYMLINK P P",
    "SITE RDEL P",
    "SITE TRNCFILE N P",
    "SITE HELP",
    "SITE SETNETSTACK default",
    "SITE SETNETSTACK tcp:port=N;bind=0.0.0.0",
    "SITE GETNETSTACK",
    "SITE SETNETSTACK file:P,rdma,memory",
    "SITE TASKID x",
    "SITE CLIENTINFO appname=x;",
    "SITE BUFSIZE N",
    "OPTS RETR Parallelism=N,N,N;",
    "OPTS MLST type;size;",
    "OPTS STOR StripeLayout=Blocked;BlockSize=N;",
    "OPTS PASV AllowDelayed=1;",
    "SBUF N",
    "DCAU N",
    "DCAU A",
    "DCAU S x",
    "PBSZ N",
    "PROT P",
    "PROT C",
    "AUTH GSSAPI",
    "AUTH TLS",
    "ADAT AAAA",
    "MIC AAAA",
    "ENC AAAA",
    "CCC",
    "DCSC P x",
    "LANG en",
    "HOST x",
    "CLNT x",
    "TREV PERF 1",
    "SCKS MD5 x",
    "MFF x=1; P",
];

/// The next line, without its end; never empty.
pub(super) fn line(input: &mut Input<'_>, port: u16) -> Vec<u8> {
    let kind = input.byte();
    if kind >= 240 {
        let length = usize::from(input.byte());
        return anything(input.bytes(length));
    }
    let mut line = Vec::new();
    let command = COMMANDS[usize::from(kind) % COMMANDS.len()];
    let (verb, arguments) = command.split_once(' ').unwrap_or((command, ""));
    line.extend(verb.bytes());
    for word in arguments.split(' ').filter(|word| !word.is_empty()) {
        line.push(b' ');
        word_of(&mut line, word, input, port);
    }
    line
}

fn word_of(line: &mut Vec<u8>, word: &str, input: &mut Input<'_>, port: u16) {
    let [high, low] = port.to_be_bytes();
    match word {
        "P" => path(line, input),
        "H" => line.extend(format!("127,0,0,1,{high},{low}").bytes()),
        "E" => line.extend(format!("|1|127.0.0.1|{port}|").bytes()),
        _ => {
            for character in word.chars() {
                match character {
                    'N' => line.extend(input.one_of(NUMBERS).bytes()),
                    other => line.extend(other.to_string().bytes()),
                }
            }
        }
    }
}

fn path(line: &mut Vec<u8>, input: &mut Input<'_>) {
    match input.byte() {
        250.. => {
            let length = usize::from(input.byte() % 64);
            line.extend(anything(input.bytes(length)));
        }
        place => line.extend(PATHS[usize::from(place) % PATHS.len()].bytes()),
    }
}

/// Any bytes except line ends and telnet's IAC.
fn anything(bytes: &[u8]) -> Vec<u8> {
    let kept = bytes.iter().copied();
    // An empty line has no reply.
    std::iter::once(b'x')
        .chain(kept.filter(|byte| !matches!(byte, b'\r' | b'\n' | 0xff)))
        .collect()
}
