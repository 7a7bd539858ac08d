//! Mistakes in the configuration: `check` and `serve` name the setting, its place and the remedy, and `serve` does not listen.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "launch/skipped.rs"]
mod skipped;

/// A mistake in a file, of which one line is marked with `#!`, or in a flag.
struct Mistake {
    file: &'static str,
    flags: &'static [&'static str],
    /// The setting, and the words of the remedy.
    key: &'static str,
    remedy: &'static str,
}

/// A file with a mistake. `ROOT` is a directory that can be served, `HERE` the directory of the file.
const fn in_file(file: &'static str, key: &'static str, remedy: &'static str) -> Mistake {
    Mistake {
        file,
        flags: &[],
        key,
        remedy,
    }
}

/// Flags with a mistake, with an anonymous server.
const fn in_flags(
    flags: &'static [&'static str],
    key: &'static str,
    remedy: &'static str,
) -> Mistake {
    Mistake {
        file: "",
        flags,
        key,
        remedy,
    }
}

/// A server for users with certificates, with these further lines.
macro_rules! with_gsi {
    ($lines:literal) => {
        concat!(
            "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/map'\n",
            $lines
        )
    };
}

const MISTAKES: &[Mistake] = &[
    in_file(
        "anonymus = true #!",
        "anonymus",
        "did you mean 'anonymous'?",
    ),
    in_file(
        "max_connections = 10 #!",
        "max_connections",
        "did you mean 'max-connections'?",
    ),
    in_file(
        "[limits] #!\nmovers = 5",
        "limits",
        "keys are not in tables",
    ),
    in_file(
        "log-level = 'verbose' #!",
        "log-level",
        "use error, warn, info",
    ),
    in_file(
        "log-level = 'info,gridhaul_server=loud' #!",
        "log-level",
        "use error, warn, info",
    ),
    in_file(
        "allowed-drivers = ['tpc'] #!",
        "allowed-drivers",
        "did you mean 'tcp'?",
    ),
    in_file(
        "anonymous-drivers = 'udt' #!",
        "anonymous-drivers",
        "it has tcp",
    ),
    in_file(
        "client-options = ['tcp:buffer=<64M'] #!",
        "client-options",
        "with <= for an upper bound",
    ),
    in_file(
        "client-options = ['tcp:bufer<=64M'] #!",
        "client-options",
        "its options are",
    ),
    in_file(
        "client-options = ['udt:rate'] #!",
        "client-options",
        "the drivers are",
    ),
    in_file("stack = 'tpc' #!", "stack", "the drivers are"),
    in_file(
        "data-address = '198.51.100.1' #!",
        "data-address",
        "name an address of this machine",
    ),
    in_file(
        "data-address = 'here' #!",
        "data-address",
        "write it like data-address =",
    ),
    in_file("listen = '0.0.0.0' #!", "listen", "like 0.0.0.0:2811"),
    in_file(
        "listen = ['127.0.0.1:0', 'host.example.org:2811'] #!",
        "listen",
        "like 0.0.0.0:2811",
    ),
    in_file(
        "listen = '198.51.100.1:2811' #!",
        "listen",
        "name an address of this machine",
    ),
    in_file("listen = [] #!", "listen", "leave it out for its default"),
    in_file(
        "metrics-listen = 'localhost' #!",
        "metrics-listen",
        "or localhost:2811",
    ),
    in_file(
        "port-range = '51000-50000' #!",
        "port-range",
        "like 50000-51000",
    ),
    in_file(
        "data-hosts = 'host.example.org' #!",
        "data-hosts",
        "like 192.0.2.7",
    ),
    in_file("idle-timeout = '10 minutes' #!", "idle-timeout", "10m"),
    in_file("grace = -1 #!", "grace", "like 600"),
    in_file("buffer-memory = 'lots' #!", "buffer-memory", "like 65536"),
    in_file(
        "max-connections = 0 #!",
        "max-connections",
        "between 1 and 1000000",
    ),
    in_file(
        "max-transfers = 'many' #!",
        "max-transfers",
        "write it like max-transfers = 100",
    ),
    in_file("perms = 0644 #!", "perms", "write it like perms = \"0644\""),
    in_file("perms = 644 #!", "perms", "write it in quotes: \"644\""),
    in_file(
        "user = nobody #!",
        "user",
        "write it like user = \"nobody\"",
    ),
    in_file(
        "banner = 'one' \nbanner = 'two' #!",
        "banner",
        "delete one of the lines",
    ),
    in_file(
        "anonymous = 'yes' #!",
        "anonymous",
        "write it like anonymous = true",
    ),
    in_file(
        "root = '/nonexistent' #!",
        "root",
        "name a directory that exists",
    ),
    in_file(
        "passwords = '/nonexistent/users' #!",
        "passwords",
        "gridhaul-server passwd FILE NAME",
    ),
    in_file(
        "passwords = 'HERE/broken-users' #!",
        "passwords",
        "line 1: no hash",
    ),
    in_file(
        "checksum-key = 'HERE/open-key' #!",
        "checksum-key",
        "chmod 600",
    ),
    in_file(
        "transfer-log = '/nonexistent/log' #!",
        "transfer-log",
        "the directory must exist",
    ),
    in_file(
        "log-file = '/nonexistent/log' #!",
        "log-file",
        "the directory must exist",
    ),
    in_file(
        "cert = '/nonexistent/cert.pem' #!",
        "cert",
        "name another one with --cert",
    ),
    in_file(
        "gridmap = '/etc/grid-security/grid-mapfile' #!",
        "gridmap",
        "needs --gsi",
    ),
    in_file("least-uid = 500 #!", "least-uid", "needs --gsi"),
    in_file(
        "encrypt-data = true #!",
        "encrypt-data",
        "needs --gsi or --tls",
    ),
    in_file(
        "tls-versions = '1.1' #!",
        "tls-versions",
        "1.2, 1.3 or 1.2-1.3",
    ),
    in_file(
        "[[authorize]]\nidentity = '*'\nmap = true\nanonymous-write = true #!",
        "authorize",
        "before the first [[authorize]]",
    ),
    in_file(
        "[[authorize]]\nidentity = '*'\nacount = 'grid' #!",
        "authorize",
        "(did you mean 'account'?)",
    ),
    in_file(
        "audit-log = '/nonexistent/log' #!",
        "audit-log",
        "the directory must exist",
    ),
    in_file("ban-list = '/etc/banned' #!", "ban-list", "needs --gsi"),
    in_file(
        "admin-listen = '198.51.100.1:8443' #!",
        "admin-listen",
        "admin-token",
    ),
    in_file(
        "admin-listen = 0\nadmin-token = '/nonexistent/token' #!",
        "admin-token",
        "name another one with --admin-token",
    ),
    in_file(
        "metrics-listen = 23999\nadmin-listen = 23999 #!",
        "admin-listen",
        "take another port",
    ),
    in_file(
        "log-file = 'HERE/log'\ntransfer-log = 'HERE/log' #!",
        "transfer-log",
        "give each log its own",
    ),
    in_file(
        "[[limit]] #!\nname = 'atlas'\nvo = 'atlas'\nmax-transfers = 5",
        "limit",
        "need --gsi",
    ),
    in_file(
        "admin-names = 'dtn.example.org' #!",
        "admin-names",
        "needs admin-listen",
    ),
    in_file(
        "admin-names = [5] #!",
        "admin-names",
        "write it like admin-names =",
    ),
    in_file(
        "admin-socket = '/nonexistent/admin.sock' #!",
        "admin-socket",
        "make the directory",
    ),
    in_file(
        "admin-socket = 'HERE/open/admin.sock' #!",
        "admin-socket",
        "only root or the account of the server may write",
    ),
    in_file(
        "admin-socket = 'HERE/broken-users' #!",
        "admin-socket",
        "remove it, or name another path",
    ),
    in_file(
        "admin-listen = 0\nadmin-token = 'HERE/broken-users' #!",
        "admin-token",
        "chmod 600",
    ),
    in_file(
        "admin-listen = 0\nadmin-cert = 'HERE/broken-users' #!",
        "admin-cert",
        "there is no certificate in PEM form",
    ),
    in_file(
        "listen = ['0.0.0.0:23998', '127.0.0.1:23998'] #!",
        "listen",
        "exclude each other: delete one of them",
    ),
    in_file(
        "listen = '127.0.0.1:23998'\nmetrics-listen = '0.0.0.0:23998' #!",
        "metrics-listen",
        "take another port",
    ),
    in_file("buffer-memory = '1000000G' #!", "buffer-memory", "lower it"),
    in_file(
        "rdma-memory = '1000000G' #!",
        "rdma-memory",
        "lower one of them",
    ),
    in_file(
        "atomic-uploads = ['/nonexistent'] #!",
        "atomic-uploads",
        "name one as the configuration writes it",
    ),
    in_file(
        "atomic-uploads = ['HERE/root/below'] #!",
        "atomic-uploads",
        "or * for all of them",
    ),
    in_file(
        "log-level = 'info,gridhaul_sevrer=debug' #!",
        "log-level",
        "did you mean 'gridhaul_server'?",
    ),
    in_file(
        "log-level = 'info,gridhaul_server::loginn=debug' #!",
        "log-level",
        "as the log names it",
    ),
    in_file(
        "log-level = 'info,[session]=debug' #!",
        "log-level",
        "this program has no spans",
    ),
    in_file(
        "idle-timeout = [5] #!",
        "idle-timeout",
        "write it like idle-timeout = \"10m\"",
    ),
    in_file("limit = 5 #!", "limit", "write [[limit]]"),
    in_file("[limit] #!\nname = 'a'", "limit", "write [[limit]]"),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 'many' #!",
        "[[limit]] table 1: max-transfers",
        "write it like max-transfers = 10",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 1\n[[limit]]\nname = 'b'\nmax-connections = -1 #!",
        "[[limit]] table 2: max-connections",
        "write it like max-connections = 10",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nbandwidth = true #!",
        "[[limit]] table 1: bandwidth",
        "like 65536",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 1\nnetwork = 5 #!",
        "[[limit]] table 1: network",
        "like 192.0.2.7",
    ),
    in_file(
        "[[limit]] #!\nmax-transfers = 1",
        "[[limit]] table 1",
        "write it like name =",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 1\n[[limit]] #!\nname = 'a'\nmax-transfers = 1",
        "[[limit]] table 2",
        "give one of them another name",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfer = 1 #!",
        "[[limit]] table 1: max-transfer",
        "did you mean 'max-transfers'?",
    ),
    in_file(
        "[[authorize]]\nidentity = true #!\nmap = true",
        "[[authorize]] table 1: identity",
        "write it like identity =",
    ),
    in_file(
        "[[authorize]]\nidentity = '*'\nread-only = 'yes' #!",
        "[[authorize]] table 1: read-only",
        "write it like read-only = true",
    ),
    in_file(
        with_gsi!("[[authorize]] #!\nidentity = '*'\nmap = true\nroot = '/nonexistent'"),
        "[[authorize]] table 1: root",
        "make the directory, or name another one",
    ),
    in_file(
        with_gsi!(
            "[[authorize]]\nidentity = '*'\naccount = 'grid'\n[[authorize]] #!\nidentity = '/CN=a'\ndeny = true"
        ),
        "[[authorize]] table 2",
        "put this one first",
    ),
    in_file(
        with_gsi!("pam-service = 'no-such-service' #!"),
        "pam-service",
        "make /etc/pam.d/no-such-service",
    ),
    in_file(
        "cert = 'HERE/host.key' #!\nkey = 'HERE/host.pem'",
        "cert",
        "they are swapped; name them the other way around",
    ),
    in_file(
        "cert = 'HERE/host.pem'\nkey = 'HERE/open-host.key' #!",
        "key",
        "chmod 0600",
    ),
    in_file(
        "cert = 'HERE/host.pem'\nkey = 'HERE/other.key' #!",
        "key",
        "name the key of this certificate with --key",
    ),
    in_file(
        "cert = 'HERE/host.pem' #!",
        "cert",
        "there is no private key in it; name the file with the private key with --key",
    ),
    in_flags(
        &["--log-level", "verbose"],
        "log-level",
        "use error, warn, info",
    ),
    in_flags(
        &["--max-connections", "many"],
        "max-connections",
        "--max-connections=100",
    ),
    in_flags(
        &["--idle-timeout", "soon"],
        "idle-timeout",
        "30s, 10m, 2h or 1d",
    ),
    in_flags(&["--stack", "tpc"], "stack", "the drivers are"),
    in_flags(
        &["--anonymous-drivers", "tcp,tpc"],
        "anonymous-drivers",
        "did you mean 'tcp'?",
    ),
    in_flags(
        &["--data-address", "198.51.100.1"],
        "data-address",
        "name an address of this machine",
    ),
    in_flags(
        &["--root", "/nonexistent"],
        "root",
        "name a directory that exists",
    ),
];

