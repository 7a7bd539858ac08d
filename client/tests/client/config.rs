//! Configuration files: what they set, what wins, and what they may not have.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use gridhaul_interop::{Kind, chown_to_nobody};
use tempfile::TempDir;

use super::blocks;
use super::scripted::Scripted;
use super::site::{Site, texts};

/// A configuration file of the user.
struct Config {
    place: TempDir,
}

impl Config {
    fn new(content: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let config = Self { place };
        fs::create_dir(config.place.path().join("gridhaul")).unwrap();
        fs::write(config.file(), content).unwrap();
        config.set_mode(0o644);
        config
    }

    fn file(&self) -> String {
        let file = self.place.path().join("gridhaul/config.toml");
        file.to_str().unwrap().to_owned()
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.file(), Permissions::from_mode(mode)).unwrap();
    }

    fn gridhaul(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", "/home/ada")
            .env("XDG_CONFIG_HOME", self.place.path());
        command.output().unwrap()
    }

    /// What `gridhaul config` prints, without the origins.
    fn shown(&self, arguments: &[&str]) -> String {
        let output = self.gridhaul(&[&["config"], arguments].concat());
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
        stdout.replace(&format!("  # {}", self.file()), "")
    }

    fn refused(content: &str) -> String {
        let config = Self::new(content);
        let output = config.gridhaul(&["config"]);
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{stdout}{stderr}");
        stderr.replace(&config.file(), "FILE")
    }
}

const SECTIONS: &str = r#"
[[host]]
match = ["*.example.org", "near"]
parallel = 8
protect = true
proxy = "~/proxy"

[[host]]
match = "slow.example.org"
parallel = 2
protect = false

[defaults]
parallel = 4
dcau = "none"
"#;

#[test]
fn hosts_win_over_defaults_and_later_ones_over_earlier_ones() {
    let config = Config::new(SECTIONS);
    assert_eq!(
        config.shown(&[]),
        "dcau = \"none\":15\nparallel = \"4\":14\n"
    );
    let near = "parallel = \"8\":4\nprotect = true:5\nproxy = \"/home/ada/proxy\":6\n";
    assert_eq!(config.shown(&["gsiftp://near/"]), near);
    assert_eq!(config.shown(&["gsiftp://DTN.Example.org/"]), near);
    let slow = config.shown(&["gsiftp://slow.example.org/"]);
    assert!(slow.contains("parallel = \"2\":10\n"), "{slow}");
    assert!(slow.contains("protect = false:11\n"), "{slow}");
}

