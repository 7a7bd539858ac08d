//! `sshftp`: our server and the real one, started through ssh and sshd.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use gridhaul_interop::{Kind, SshHost, content, write_program};

use super::site::{assert_same, texts};
use super::terminal::Terminal;

/// Larger than one block, and not a multiple of one.
const BYTES: u64 = 3_000_001;

fn url(host: &SshHost, name: &str) -> String {
    format!("sshftp://{}{}", host.address(), host.path(name).display())
}

/// `server` is the command of `GLOBUS_REMOTE_SSHFTP`.
fn gridhaul(host: &SshHost, server: &Path, arguments: &[&str]) -> Output {
    let ssh = host.path("ssh");
    Command::new(env!("CARGO_BIN_EXE_gridhaul"))
        .args(arguments)
        .args(["--ssh", ssh.to_str().unwrap()])
        .env("GLOBUS_REMOTE_SSHFTP", server)
        .output()
        .unwrap()
}

fn must(host: &SshHost, arguments: &[&str]) {
    let output = gridhaul(host, &host.path("sshftp"), arguments);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
}

#[test]
fn files_go_both_ways_and_between_sessions() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let host = SshHost::new(kind).unwrap();
        let source = host.path("source");
        content::write(&source, BYTES).unwrap();
        for (name, options) in [
            ("auto", &[][..]),
            ("stream", &["--mode", "stream"]),
            ("blocks", &["-p", "4"]),
        ] {
            let (there, back) = (url(&host, name), host.path(&format!("{name}-back")));
            let with =
                |from: &str, to: &str| must(&host, &[&["copy"], options, &[from, to]].concat());
            with(source.to_str().unwrap(), &there);
            assert_same(&source, &host.path(name), options);
            with(&there, back.to_str().unwrap());
            assert_same(&source, &back, options);
        }
        must(
            &host,
            &["copy", &url(&host, "source"), &url(&host, "third")],
        );
        assert_same(&source, &host.path("third"), &[]);
    }
}

#[test]
fn a_failure_of_ssh_or_of_the_server_is_named() {
    let host = SshHost::new(Kind::Gridhaul).unwrap();
    let there = url(&host, "a");
    let fails = |server: &Path, url: &str| {
        let output = gridhaul(&host, server, &["sum", "md5", url]);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        stderr
    };
    let error = fails(Path::new("/missing/server"), &there);
    assert!(error.contains("ssh ended without a greeting"), "{error}");
    assert!(
        error.contains("/missing/server"),
        "the words of ssh: {error}"
    );
    let server = host.path("sshftp");
    let error = fails(
        &server,
        &there.replace("sshftp://", "sshftp://-oProxyCommand=x@"),
    );
    assert!(error.contains("a user for ssh"), "{error}");
    // Without the key of the user.
    fs::remove_file(host.path("authorized-keys")).unwrap();
    let error = fails(&server, &there);
    assert!(
        error.contains("Permission denied"),
        "the words of ssh: {error}"
    );
}

#[test]
fn the_script_of_the_user_starts_the_server() {
    // This ssh runs the command here, as a user with a script.
    let host = SshHost::new(Kind::Gridhaul).unwrap();
    let home = host.path("home");
    fs::create_dir_all(home.join(".globus")).unwrap();
    let ssh = host.path("ssh");
    let local = format!(
        "#!/bin/sh\nfor command; do :; done\nHOME={} exec /bin/sh -c \"$command\"\n",
        home.display()
    );
    write_program(&ssh, &local).unwrap();
    let error = gridhaul(&host, Path::new(""), &["sum", "md5", &url(&host, "a")]);
    let (_, stderr) = texts(&error);
    assert!(stderr.contains("neither ~/.globus/sshftp"), "{stderr}");
    let script = home.join(".globus/sshftp");
    let command = fs::read_to_string(host.path("sshftp")).unwrap();
    write_program(&script, &command).unwrap();
    fs::write(host.path("a"), "hello").unwrap();
    let output = gridhaul(&host, Path::new(""), &["sum", "md5", &url(&host, "a")]);
    let (stdout, stderr) = texts(&output);
    assert!(
        stdout.starts_with("5d41402abc4b2a76b9719d911017c592"),
        "{stdout}{stderr}"
    );
}

#[test]
fn bars_leave_the_screen_to_ssh() {
    let host = SshHost::new(Kind::Gridhaul).unwrap();
    let tree = host.path("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b"] {
        content::write(&tree.join(name), 20_000_000).unwrap();
    }
    // The second ssh asks, and waits until the file of the first session has moved on, while bars would be drawn several times.
    let first = host.path("ssh-of-host");
    fs::rename(host.path("ssh"), &first).unwrap();
    let asking = format!(
        "#!/bin/sh\n\
         size() {{ cat {copies}/* {copies}/.[!.]* 2>/dev/null | wc -c; }}\n\
         if ! mkdir {copies}.first 2>/dev/null; then\n\
         while [ $(size) -eq 0 ]; do sleep 0.02; done\n\
         echo ASKS >/dev/tty\n\
         before=$(size)\n\
         while [ $(size) -lt $((before + 5000000)) ]; do sleep 0.02; done\n\
         echo ANSWERED >/dev/tty\n\
         fi\n\
         exec {} \"$@\"\n",
        first.display(),
        copies = host.path("copies").display()
    );
    write_program(&host.path("ssh"), &asking).unwrap();
    let shown = Terminal::start(&format!(
        "stty cols 100; env TERM=xterm XDG_STATE_HOME={} GLOBUS_REMOTE_SSHFTP={} {} copy -r -c 2 --mode stream --stack tcp:rate=80m --ssh {} {} {}",
        host.path("state").display(),
        host.path("sshftp").display(),
        env!("CARGO_BIN_EXE_gridhaul"),
        host.path("ssh").display(),
        tree.display(),
        url(&host, "copies"),
    ))
    .read();
    let (before, rest) = shown.split_once("ASKS").expect(&shown);
    let (during, after) = rest.split_once("ANSWERED").expect(&shown);
    assert!(!during.contains("files"), "{during:?}");
    assert!(
        after.contains("2 files, 40.0 MB in "),
        "{before:?} {after:?}"
    );
    assert_same(&tree.join("b"), &host.path("copies/b"), &[]);
}