/// Mistakes that only root can make.
const OF_ROOT: &[Mistake] = &[
    in_file("root = 'HERE/private' #!", "root", "chmod o+rx"),
    in_file(
        "user = 'no-such-account' #!",
        "user",
        "name one with --user",
    ),
];

/// Files with a part that does not work and may be repaired while the server runs: an error of `check`, and a warning in the log
/// of `serve`, with the same words.
const DEFECTS: &[(&str, &str)] = &[
    (
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/root'\ngridmap = 'HERE/map'",
        "0 authorities and 0 revocation lists: no user can log in with a certificate",
    ),
    (
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/bad-map'",
        "line 1: the subject seems to have spaces",
    ),
];

/// What a command printed, and whether it listened.
struct Printed {
    status: i32,
    stdout: String,
    stderr: String,
}

/// Runs a command until it ends, or prints that it listens.
fn run(command: &str, arguments: &[String], directory: &Path) -> Printed {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gridhaul-server"))
        .arg(command)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdout = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    while lines.read_line(&mut stdout).expect("UTF-8") > 0 {
        if stdout.contains("Server listening") {
            child.kill().expect("running");
        }
    }
    let mut stderr = String::new();
    let mut errors = child.stderr.take().expect("piped");
    errors.read_to_string(&mut stderr).expect("UTF-8");
    let status = child.wait().expect("ended").code().unwrap_or(-1);
    Printed {
        status,
        stdout,
        stderr,
    }
}

struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().expect("a directory"));
        let mode = |name: &str, mode| {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(site.path(name), permissions).expect("set");
        };
        mode("", 0o755);
        for (name, bits) in [
            ("root", 0o755),
            ("private", 0o700),
            ("open", 0o777),
            ("trust", 0o755),
        ] {
            fs::create_dir(site.path(name)).expect("made");
            mode(name, bits);
        }
        fs::write(site.path("broken-users"), "ann\n").expect("written");
        fs::write(site.path("open-key"), [7; 32]).expect("written");
        mode("open-key", 0o644);
        fs::write(site.path("map"), "\"/O=Grid/CN=Alice\" nobody\n").expect("written");
        fs::write(site.path("bad-map"), "/O=Grid/CN=Al Smith nobody\n").expect("written");
        for name in ["host", "other"] {
            site.certificate(name);
            mode(&format!("{name}.key"), 0o600);
        }
        fs::copy(site.path("host.pem"), site.path("trust/ca.pem")).expect("copied");
        fs::copy(site.path("host.key"), site.path("open-host.key")).expect("copied");
        mode("open-host.key", 0o644);
        site
    }

    /// Makes `NAME.pem` and `NAME.key`.
    fn certificate(&self, name: &str) {
        let done = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"])
            .args([
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-subj",
                "/CN=localhost",
            ])
            .args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
            ])
            .current_dir(self.0.path())
            .output()
            .expect("openssl is installed");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a configuration file; returns it, and the number of the marked line.
    fn file(&self, text: &str) -> (String, usize) {
        let here = self.0.path().to_str().expect("UTF-8");
        let is_set = |key: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.split(' ').next() == Some(key))
        };
        let mut whole = String::new();
        for (key, value) in [
            ("root", format!("'{here}/root'")),
            ("listen", "'127.0.0.1:0'".to_owned()),
            ("anonymous", "true".to_owned()),
        ] {
            if !is_set(key) {
                whole.push_str(&format!("{key} = {value}\n"));
            }
        }
        whole.push_str(&text.replace("HERE", here));
        whole.push('\n');
        let marked = whole.lines().position(|line| line.ends_with("#!"));
        let path = self.path("gridhaul.toml");
        fs::write(&path, whole).expect("written");
        let line = marked.map_or(0, |index| index + 1);
        (path.to_str().expect("UTF-8").to_owned(), line)
    }

    /// Makes the mistake, and checks what is said of it. Returns a row of a table: mistake, `check`, `serve`.
    fn make(&self, mistake: &Mistake) -> String {
        let Mistake {
            file,
            flags,
            key,
            remedy,
        } = mistake;
        let (arguments, place) = if flags.is_empty() {
            let (path, line) = self.file(file);
            let place = format!("gridhaul.toml, line {line}:");
            (vec!["--config".to_owned(), path], place)
        } else {
            let (path, _) = self.file("");
            let mut all = vec!["--config".to_owned(), path];
            all.extend(flags.iter().map(|flag| (*flag).to_owned()));
            (all, format!("--{key}"))
        };
        let name = if flags.is_empty() {
            file.replace(" #!", "").replace('\n', "; ")
        } else {
            flags.join(" ")
        };
        let check = run("check", &arguments, self.0.path());
        let serve = run("serve", &arguments, self.0.path());
        let about = |text: &str| {
            let mut lines = text.lines();
            let found = lines.find(|line| line.contains(&place) && line.contains(key));
            found.unwrap_or_default().trim().to_owned()
        };
        for (command, printed, text) in [
            ("check", &check, &check.stdout),
            ("serve", &serve, &serve.stderr),
        ] {
            assert!(printed.status > 0, "{command}, {name}: {text}");
            assert!(!about(text).is_empty(), "{command}, {name}: {text}");
            assert!(text.contains(remedy), "{command}, {name}: {text}");
        }
        assert!(!serve.stdout.contains("listening"), "{name}");
        let here = self.0.path().to_str().expect("UTF-8");
        let shown = |text: String| text.replace(here, "/etc").replace('|', "\\|");
        format!(
            "| `{}` | {} | {} |",
            name.replace('|', "\\|"),
            shown(about(&check.stdout)),
            shown(about(&serve.stderr))
        )
    }
}

