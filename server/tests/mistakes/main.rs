//! Mistakes in the configuration: `check` and `serve` name the setting, its place and the remedy, and `serve` does not listen.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

mod site;
mod table;

use site::{Printed, Site, run};
use table::{DEFECTS, MISTAKES, OF_ROOT, in_file};

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
        // The socket is that of no other server on this machine.
        let (path, line) = site.file(&format!(
            "{key} = '{address}' #!\nadmin-socket = 'HERE/admin.sock'"
        ));
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
fn the_default_address_is_not_judged_in_place_of_one_that_was_not_understood() {
    let site = Site::new();
    // It may be taken already.
    let _taken = TcpListener::bind("127.0.0.1:2811");
    let missing = site.path("missing.toml");
    let directory = site.path("root");
    let (wrong, _) = site.file("listen = 'here'");
    for path in [
        missing.to_str().expect("UTF-8"),
        directory.to_str().expect("UTF-8"),
        &wrong,
    ] {
        let arguments = ["--config".to_owned(), path.to_owned()];
        let serve = run("serve", &arguments, site.0.path());
        assert_eq!(serve.status, 1, "{}", serve.stderr);
        assert!(!serve.stderr.contains("is in use"), "{}", serve.stderr);
    }
}

#[test]
fn a_file_without_users_is_a_warning_if_there_is_no_other_way_in() {
    let site = Site::new();
    fs::write(site.path("no-users"), "# later\n").expect("written");
    let (path, line) = site.file("anonymous = false\npasswords = 'HERE/no-users' #!");
    let arguments = ["--config".to_owned(), path];
    let check = run("check", &arguments, site.0.path());
    let serve = run("serve", &arguments, site.0.path());
    assert_eq!(check.status, 0, "{}", check.stdout);
    assert!(serve.stdout.contains("listening"), "{}", serve.stderr);
    let place = format!("line {line}: ");
    for text in [&check.stdout, &serve.stderr] {
        let mut lines = text.lines();
        let is_told = lines.any(|line| line.contains(&place) && line.contains("has no users"));
        assert!(is_told, "{text}");
    }
}

#[test]
fn flags_of_globus_gridftp_server_are_told_their_counterparts() {
    let site = Site::new();
    let flags = "-p 2811 -d ALL -aa -c /etc/gridftp.conf -Z /var/log/x -inetd";
    let arguments: Vec<String> = flags.split(' ').map(str::to_owned).collect();
    let check = run("check", &arguments, site.0.path());
    let serve = run("serve", &arguments, site.0.path());
    assert_eq!((check.status, serve.status), (1, 1), "{}", serve.stderr);
    for words in [
        "-p: this is a flag of globus-gridftp-server: in its place here is --listen",
        "-d: this is a flag of globus-gridftp-server: in its place here is --log-level",
        "-aa: this is a flag of globus-gridftp-server: in its place here is --anonymous",
        "-c: this is a flag of globus-gridftp-server: ",
        "-Z: this is a flag of globus-gridftp-server: in its place here is --transfer-log",
        "-inetd: this is a flag of globus-gridftp-server: ",
    ] {
        for text in [&check.stdout, &serve.stderr] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[test]
fn files_that_others_can_change_are_errors_of_check_and_in_the_log() {
    let site = Site::new();
    let mode = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(site.path(name), permissions).expect("set");
    };
    fs::write(site.path("open/users"), "").expect("written");
    mode("open/users", 0o600);
    fs::write(site.path("users"), "").expect("written");
    for (file, users, place, words) in [
        (
            0o644,
            0o666,
            "line 4: ",
            "users can be written by all users",
        ),
        (
            0o666,
            0o600,
            "",
            "gridhaul.toml can be written by all users",
        ),
        (0o644, 0o600, "line 4: ", "its directory "),
    ] {
        let (path, _) = site.file(match words {
            "its directory " => "passwords = 'HERE/open/users'",
            _ => "passwords = 'HERE/users'",
        });
        mode("users", users);
        mode("gridhaul.toml", file);
        let arguments = ["--config".to_owned(), path];
        let check = run("check", &arguments, site.0.path());
        let serve = run("serve", &arguments, site.0.path());
        mode("gridhaul.toml", 0o644);
        assert_eq!(check.status, 1, "{}", check.stdout);
        assert!(serve.stdout.contains("listening"), "{}", serve.stderr);
        for (text, verdict) in [(&check.stdout, "error "), (&serve.stderr, " WARN ")] {
            let is_told = text
                .lines()
                .any(|line| line.contains(verdict) && line.contains(place) && line.contains(words));
            assert!(is_told, "{words}: {text}");
        }
    }
}

#[test]
fn a_callout_without_its_interpreter_is_an_error_of_check() {
    let site = Site::new();
    let script = site.path("callout");
    fs::write(&script, "#!/nonexistent/python3\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set");
    let (path, line) = site.file(
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/map'\n\
         authz-callout = 'HERE/callout' #!",
    );
    let check = run("check", &["--config".to_owned(), path], site.0.path());
    assert_eq!(check.status, 1, "{}", check.stdout);
    let place = format!("line {line}: ");
    let is_told = check.stdout.lines().any(|line| {
        line.starts_with("error") && line.contains(&place) && line.contains("/nonexistent/python3")
    });
    assert!(is_told, "{}", check.stdout);
}

#[test]
fn limits_without_effect_are_warnings() {
    let site = Site::new();
    for (text, words) in [
        (
            "[[limit]] #!\nname = 'a'\nuser = 'nosuch'\nmax-transfers = 1",
            "user matches none of anonymous, ftp",
        ),
        (
            "max-transfers = 5\n[[limit]] #!\nname = 'a'\nmax-transfers = 6",
            "max-transfers = 6 is without effect",
        ),
        (
            "max-connections = 5\nmax-connections-per-address = 6 #!",
            "6 is without effect, because max-connections is 5",
        ),
    ] {
        let (path, line) = site.file(text);
        let arguments = ["--config".to_owned(), path];
        let check = run("check", &arguments, site.0.path());
        let serve = run("serve", &arguments, site.0.path());
        let place = format!("line {line}: ");
        assert!(serve.stdout.contains("listening"), "{}", serve.stderr);
        for text in [&check.stdout, &serve.stderr] {
            let mut lines = text.lines();
            let is_told = lines.any(|line| line.contains(&place) && line.contains(words));
            assert!(is_told, "{words}: {text}");
        }
    }
}

#[test]
fn without_arguments_root_gets_the_usage() {
    if !nix::unistd::Uid::effective().is_root() {
        gridhaul_skip::skipped("the directory would be served");
        return;
    }
    let site = Site::new();
    let serve = run("serve", &[], site.0.path());
    assert_eq!(serve.status, 2, "{}", serve.stderr);
    assert!(!serve.stdout.contains("listening"));
    let examples = serve.stderr.matches("  gridhaul-server ").count();
    assert_eq!(examples, 3, "{}", serve.stderr);
}
