//! Mistakes in the configuration: `check` and `serve` name the setting, its place and the remedy, and `serve` does not listen.

use std::fs;
use std::io::{BufRead, BufReader, Read};
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
        "`account`",
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
        for (name, bits) in [("root", 0o755), ("private", 0o700)] {
            fs::create_dir(site.path(name)).expect("made");
            mode(name, bits);
        }
        fs::write(site.path("broken-users"), "ann\n").expect("written");
        fs::write(site.path("open-key"), [7; 32]).expect("written");
        mode("open-key", 0o644);
        site
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
        // clap writes errors of flags itself, also for check.
        let check_text = format!("{}{}", check.stdout, check.stderr);
        for (command, printed, text) in [
            ("check", &check, &check_text),
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
            shown(about(&check_text)),
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