#[test]
fn each_mistake_is_named_with_its_place_and_remedy() {
    let site = Site::new();
    println!("| mistake | check | serve |");
    println!("|---|---|---|");
    for mistake in MISTAKES {
        println!("{}", site.make(mistake));
    }
    if nix::unistd::Uid::effective().is_root() {
        for mistake in OF_ROOT {
            println!("{}", site.make(mistake));
        }
    }
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first.is_ok_and(|first| first.trim().parse::<u16>().is_ok_and(|first| first > 100)) {
        let mistake = in_file(
            "port-range = '100-200' #!",
            "port-range",
            "take a range like",
        );
        println!("{}", site.make(&mistake));
    }
}

#[test]
fn all_mistakes_of_a_file_are_named_at_once() {
    let site = Site::new();
    let mistakes = [
        "anonymus = true",
        "idle-timeout = 'soon'",
        "max-connections = 0",
        "perms = 0644",
        "stack = 'tpc'",
        "passwords = '/nonexistent/users'",
        "transfer-log = '/nonexistent/log'",
        "gridmap = '/nonexistent/map'",
    ];
    let (path, _) = site.file(&mistakes.join("\n"));
    let arguments = ["--config".to_owned(), path];
    let check = run("check", &arguments, site.0.path());
    let serve = run("serve", &arguments, site.0.path());
    assert_eq!((check.status, serve.status), (1, 1));
    // After the three lines that each file has.
    for (line, mistake) in (4..).zip(mistakes) {
        let place = format!("line {line}: ");
        for text in [&check.stdout, &serve.stderr] {
            assert!(text.contains(&place), "{mistake}: {text}");
        }
    }
    let errors = check
        .stdout
        .lines()
        .filter(|line| line.starts_with("error"));
    assert_eq!(errors.count(), mistakes.len(), "{}", check.stdout);
}

