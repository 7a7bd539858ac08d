//! The Unix socket: when it goes, and how commands find it.

use super::*;
use crate::security::as_str;

/// As another user with a runtime directory of its own.
struct Unprivileged {
    runtime: TempDir,
    served: TempDir,
}

impl Unprivileged {
    /// `None` if this process cannot become another user, who must reach the program.
    fn new() -> Option<Self> {
        let unprivileged = Self {
            runtime: public_directory(),
            served: public_directory(),
        };
        let own = unprivileged.runtime.path();
        let directory = own.join("gridhaul");
        fs::create_dir(&directory).expect("made");
        let chown = |path: &Path| {
            Command::new("chown")
                .arg("nobody:nogroup")
                .arg(path)
                .status()
        };
        let is_theirs = chown(own).is_ok_and(|status| status.success())
            && chown(&directory).is_ok_and(|status| status.success());
        let version = unprivileged.command(&["--version"]).output();
        if is_theirs && version.is_ok_and(|output| output.status.success()) {
            return Some(unprivileged);
        }
        skipped("only root can start a server as another user, who must reach the program");
        None
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_gridhaul-server"))
            .args(words)
            .env("XDG_RUNTIME_DIR", self.runtime.path());
        command
    }

    fn socket(&self) -> PathBuf {
        self.runtime.path().join("gridhaul/4711.sock")
    }

    fn serve(&self) -> Running {
        self.serve_with(&self.socket())
    }

    fn serve_with(&self, socket: &Path) -> Running {
        let root = self.served.path();
        let words = ["--anonymous", "--listen", "127.0.0.1:0", "--admin-socket"];
        let words = [&words[..], &[text(socket), "--root", text(root)]].concat();
        Running::of(&mut self.command(&words))
    }
}

#[test]
fn the_socket_is_gone_after_the_end_of_a_server_of_root() {
    if !has_root() {
        return;
    }
    let site = Site::new(&[]);
    let socket = site.socket();
    assert!(site.told(&["status"]).contains("serving"));
    let Site {
        mut server,
        private,
        ..
    } = site;
    server.log_until("administration socket");
    let (code, log) = server.stop_all();
    assert_eq!(code, 0, "{log}");
    assert!(!socket.exists(), "it stays: {log}");
    drop(private);
}

#[test]
fn the_socket_is_gone_after_the_end_of_a_server_of_another_account() {
    let Some(unprivileged) = Unprivileged::new() else {
        return;
    };
    let mut server = unprivileged.serve();
    let log = server.log_until("administration socket");
    assert!(log.contains(text(&unprivileged.socket())), "{log}");
    assert!(unprivileged.socket().exists());
    let (code, log) = server.stop_all();
    assert_eq!(code, 0, "{log}");
    assert!(!unprivileged.socket().exists(), "it stays: {log}");
}

/// To remove it the server would need the right to remove all files of that directory.
#[test]
fn a_socket_in_a_directory_of_other_files_stays_and_is_replaced() {
    let Some(unprivileged) = Unprivileged::new() else {
        return;
    };
    let socket = unprivileged.runtime.path().join("x.sock");
    for _ in 0..2 {
        let mut server = unprivileged.serve_with(&socket);
        server.log_until("administration socket");
        let (code, log) = server.stop_all();
        assert_eq!(code, 0, "{log}");
        assert!(socket.exists(), "it is removed: {log}");
    }
}

#[test]
fn commands_find_the_only_server_and_say_where_they_have_looked() {
    let Some(unprivileged) = Unprivileged::new() else {
        return;
    };
    let said = |words: &[&str]| {
        let output = unprivileged.command(words).output().expect("started");
        let (stdout, stderr) = (output.stdout, output.stderr);
        (
            output.status.success(),
            String::from_utf8([stdout, stderr].concat()).expect("UTF-8"),
        )
    };
    let (found, none) = said(&["status"]);
    let default = unprivileged.runtime.path().join("gridhaul/2811.sock");
    assert!(!found && none.contains(text(&default)), "{none}");
    assert!(
        none.contains("--socket") && none.contains("--config"),
        "{none}"
    );
    let server = unprivileged.serve();
    let (found, summary) = said(&["status"]);
    assert!(found && summary.contains("serving"), "{summary}");
    let (_, list) = said(&["status", "--list"]);
    let line = format!("{}\ta server listens\n", text(&unprivileged.socket()));
    assert!(list.contains(&line), "{list}");
    drop(server);
    let (_, list) = said(&["status", "--list"]);
    assert!(list.contains("no server listens any more"), "{list}");
    let socket = unprivileged.socket();
    let (_, gone) = said(&["status", "--socket", text(&socket)]);
    assert!(gone.contains("status --list"), "{gone}");
}

/// The files that decide logins are read by another process than the one that the administrator asks.
#[test]
fn a_reload_says_what_files_have_and_how_many_sessions_end() {
    let site = crate::security::Site::new();
    fs::write(site.path("bans"), "/CN=Mallory\n").expect("written");
    let socket = site.path("admin.sock");
    let mut flags = site.flags();
    for (flag, name) in [("--ban-list", "bans"), ("--admin-socket", "admin.sock")] {
        flags.extend([flag.to_owned(), site.text(name)]);
    }
    let _server = Running::start(&site.path(""), &as_str(&flags));
    let reload = || {
        let output = program()
            .args(["reload", "--socket", text(&socket)])
            .output();
        String::from_utf8(output.expect("started").stdout).expect("UTF-8")
    };
    let told = reload();
    for (kind, name, content) in [
        ("certificate", "host.pem", "valid until "),
        ("trust", "certificates", "1 authorities, 0 revocation lists"),
        ("grid-mapfile", "grid-mapfile", "1 entries"),
        ("ban list", "bans", "1 entries"),
    ] {
        let line = format!("in force: {kind} {}: {content}", site.text(name));
        assert!(told.contains(&line), "{line} in {told}");
    }
    fs::write(site.path("bans"), "/CN=Mallory\n/CN=Trudy\n").expect("written");
    let both = format!("ban list {}: 2 entries", site.text("bans"));
    wait_for("the new entry", reload, |told| told.contains(&both));
    fs::write(site.path("bans"), "no name\n").expect("written");
    wait_for("the broken list", reload, |told| {
        told.contains("cannot be used")
    });
}

#[test]
fn a_reload_says_how_many_users_have_passwords() {
    let private = tempfile::tempdir().expect("a directory");
    let users = private.path().join("users");
    fs::write(&users, "# none\n").expect("written");
    let site = Site::new(&["--passwords", text(&users)]);
    let line = format!("in force: passwords {}: 0 users\n", text(&users));
    assert_eq!(
        site.told(&["reload"]),
        format!("no key has changed\n{line}")
    );
}

#[test]
fn a_password_file_that_is_missing_and_a_root_that_is_missing_are_named() {
    let private = tempfile::tempdir().expect("a directory");
    let users = private.path().join("users");
    let missing = fails(
        program()
            .arg("passwd")
            .arg(&users)
            .args(["--delete", "alice"]),
    );
    assert!(
        missing.contains(text(&users)) && missing.contains("No such file"),
        "{missing}"
    );
    let root = private.path().join("nowhere");
    let mut command = program();
    command
        .arg("passwd")
        .arg("--root")
        .arg(&root)
        .arg(&users)
        .arg("alice");
    let refused = fails(&mut command);
    assert!(
        refused.contains(text(&root)) && refused.contains("no directory"),
        "{refused}"
    );
    assert!(!users.exists());
}