#[test]
fn copies_have_the_options_of_the_file_unless_they_are_given() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let config = Config::new("[[host]]\nmatch = \"localhost\"\nchecksum = \"md5\"\nparallel = 3\n");
    let copy = |options: &[&str]| {
        let url = site.server.url("a");
        let url = url.replace("127.0.0.1", "localhost");
        let words = [&["copy", "--json"], options, &["source", &url]].concat();
        let mut command = site.command(&words);
        let output = command
            .env("GRIDHAUL_CONFIG", config.file())
            .output()
            .unwrap();
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{stdout}{stderr}");
        stdout
    };
    let lines = copy(&[]);
    assert!(lines.contains(r#""channels":3"#), "{lines}");
    assert!(lines.contains(r#""checksum":""#), "{lines}");
    let lines = copy(&["--parallel", "2"]);
    assert!(lines.contains(r#""channels":2"#), "{lines}");
}

#[test]
fn the_options_of_a_login_are_those_of_its_server() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let sum = |content: &str, options: &[&str]| {
        let config = Config::new(content);
        let url = site.server.url("a");
        site.must(&["copy", "source", &url]);
        let words = [&["sum"], options, &["md5", &url]].concat();
        let mut command = site.command(&words);
        command.env("GRIDHAUL_CONFIG", config.file());
        texts(&command.output().unwrap())
    };
    let other = "[[host]]\nmatch = \"other\"\nsubject = \"/CN=another\"\n";
    let (stdout, stderr) = sum(other, &[]);
    assert!(!stdout.is_empty(), "{stderr}");
    let this = "[[host]]\nmatch = \"*\"\nsubject = \"/CN=another\"\n";
    let (stdout, stderr) = sum(this, &[]);
    assert!(stdout.is_empty(), "{stdout}");
    assert!(stderr.contains("presents the certificate of"), "{stderr}");
    let missing = "[defaults]\nproxy = \"/nonexistent/proxy\"\n";
    let (_, stderr) = sum(missing, &[]);
    assert!(stderr.contains("/nonexistent/proxy"), "{stderr}");
}

#[test]
fn servers_that_disagree_are_an_error() {
    let config = Config::new(SECTIONS);
    let words = ["copy", "ftp://near/a", "ftp://slow.example.org/b"];
    let output = config.gridhaul(&words);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("give --parallel"), "{stderr}");
    for part in [":4 and ", ":10 set"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn errors_name_the_line_and_the_remedy() {
    for (content, expected) in [
        (
            "[defaults]\nparalel = 4\n",
            "FILE:2: unknown key 'paralel' (did you mean 'parallel'?)",
        ),
        (
            "[default]\n",
            "FILE:1: unknown table 'default' (did you mean 'defaults'?)",
        ),
        (
            "[defaults]\n\nparallel = 65\n",
            "FILE:3: invalid value '65' for '--parallel",
        ),
        (
            "[defaults]\nparallel = true\n",
            "FILE:2: parallel: it is a text or a number",
        ),
        (
            "[defaults]\nprotect = 1\n",
            "FILE:2: protect: it is true or false",
        ),
        (
            "[defaults]\nmode = \"fast\"\n",
            "FILE:2: invalid value 'fast'",
        ),
        ("[defaults]\nproxy = \"proxy\"\n", "begins with / or ~/"),
        (
            "[defaults]\npassword = \"x\"\n",
            "secrets do not belong here",
        ),
        ("[defaults]\nrecursive = true\n", "unknown key 'recursive'"),
        (
            "[[host]]\nparallel = 4\n",
            "FILE:1: the host has no 'match'",
        ),
        ("[[host]]\nmatch = \"[\"\n", "FILE:2: match: "),
        ("[host]\nmatch = \"a\"\n", "tables [[host]]"),
        ("[defaults\n", "FILE:1: "),
        (
            "[defaults]\npassword-file = \"/p\"\n",
            "FILE:2: password-file: a password is for one server",
        ),
        (
            "[defaults]\nuser = \"ada\"\n",
            "FILE:2: user: a user is for one server: name it in a [[host]]",
        ),
        (
            "[[host]]\nmatch = \"a\"\nuser = \"ada:secret\"\n",
            "FILE:3: user: a password does not belong here",
        ),
    ] {
        let error = Config::refused(content);
        assert!(error.contains(expected), "{content}: {error}");
        assert!(!error.contains("ada:secret"), "{error}");
    }
}

#[test]
fn a_file_that_other_users_write_is_refused() {
    let config = Config::new("[defaults]\n");
    config.set_mode(0o664);
    let output = config.gridhaul(&["ls", "ftp://127.0.0.1:1/"]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("chmod go-w"), "{stderr}");
    config.set_mode(0o644);
    assert_eq!(config.shown(&[]), "");
    // Only root can give a file away.
    chown_to_nobody(config.file().as_ref()).unwrap();
    let about = fs::metadata(config.file()).unwrap();
    let is_foreign = std::os::unix::fs::MetadataExt::uid(&about) == 65534;
    let output = config.gridhaul(&["config"]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.success(), !is_foreign, "{stderr}");
    assert_eq!(stderr.contains("another user"), is_foreign, "{stderr}");
}

#[test]
fn a_named_file_must_exist() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
    command.arg("config").env_clear();
    assert!(command.output().unwrap().status.success());
    command.env("GRIDHAUL_CONFIG", "/nonexistent/config.toml");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("/nonexistent/config.toml"));
}

#[test]
fn standard_streams_leave_out_the_options_of_files() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let config = Config::new("[defaults]\nmode = \"extended\"\nparallel = 3\ntimes = true\n");
    let url = site.server.url("source");
    fs::write(site.served("source"), "text").unwrap();
    for arguments in [&["cat", &url][..], &["copy", &url, "-"]] {
        let output = config.gridhaul(arguments);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"text");
    }
}

/// The users of the logins at a server so far, with their passwords.
fn logins(server: &Scripted) -> Vec<String> {
    let commands = server.commands().into_iter();
    let of_logins = commands.filter(|line| line.starts_with("USER ") || line.starts_with("PASS "));
    of_logins.collect()
}

#[test]
fn a_host_has_a_user_for_urls_that_name_none() {
    let place = tempfile::tempdir().unwrap();
    let password = place.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let config = Config::new(&format!(
        "[[host]]\nmatch = \"127.0.0.1\"\nuser = \"ada\"\npassword-file = \"{}\"\n",
        password.display()
    ));
    let eve = &["--user", "eve"][..];
    let given = ["--password-file", password.to_str().unwrap()];
    let eve_with_password = [eve, &given].concat();
    for (before, host, options, expected) in [
        ("", "127.0.0.1", &[][..], &["USER ada", "PASS secret"][..]),
        ("ada@", "127.0.0.1", &[], &["USER ada", "PASS secret"]),
        // The password is that of ada.
        ("bob@", "127.0.0.1", &[], &[]),
        ("", "127.0.0.1", eve, &[]),
        ("bob@", "127.0.0.1", &given, &["USER bob", "PASS secret"]),
        (
            "",
            "127.0.0.1",
            &eve_with_password,
            &["USER eve", "PASS secret"],
        ),
        ("", "localhost", &[], &["USER anonymous", "PASS gridhaul@"]),
    ] {
        let server = Scripted::start(Box::new(|_, _| false));
        let url = format!("ftp://{before}{host}:{}/a", server.address.port());
        config.gridhaul(&[&["sum", "-4"], options, &["md5", &url]].concat());
        assert_eq!(logins(&server), expected, "{url} {options:?}");
    }
}

#[test]
fn a_password_is_not_sent_as_the_user_of_another_section() {
    let place = tempfile::tempdir().unwrap();
    let password = place.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let host =
        |pattern: &str, setting: &str| format!("[[host]]\nmatch = \"{pattern}\"\n{setting}\n");
    let file = format!("password-file = \"{}\"", password.display());
    let of_ada = format!("user = \"ada\"\n{file}");
    let (ada, bob) = ("user = \"ada\"", "user = \"bob\"");
    let sent = &["USER ada", "PASS secret"][..];
    for (content, before, expected, words) in [
        // Of no user, and of the one in the URL.
        (host("*", &file), "ada@", sent, ""),
        (
            host("*", &file) + &host("*", ada),
            "",
            &[],
            "that does not name this user",
        ),
        (
            host("*", ada) + &host("127.*", &file),
            "",
            &[],
            "that does not name this user",
        ),
        (
            host("*", &of_ada) + &host("127.*", bob),
            "",
            &[],
            "for the user ada",
        ),
        (host("*", bob) + &host("127.*", &of_ada), "", sent, ""),
        (host("*", &of_ada) + &host("127.*", ada), "", sent, ""),
    ] {
        let config = Config::new(&content);
        let server = Scripted::start(Box::new(|_, _| false));
        let url = format!("ftp://{before}{}/a", server.address);
        let error = texts(&config.gridhaul(&["sum", "md5", &url])).1;
        assert_eq!(logins(&server), expected, "{content}: {error}");
        assert!(error.contains(words), "{content}: {error}");
    }
}

#[test]
fn a_password_of_the_command_line_is_not_for_a_user_of_the_configuration() {
    let config = Config::new("[[host]]\nmatch = \"127.0.0.1\"\nuser = \"ada\"\n");
    let place = tempfile::tempdir().unwrap();
    let password = place.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let password = ["-4", "--password-file", password.to_str().unwrap()];
    let [one, other] = [(); 2].map(|()| Scripted::start(Box::new(|_, _| false)));
    let source = format!("ftp://127.0.0.1:{}/a", one.address.port());
    let destination = format!("ftp://bob@localhost:{}/a", other.address.port());
    let copy = [&["copy"], &password[..], &[&source, &destination]];
    let error = texts(&config.gridhaul(&copy.concat())).1;
    assert!(error.contains("may be for another server"), "{error}");
    assert!(logins(&one).is_empty(), "{:?}", logins(&one));
    // A user of the command line is the one that the file is for.
    let sum = [&["sum", "--user", "ada"], &password[..], &["md5", &source]];
    config.gridhaul(&sum.concat());
    assert_eq!(logins(&one), ["USER ada", "PASS secret"]);
}

#[test]
fn files_of_a_user_of_the_configuration_share_a_session() {
    let logins = {
        let site = Site::anonymous(Kind::Gridhaul, &[]);
        let password = site.local("password");
        fs::write(&password, "secret\n").unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        let config = Config::new(&format!(
            "[[host]]\nmatch = \"*\"\nuser = \"ada\"\npassword-file = \"{}\"\n",
            password.display()
        ));
        let server = blocks::start(Box::new(|_, _| None));
        let urls = ["f1", "f2", "f3"].map(|name| server.url(name));
        let [one, two, three] = urls.each_ref().map(String::as_str);
        let options = ["--pipeline", "1", "-c", "1", "--mode", "extended"];
        let copy = [&["copy"], &options[..], &[one, two, three, "."]];
        let mut command = site.command(&copy.concat());
        let output = command.env("GRIDHAUL_CONFIG", config.file()).output();
        let (stdout, stderr) = texts(&output.unwrap());
        assert_eq!(
            fs::read(site.local("f3")).ok().as_deref(),
            Some(&b"/f3"[..]),
            "{stdout}{stderr}"
        );
        logins(&server)
    };
    let users = logins.iter().filter(|line| *line == "USER ada").count();
    // Three files need several calls each.
    assert!((1..=3).contains(&users), "{logins:?}");
}

#[test]
fn a_user_of_a_host_chooses_the_account_of_a_certificate() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        let stat = |content: &str| {
            let config = Config::new(content);
            let url = site.server.url("");
            let mut command = site.command(&["stat", &url]);
            let output = command.env("GRIDHAUL_CONFIG", config.file()).output();
            let output = output.unwrap();
            (output.status.success(), texts(&output).1)
        };
        let (is_right, error) = stat("");
        assert!(is_right, "{kind:?}: {error}");
        let (is_right, error) = stat("[[host]]\nmatch = \"*\"\nuser = \"no-such-account\"\n");
        assert!(!is_right && error.contains("530"), "{kind:?}: {error}");
    }
}