#[test]
fn all_mistakes_of_flags_and_file_are_named_at_once() {
    let site = Site::new();
    let (path, line) = site.file("perms = 644 #!");
    let arguments = [
        &["--config", &path, "--max-connections", "many", "--anonymus"][..],
        &["--idle-timeout=soon", "--gsi", "true", "--user"],
    ];
    let arguments: Vec<String> = arguments
        .concat()
        .iter()
        .map(|one| (*one).to_owned())
        .collect();
    let check = run("check", &arguments, site.0.path());
    let serve = run("serve", &arguments, site.0.path());
    assert_eq!((check.status, serve.status), (1, 1));
    for words in [
        "--max-connections: 'many' is not a whole number; write it like --max-connections=100",
        "--anonymus: there is no such flag (did you mean 'anonymous'?)",
        "--idle-timeout: 'soon' is not a time, like",
        "--gsi: 'true' is no part of this flag",
        "--user: there is no value; write it like --user=",
        &format!("line {line}: "),
    ] {
        for text in [&check.stdout, &serve.stderr] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[test]
fn defects_of_files_are_errors_of_check_and_in_the_log() {
    let site = Site::new();
    for (file, words) in DEFECTS {
        let (path, _) = site.file(file);
        let arguments = ["--config".to_owned(), path];
        let check = run("check", &arguments, site.0.path());
        let mut lines = check.stdout.lines();
        let is_error = lines.any(|line| line.starts_with("error") && line.contains(words));
        assert!(is_error, "{words}: {}", check.stdout);
        let serve = run("serve", &arguments, site.0.path());
        assert!(serve.stdout.contains("listening"), "{}", serve.stderr);
        let mut lines = serve.stderr.lines();
        let is_told = lines.any(|line| line.contains(" WARN ") && line.contains(words));
        assert!(is_told, "{words}: {}", serve.stderr);
    }
}

#[test]
fn a_user_whose_name_is_that_of_anonymous_users_is_a_warning() {
    let site = Site::new();
    let mut passwd = Command::new(env!("CARGO_BIN_EXE_gridhaul-server"))
        .args(["passwd", "users", "anonymous"])
        .current_dir(site.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let mut stdin = passwd.stdin.take().expect("piped");
    stdin.write_all(b"secret words\n").expect("read");
    drop(stdin);
    assert!(passwd.wait().expect("ended").success());
    let (path, line) = site.file("passwords = 'HERE/users' #!");
    let arguments = ["--config".to_owned(), path];
    let check = run("check", &arguments, site.0.path());
    let serve = run("serve", &arguments, site.0.path());
    assert_eq!(check.status, 0, "{}", check.stdout);
    assert!(serve.stdout.contains("listening"), "{}", serve.stderr);
    for text in [&check.stdout, &serve.stderr] {
        let mut lines = text.lines();
        let place = format!("line {line}: ");
        let is_told = lines.any(|line| {
            line.contains(&place) && line.contains("take the name out of anonymous-names")
        });
        assert!(is_told, "{text}");
    }
}

#[test]
fn an_address_of_another_program_is_named_with_place_and_remedy() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound");
    for key in ["listen", "metrics-listen", "admin-listen"] {
        let (path, line) = site.file(&format!("{key} = '{address}' #!"));
        let arguments = ["--config".to_owned(), path];
        let check = run("check", &arguments, site.0.path());
        let serve = run("serve", &arguments, site.0.path());
        // It might be a server with this configuration that has no socket.
        assert_eq!((check.status, serve.status), (0, 1), "{}", serve.stderr);
        let words = format!("line {line}: ");
        for text in [&check.stdout, &serve.stderr] {
            let mut lines = text.lines();
            let found = lines.find(|line| line.contains(&words)).expect("named");
            for part in [key, "is in use", "ss -ltnp", "take another port"] {
                assert!(found.contains(part), "{part}: {found}");
            }
        }
    }
}

#[test]
fn what_a_running_server_has_is_its_own() {
    let site = Site::new();
    let (path, _) = site.file("admin-socket = 'HERE/admin.sock'");
    let mut child = Command::new(env!("CARGO_BIN_EXE_gridhaul-server"))
        .args(["serve", "--config", &path])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    lines.read_line(&mut line).expect("UTF-8");
    let address = line
        .trim()
        .rsplit(' ')
        .next()
        .expect("an address")
        .to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let other = taken.local_addr().expect("bound").to_string();
    let with = |address: &str| {
        let arguments = ["--config", &path, "--listen", address].map(str::to_owned);
        run("check", &arguments, site.0.path())
    };
    let own = with(&address);
    let foreign = with(&other);
    let second = run(
        "serve",
        &["--config".to_owned(), path.clone()],
        site.0.path(),
    );
    child.kill().expect("running");
    child.wait().expect("ended");
    assert_eq!(own.status, 0, "{}", own.stdout);
    let words = format!("listen: {address} is in use by the server of this configuration");
    assert!(own.stdout.contains(&words), "{}", own.stdout);
    assert!(
        own.stdout.contains("ok       admin-socket: "),
        "{}",
        own.stdout
    );
    assert_eq!(foreign.status, 1, "{}", foreign.stdout);
    let words = format!("error    listen: --listen: {other} is in use");
    assert!(foreign.stdout.contains(&words), "{}", foreign.stdout);
    assert_eq!(second.status, 1);
    let words = "another server listens there; name another path";
    assert!(second.stderr.contains(words), "{}", second.stderr);
}

#[test]
fn a_configuration_of_globus_gridftp_server_is_told_what_it_is() {
    let site = Site::new();
    let path = site.path("gridftp.conf");
    fs::write(
        &path,
        "# the site\nport 2811\n$GLOBUS_TCP_PORT_RANGE 50000,51000\n",
    )
    .expect("written");
    let path = path.to_str().expect("UTF-8").to_owned();
    let remedy = format!("`gridhaul-server import {path}`");
    let arguments = ["--config".to_owned(), path];
    for command in ["check", "serve"] {
        let Printed {
            status,
            stdout,
            stderr,
        } = run(command, &arguments, site.0.path());
        assert_eq!(status, 1);
        let text = stdout + &stderr;
        assert!(text.contains("one of globus-gridftp-server"), "{text}");
        assert!(text.contains(&remedy), "{text}");
    }
}

#[test]
fn a_configuration_without_a_way_in_is_refused_by_both() {
    let site = Site::new();
    let (path, _) = site.file("anonymous = false");
    let missing = site.path("missing.toml");
    let missing = missing.to_str().expect("UTF-8").to_owned();
    for (path, words) in [
        (path, "--anonymous, or --passwords FILE"),
        (missing, "missing.toml"),
    ] {
        let arguments = ["--config".to_owned(), path];
        let check = run("check", &arguments, site.0.path());
        let serve = run("serve", &arguments, site.0.path());
        assert_eq!((check.status, serve.status), (1, 1));
        for text in [&check.stdout, &serve.stderr] {
            assert!(text.contains(words), "{text}");
        }
    }
}

#[test]
fn without_arguments_root_gets_the_usage() {
    if !nix::unistd::Uid::effective().is_root() {
        skipped::skipped("the directory would be served");
        return;
    }
    let site = Site::new();
    let serve = run("serve", &[], site.0.path());
    assert_eq!(serve.status, 2, "{}", serve.stderr);
    assert!(!serve.stdout.contains("listening"));
    let examples = serve.stderr.matches("  gridhaul-server ").count();
    assert_eq!(examples, 3, "{}", serve.stderr);
}
