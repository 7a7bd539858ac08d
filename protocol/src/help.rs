//! `HELP` and `SITE HELP`: every command with its syntax.
//!
//! The layout is that of globus-gridftp-server 13.24, because clients search its `SITE HELP` for words. Error replies quote the
//! syntax from the same table.

use crate::reply::Reply;

/// The reply to `HELP` and `SITE HELP`, optionally for one command (RFC 959 4.1.3).
pub fn reply(topic: Option<&str>) -> Reply {
    let Some(topic) = topic else {
        return Reply::spaced(
            214,
            "The following commands are recognized:",
            overview(),
            "End",
        );
    };
    let topic = topic.trim().to_ascii_uppercase();
    if topic == "SITE" {
        let lines = SITE_COMMANDS.iter().map(|(_, syntax)| syntax);
        return Reply::spaced(214, "Help for SITE:", lines, "End.");
    }
    // `SITE HELP CHMOD` asks for `SITE CHMOD`.
    match entry(&topic).or_else(|| entry(&format!("SITE {topic}"))) {
        Some((_, syntax)) => Reply::spaced(214, format!("Help for {topic}:"), [syntax], "End."),
        None => Reply::new(502, format!("Unknown command '{topic}'.")),
    }
}

/// The name and the syntax of a command, by its name in capitals: `CKSM`, `SITE CHMOD`.
pub(crate) fn entry(verb: &str) -> Option<(&'static str, &'static str)> {
    COMMANDS
        .iter()
        .chain(SECURITY_COMMANDS)
        .chain(SITE_COMMANDS)
        .find(|(name, _)| *name == verb)
        .copied()
}

/// Eight names per line. The first of the four spaces before a name is that of an inner line.
fn overview() -> impl Iterator<Item = String> {
    COMMANDS.chunks(8).map(|row| {
        let names: Vec<_> = row.iter().map(|(name, _)| format!("{name:<4}")).collect();
        format!("   {}", names.join("    "))
    })
}

