//! Passwords: to one server only, and typed at a terminal.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::scripted::{Scripted, fails};
use super::terminal::Terminal;

/// A server that refuses all files.
fn server() -> Scripted {
    Scripted::start(Box::new(|_, _| false))
}

fn as_user(server: &Scripted, user: &str) -> String {
    format!("ftp://{user}@{}/a", server.address)
}

fn password_file(place: &Path) -> String {
    let file = place.join("password");
    fs::write(&file, "secret\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn passwords(server: &Scripted) -> Vec<String> {
    let commands = server.commands().into_iter();
    commands.filter(|one| one.starts_with("PASS ")).collect()
}

#[test]
fn a_password_file_is_for_one_server_and_one_user() {
    let place = tempfile::tempdir().unwrap();
    let file = password_file(place.path());
    let (one, other) = (server(), server());
    let copy = |from: &str, to: &str| fails(&["copy", "--password-file", &file, from, to]);
    let error = copy(&as_user(&one, "ada"), &as_user(&other, "ada"));
    assert!(
        error.contains("is not sent to another server or user"),
        "{error}"
    );
    assert_eq!(passwords(&one).len() + passwords(&other).len(), 1);
    let same = server();
    let error = copy(&as_user(&same, "ada"), &as_user(&same, "bob"));
    assert!(
        error.contains("is not sent to another server or user"),
        "{error}"
    );
    assert_eq!(passwords(&same), ["PASS secret"]);
}

#[test]
fn a_password_file_that_others_read_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = password_file(place.path());
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let server = server();
    let url = as_user(&server, "ada");
    let error = fails(&["sum", "--password-file", &file, "md5", &url]);
    assert!(error.contains("chmod 0600"), "{error}");
    let error = fails(&["sum", "md5", &url]);
    assert!(error.contains("--password-file FILE"), "{error}");
    assert_eq!(server.commands(), <[String; 0]>::default());
}

#[test]
fn a_password_is_typed_without_echo() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_gridhaul");
    let command = format!("{program} sum md5 {}", as_user(&server, "ada"));
    let prompt = format!("Password for ftp://ada@{}: ", server.address);
    let shown = Terminal::start(&command).answer(&prompt, "typed secret\n");
    assert_eq!(passwords(&server), ["PASS typed secret"], "{shown}");
    assert!(!shown.contains("typed secret"), "{shown}");
}

#[test]
fn an_interrupted_prompt_gives_the_terminal_back() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_gridhaul");
    let url = as_user(&server, "ada");
    let command = format!("trap : INT; {program} sum md5 {url}; echo status $?; stty -a");
    let shown = Terminal::start(&command).answer("Password for ", "\x03");
    assert!(shown.contains("status 130"), "{shown}");
    assert!(shown.contains(" echo "), "{shown}");
    assert_eq!(server.commands(), <[String; 0]>::default());
}