/// The commands in the order of `HELP`.
const COMMANDS: &[(&str, &str)] = &[
    ("ALLO", "ALLO <sp> size [<sp> R <sp> record-size]"),
    ("APPE", "APPE <sp> pathname"),
    ("REST", "REST <sp> offset | start-end[,start-end]..."),
    ("CWD", "CWD <sp> pathname"),
    ("CDUP", "CDUP (up one directory)"),
    ("DCAU", "DCAU <sp> N | A | S <sp> subject"),
    ("EPSV", "EPSV [<sp> 1 | 2 | ALL]"),
    ("FEAT", "FEAT"),
    ("ERET", "ERET <sp> P <sp> offset <sp> length <sp> pathname"),
    ("MDTM", "MDTM <sp> pathname"),
    ("STAT", "STAT [<sp> pathname]"),
    ("ESTO", "ESTO <sp> A <sp> offset <sp> pathname"),
    ("HELP", "HELP [<sp> command]"),
    ("LIST", "LIST [<sp> pathname]"),
    ("MODE", "MODE <sp> S | E"),
    ("NLST", "NLST [<sp> pathname]"),
    ("MLSC", "MLSC [<sp> pathname]"),
    ("MLSD", "MLSD [<sp> pathname]"),
    ("PASV", "PASV"),
    ("RNFR", "RNFR <sp> pathname"),
    ("MLSR", "MLSR [<sp> pathname]"),
    ("MLST", "MLST [<sp> pathname]"),
    ("NOOP", "NOOP (no operation)"),
    (
        "OPTS",
        "OPTS <sp> RETR | PASV | SPAS | EPSV | MLST | UTF8 | CKSM [<sp> option=value;...]",
    ),
    ("STOR", "STOR <sp> pathname"),
    ("PASS", "PASS <sp> password"),
    ("PBSZ", "PBSZ <sp> size"),
    ("PORT", "PORT <sp> h1,h2,h3,h4,p1,p2"),
    ("PROT", "PROT <sp> C | S | P"),
    ("SITE", "SITE <sp> command (HELP SITE lists them)"),
    (
        "EPRT",
        "EPRT <sp> |1|IPv4-address|port| or |2|IPv6-address|port|",
    ),
    ("RETR", "RETR <sp> pathname"),
    (
        "SPOR",
        "SPOR <sp> address [<sp> address]... (each as in PORT or EPRT)",
    ),
    ("MFMT", "MFMT <sp> YYYYMMDDHHMMSS <sp> pathname"),
    ("SCKS", "SCKS <sp> algorithm <sp> checksum"),
    ("TREV", "TREV <sp> PERF | RESTART <sp> seconds"),
    ("PWD", "PWD (returns current working directory)"),
    ("QUIT", "QUIT (close control connection)"),
    ("SBUF", "SBUF <sp> window-size"),
    ("SIZE", "SIZE <sp> pathname"),
    ("SPAS", "SPAS [<sp> 1 | 2]"),
    ("STRU", "STRU <sp> F"),
    ("SYST", "SYST (returns system type)"),
    ("RNTO", "RNTO <sp> pathname"),
    ("TYPE", "TYPE <sp> A | I"),
    ("USER", "USER <sp> username"),
    ("LANG", "LANG [<sp> language]"),
    ("MKD", "MKD <sp> pathname"),
    ("RMD", "RMD <sp> pathname"),
    ("DELE", "DELE <sp> pathname"),
    (
        "CKSM",
        "CKSM <sp> algorithm <sp> offset <sp> length <sp> pathname",
    ),
    ("DCSC", "DCSC <sp> D | P <sp> base64"),
    ("ABOR", "ABOR (stops a transfer)"),
    (
        "RADR",
        "RADR <sp> address [<sp> buffer-size] (address as in PORT or EPRT)",
    ),
    ("RPSV", "RPSV [<sp> buffer-size]"),
    ("RSTR", "RSTR <sp> pathname"),
    ("RRTR", "RRTR <sp> pathname"),
    ("STOU", "STOU [<sp> pathname]"),
    ("REIN", "REIN (back to before login)"),
    ("ACCT", "ACCT <sp> account (not needed)"),
];

/// Commands of RFC 2228, which globus-gridftp-server does not show in the overview.
const SECURITY_COMMANDS: &[(&str, &str)] = &[
    ("AUTH", "AUTH <sp> GSSAPI | TLS"),
    ("ADAT", "ADAT <sp> base64"),
    ("ENC", "ENC <sp> base64"),
    ("MIC", "MIC <sp> base64"),
    ("CONF", "CONF <sp> base64"),
    ("CCC", "CCC"),
];

const SITE_COMMANDS: &[(&str, &str)] = &[
    ("SITE SBUF", "SITE SBUF: set send and receive buffers"),
    (
        "SITE HTTP",
        "SITE HTTP <sp> operation <sp> operation-parameters",
    ),
    ("SITE RETRBUFSIZE", "SITE RETRBUFSIZE: set receive buffers"),
    ("SITE RBUFSZ", "SITE RBUFSZ: set receive buffers"),
    ("SITE RBUFSIZ", "SITE RBUFSIZ: set receive buffers"),
    ("SITE CHROOT", "SITE CHROOT <sp> new root path"),
    ("SITE STORBUFSIZE", "SITE STORBUFSIZE: set send buffers"),
    ("SITE SBUFSIZ", "SITE SBUFSIZ: set send buffers"),
    ("SITE SBUFSZ", "SITE SBUFSZ: set send buffers"),
    ("SITE BUFSIZE", "SITE BUFSIZE: set send and receive buffers"),
    ("SITE TRNC", "SITE TRNC <sp> length <sp> path"),
    ("SITE HELP", "SITE HELP: help on server commands"),
    ("SITE FAULT", "SITE FAULT: force a failure on given command"),
    ("SITE AUTHZ_ASSERT", "SITE AUTHZ_ASSERT <sp> assertion"),
    ("SITE WHOAMI", "SITE WHOAMI"),
    ("SITE RDEL", "SITE RDEL <sp> pathname"),
    ("SITE CHMOD", "SITE CHMOD <sp> mode <sp> pathname"),
    ("SITE CHGRP", "SITE CHGRP <sp> group <sp> pathname"),
    ("SITE UTIME", "SITE UTIME <sp> YYYYMMDDHHMMSS <sp> pathname"),
    ("SITE SYMLINKFROM", "SITE SYMLINKFROM <sp> reference-path"),
    ("SITE SYMLINKTO", "SITE SYMLINKTO <sp> link-path"),
    ("SITE DSI", "SITE DSI <sp> dsi name"),
    ("SITE VERSION", "SITE VERSION"),
    (
        "SITE SETNETSTACK",
        "SITE SETNETSTACK <sp> default | comma separated list of drivers for the data channel",
    ),
    ("SITE GETNETSTACK", "SITE GETNETSTACK"),
    ("SITE UPAS", "SITE UPAS <0|1> [<sp> stunserver:stunport]"),
    (
        "SITE SETDISKSTACK",
        "SITE SETDISKSTACK <sp> default | comma separated list of drivers for the disk channel",
    ),
    (
        "SITE CLIENTINFO",
        "SITE CLIENTINFO <sp> appname=\"<name of app>\";appver=\"<version string>\";\
         scheme=\"<ftp,gsiftp,sshftp>\";anyother=\"<interesting client info>\";",
    ),
    ("SITE RESTRICT", "SITE RESTRICT <sp> RP string"),
    ("SITE SHARING", "SITE SHARING <sp> command"),
    ("SITE UPRT", "SITE UPRT <sp> <SITE UPAS response>"),
    (
        "SITE STORATTR",
        "SITE STORATTR <sp> modify=YYYYMMDDHHMMSS;checksum.algorithm=hexadecimal;",
    ),
    ("SITE TASKID", "SITE TASKID <sp> taskid"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(topic: Option<&str>) -> String {
        String::from_utf8(reply(topic).encode()).unwrap()
    }

    #[test]
    fn overview_has_the_layout_of_the_globus_server() {
        let expected = "214-The following commands are recognized:\r\n\
            \x20    ALLO    APPE    REST    CWD     CDUP    DCAU    EPSV    FEAT\r\n";
        let expected = expected.replace("     ALLO", "    ALLO");
        let text = encoded(None);
        assert!(text.starts_with(&expected), "{text}");
        assert!(
            text.contains(
                "\r\n    SPAS    STRU    SYST    RNTO    TYPE    USER    LANG    MKD \r\n"
            )
        );
        assert!(text.ends_with("\r\n214 End\r\n"));
    }

    #[test]
    fn one_command_shows_its_syntax() {
        assert_eq!(
            encoded(Some("cksm")),
            "214-Help for CKSM:\r\n CKSM <sp> algorithm <sp> offset <sp> length <sp> pathname\r\n\
             214 End.\r\n"
        );
        for topic in ["SITE CHMOD", "chmod"] {
            let text = encoded(Some(topic));
            assert!(text.contains("\r\n SITE CHMOD <sp> mode <sp> pathname\r\n"));
        }
    }

    #[test]
    fn help_for_site_lists_every_site_command() {
        let text = encoded(Some("SITE"));
        assert!(
            text.starts_with("214-Help for SITE:\r\n SITE SBUF: set send and receive buffers\r\n")
        );
        assert_eq!(text.lines().count(), SITE_COMMANDS.len() + 2);
    }

    #[test]
    fn an_unknown_command_is_named() {
        assert_eq!(encoded(Some("NOSUCH")), "502 Unknown command 'NOSUCH'.\r\n");
    }
}
