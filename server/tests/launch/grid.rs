//! Who may log in with a certificate: ban lists, maps that disappear, callouts and pools, in the real program.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::grid_client::{GridClient, IDENTITY};
use crate::processes::child;
use crate::program::{Running, fails, has_root, is_root, program, write_program};
use crate::security::{Site, as_str};
use gridhaul_skip::skipped;

/// A site whose map gives the client an account.
struct Grid(Site);

impl Grid {
    fn new() -> Self {
        let grid = Self(Site::new());
        grid.map(&format!("\"{IDENTITY}\" {}\n", account()));
        grid
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn text(&self, name: &str) -> String {
        self.0.text(name)
    }

    /// In one step, so that no server sees a part.
    fn write(&self, name: &str, content: &str) {
        let new = self.path("new");
        fs::write(&new, content).expect("written");
        fs::rename(new, self.path(name)).expect("renamed");
    }

    fn map(&self, content: &str) {
        self.write("grid-mapfile", content);
    }

    fn program(&self, script: &str) -> String {
        write_program(&self.path("callout"), &format!("#!/bin/sh\n{script}\n"));
        self.text("callout")
    }

    fn serve(&self, flags: &[&str]) -> Running {
        // Of many logins: it would fill a pipe that is not read.
        let log = self.path("log");
        fs::write(&log, "").expect("written");
        fs::set_permissions(log, fs::Permissions::from_mode(0o666)).expect("set");
        let mut all = self.0.flags();
        all.extend(["--log-file".to_owned(), self.text("log")]);
        all.extend(
            [
                "--penalty-exempt",
                "127.0.0.0/8",
                "--max-login-attempts",
                "1000",
            ]
            .map(str::to_owned),
        );
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Running::start(&self.path(""), &as_str(&all))
    }

    fn command(&self, name: &str, flags: &[&str]) -> std::process::Command {
        let mut command = program();
        command
            .arg(name)
            .args(["--listen", "127.0.0.1:0", "--root"]);
        command.arg(self.path("")).args(self.0.flags()).args(flags);
        command
    }

    fn client(&self, server: &Running) -> GridClient {
        GridClient::connect(server.address, &self.path("host.key"))
    }

    fn log_in(&self, server: &Running) -> String {
        self.client(server).log_in()
    }

    /// Waits until the log has some words: the line.
    fn logged(&self, words: &str) -> String {
        loop {
            let log = fs::read_to_string(self.path("log")).expect("read");
            if let Some(line) = log.lines().find(|line| line.contains(words)) {
                return line.to_owned();
            }
            std::thread::yield_now();
        }
    }

    /// Logs in again until the reply begins so: the server looks at its files once a second.
    fn log_in_until(&self, server: &Running, code: &str) -> String {
        loop {
            let reply = self.log_in(server);
            if reply.starts_with(code) {
                return reply;
            }
            std::thread::yield_now();
        }
    }
}

/// An account that a server of this process may use.
fn account() -> String {
    if is_root() {
        return "nobody".to_owned();
    }
    let own = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    own.expect("asked").expect("the account has a name").name
}

#[test]
fn callouts_of_globus_gridftp_server_are_not_ignored_without_a_word() {
    let grid = Grid::new();
    let conf = grid.path("gsi-authz.conf");
    let with_conf = |name: &str, flags: &[&str]| {
        let mut command = grid.command(name, flags);
        command.env("GSI_AUTHZ_CONF", &conf);
        command
    };
    let line = "globus_mapping liblcas_lcmaps_gt4_mapping.so lcmaps_callout";
    grid.write(
        "gsi-authz.conf",
        &format!("# The callout of the site\n{line}\n"),
    );
    let text = fails(&mut with_conf("serve", &[]));
    for words in [
        "gsi-authz.conf, line 2",
        line,
        "authz-callout",
        "ignore-gsi-authz = true",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let checked = with_conf("check", &[]).output().expect("started");
    let report = String::from_utf8(checked.stdout).expect("UTF-8");
    assert!(report.contains("gsi-authz.conf, line 2"), "{report}");
    assert_eq!(checked.status.code(), Some(1), "{report}");

    let mut server = Running::of(&mut with_conf("serve", &["--ignore-gsi-authz"]));
    let log = server.log_until("ignore-gsi-authz");
    assert!(
        log.lines().last().is_some_and(|line| line.contains("WARN")),
        "{log}"
    );
    assert!(grid.log_in(&server).starts_with("230"));
    let callout = grid.program("echo '{\"decision\":\"deny\"}'");
    let server = Running::of(&mut with_conf("serve", &["--authz-callout", &callout]));
    assert!(grid.log_in(&server).starts_with("530"));

    for content in ["", "# globus_mapping liblcas.so x\n\n"] {
        grid.write("gsi-authz.conf", content);
        let server = Running::of(&mut with_conf("serve", &[]));
        assert!(grid.log_in(&server).starts_with("230"));
    }
}

#[test]
fn a_ban_counts_without_a_reload_and_a_reload_ends_the_sessions_of_the_banned() {
    const BANNED: &str = "\"/DC=test/O=Samples/CN=local*\"\n";

    let grid = Grid::new();
    grid.write("bans", "# nobody\n");
    let (first, second) = (grid.text("bans"), grid.text("ban_users.db"));
    grid.write("ban_users.db", "\"/DC=other/CN=Mallory\"\n");
    let server = grid.serve(&["--ban-list", &first, "--ban-list", &second]);
    let mut session = grid.client(&server);
    assert!(session.log_in().starts_with("230"));
    grid.write("ban_users.db", BANNED);
    let refused = grid.log_in_until(&server, "530");
    assert!(refused.contains("banned"), "{refused}");
    assert!(
        session.command("PWD").starts_with("257"),
        "the session goes on"
    );
    server.signal(Signal::HUP);
    let last = session.reply().expect("a last reply");
    assert!(last.starts_with("421 Access was withdrawn"), "{last}");
    let log = grid.logged("refused now are ended");
    assert!(log.contains("sessions=1"), "{log}");
    grid.write("ban_users.db", "# pardoned\n");
    grid.log_in_until(&server, "230");
    // A reload reads the list, although it was examined a moment ago.
    let mut session = grid.client(&server);
    assert!(session.log_in().starts_with("230"));
    grid.write("ban_users.db", BANNED);
    server.signal(Signal::HUP);
    let last = session.reply().expect("a last reply");
    assert!(last.starts_with("421 Access was withdrawn"), "{last}");
}

#[test]
fn a_ban_list_that_cannot_be_used_closes_logins_with_certificates_only() {
    let grid = Grid::new();
    grid.write("bans", "");
    let list = grid.text("bans");
    let server = grid.serve(&["--anonymous", "--ban-list", &list]);
    assert!(grid.log_in(&server).starts_with("230"));
    for content in [Some("CN=Mallory, O=Grid\n"), None] {
        match content {
            Some(content) => grid.write("bans", content),
            None => fs::remove_file(grid.path("bans")).expect("removed"),
        }
        let refused = grid.log_in_until(&server, "530");
        assert!(refused.contains("ban lists"), "{refused}");
        let replies = server.dialogue(&["USER anonymous", "PASS x"]);
        assert!(replies[2].starts_with("230"), "{replies:?}");
        let report = grid
            .command("check", &["--ban-list", &list])
            .output()
            .expect("started");
        let report = String::from_utf8(report.stdout).expect("UTF-8");
        let complains = |line: &str| line.starts_with("error") && line.contains("ban-list:");
        assert!(report.lines().any(complains), "{report}");
        let log = grid.logged("a ban list cannot be used");
        assert!(log.contains("ERROR"), "{log}");
        grid.write("bans", "");
        grid.log_in_until(&server, "230");
    }
    fs::remove_file(grid.path("bans")).expect("removed");
    let text = fails(&mut grid.command("serve", &["--ban-list", &list]));
    assert!(text.contains("ban-list: "), "{text}");
}

#[test]
fn a_grid_mapfile_that_is_removed_lets_nobody_in_and_the_log_says_so() {
    let grid = Grid::new();
    let server = grid.serve(&[]);
    assert!(grid.log_in(&server).starts_with("230"));
    fs::remove_file(grid.path("grid-mapfile")).expect("removed");
    let refused = grid.log_in_until(&server, "530");
    assert!(refused.contains("grid-mapfile"), "{refused}");
    let log = grid.logged("it maps no users");
    assert!(log.contains("ERROR"), "{log}");
    server.signal(Signal::HUP);
    grid.logged("reloaded");
    assert!(grid.log_in(&server).starts_with("530"));
    let checked = grid.command("check", &[]).output().expect("started");
    let report = String::from_utf8(checked.stdout).expect("UTF-8");
    let complains = |line: &str| line.starts_with("error") && line.contains("grid-mapfile");
    assert!(report.lines().any(complains), "{report}");
    grid.map(&format!("\"{IDENTITY}\" {}\n", account()));
    grid.log_in_until(&server, "230");
}

#[test]
fn a_callout_decides_within_the_limits_of_the_server() {
    let grid = Grid::new();
    let (own, asked) = (account(), grid.path("asked"));
    fs::create_dir(&asked).expect("made");
    fs::set_permissions(&asked, fs::Permissions::from_mode(0o777)).expect("set");
    let answers = |answer: &str| {
        grid.program(&format!("cat > {}/question\n{answer}", asked.display()));
    };
    let json = |text: &str| format!("echo '{text}'");
    answers("");
    let callout = grid.text("callout");
    let server = grid.serve(&[
        "--anonymous",
        "--authz-callout",
        &callout,
        "--authz-callout-timeout",
        "2",
    ]);
    let mut client = grid.client(&server);
    for (answer, code, words) in [
        (json("{\"decision\":\"permit\"}"), "230", ""),
        (
            json(&format!(
                "{{\"decision\":\"permit\",\"account\":\"{own}\"}}"
            )),
            "230",
            "",
        ),
        (
            json("{\"decision\":\"deny\",\"reason\":\"no such user here\"}"),
            "530",
            "no such user here",
        ),
        (
            json("{\"decision\":\"permit\",\"account\":\"root\"}"),
            "530",
            "",
        ),
        (
            json("{\"decision\":\"permit\",\"account\":\"daemon\"}"),
            "530",
            "",
        ),
        (
            json("{\"decision\":\"permit\",\"account\":\"../etc\"}"),
            "530",
            "does not answer",
        ),
        (json("permit"), "530", "does not answer"),
        ("exit 1".to_owned(), "530", "does not answer"),
        ("sleep 100".to_owned(), "530", "does not answer"),
        ("yes".to_owned(), "530", "does not answer"),
        (String::new(), "530", "does not answer"),
    ] {
        answers(&answer);
        let reply = grid.log_in(&server);
        assert!(
            reply.starts_with(code) && reply.contains(words),
            "{answer}: {reply}"
        );
        let replies = server.dialogue(&["USER anonymous", "PASS x"]);
        assert!(replies[2].starts_with("230"), "{replies:?}");
    }
    answers(&json("{\"decision\":\"permit\"}"));
    assert!(client.log_in_as("somebody").starts_with("530"));
    let question = fs::read_to_string(asked.join("question")).expect("asked");
    let expected = format!(
        "{{\"version\":1,\"identity\":\"{IDENTITY}\",\"subjects\":[\"{IDENTITY}\"],\"fqans\":[],\"address\":\"127.0.0.1\",\
         \"requested_account\":\"somebody\"}}\n"
    );
    assert_eq!(question, expected);
    // Input, output and errors, and what ls opens. Cargo leaves descriptors open in the server.
    answers(&format!(
        "ls /proc/self/fd > {}/open; exit 1",
        asked.display()
    ));
    assert!(grid.log_in(&server).starts_with("530"));
    let open = fs::read_to_string(asked.join("open")).expect("written");
    assert_eq!(open, "0\n1\n2\n3\n");
    fs::remove_file(&callout).expect("removed");
    assert!(grid.log_in(&server).starts_with("530"));
}

#[test]
fn bans_and_rules_win_over_the_callout_which_is_not_asked() {
    let grid = Grid::new();
    let asked = grid.path("asked");
    let callout = grid.program(&format!(
        "touch {}; echo '{{\"decision\":\"permit\"}}'",
        asked.display()
    ));
    fs::set_permissions(grid.path(""), fs::Permissions::from_mode(0o777)).expect("set");
    grid.write("bans", &format!("{IDENTITY}\n"));
    let server = grid.serve(&[
        "--authz-callout",
        &callout,
        "--ban-list",
        &grid.text("bans"),
    ]);
    assert!(grid.log_in(&server).contains("banned"));
    let rule = format!("[[authorize]]\nidentity = \"{IDENTITY}\"\ndeny = true\n");
    grid.write("config.toml", &rule);
    let server = grid.serve(&[
        "--authz-callout",
        &callout,
        "--config",
        &grid.text("config.toml"),
    ]);
    assert!(grid.log_in(&server).contains("denied by configuration"));
    assert!(!asked.exists());
}

#[test]
fn a_server_whose_callout_process_is_gone_ends_with_an_error() {
    let grid = Grid::new();
    let callout = grid.program("echo '{\"decision\":\"permit\"}'");
    let server = grid.serve(&["--authz-callout", &callout]);
    let helper = child(&server, "gh-callout");
    let status = fs::read_to_string(format!("/proc/{helper}/status")).expect("a process");
    let line = |name: &str| {
        let mut lines = status.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .expect("every process has it")
            .trim()
            .to_owned()
    };
    assert_eq!(line("NoNewPrivs:"), "1");
    assert_eq!(line("Seccomp:"), "2");
    assert_eq!(line("CapPrm:"), "0000000000000000");
    assert!(!is_root() || !line("Uid:").starts_with('0'));
    let helper = rustix::process::Pid::from_raw(helper.try_into().expect("a number"));
    rustix::process::kill_process(helper.expect("not zero"), Signal::KILL).expect("ours");
    let (status, last) = server.ended();
    assert_eq!(status, 1, "{last}");
    grid.logged("the process that asks authz-callout has ended");
}

#[test]
fn a_pool_gives_each_identity_an_account_for_good() {
    if !has_root() {
        return;
    }
    let grid = Grid::new();
    grid.map(&format!("\"{IDENTITY}\" .nobod\n"));
    let pool = grid.path("gridmapdir");
    fs::create_dir(&pool).expect("made");
    let text = grid.text("gridmapdir");
    let server = grid.serve(&["--gridmapdir", &text]);
    let refused = grid.log_in(&server);
    assert!(
        refused.starts_with("530") && refused.contains("in use"),
        "{refused}"
    );
    grid.logged("no account of a pool could be leased");
    // No account of this machine has a number, so the login ends where the monitor looks the account up.
    File::create(pool.join("nobod1")).expect("made");
    let refused = grid.log_in(&server);
    assert!(refused.starts_with("530"), "{refused}");
    grid.logged("nobod1");
    let lease = leases(&pool);
    assert_eq!(lease, ["%2fdc%3dtest%2fo%3dsamples%2fcn%3dlocalhost"]);
    let report = grid
        .command("check", &["--gridmapdir", &text])
        .output()
        .expect("started");
    let report = String::from_utf8(report.stdout).expect("UTF-8");
    assert!(report.contains("all 1 account of .nobod"), "{report}");
    fs::set_permissions(&pool, fs::Permissions::from_mode(0o777)).expect("set");
    let report = grid
        .command("check", &["--gridmapdir", &text])
        .output()
        .expect("started");
    let report = String::from_utf8(report.stdout).expect("UTF-8");
    assert!(report.contains("only root may write"), "{report}");
}

/// A script that runs the adapter for LCMAPS with this policy.
fn lcmaps(grid: &Grid, policy: &str) -> Option<String> {
    const LIBRARY: &str = "liblcmaps_return_poolindex_without_gsi.so.0";
    const PLUGINS: &str = "/usr/lib/lcmaps";

    let libraries = std::process::Command::new("/sbin/ldconfig")
        .arg("-p")
        .output();
    let libraries = libraries.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !is_root() || !libraries.is_ok_and(|list| list.contains(LIBRARY)) {
        skipped("this needs root, and LCMAPS with its plugins");
        return None;
    }
    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/callouts/lcmaps");
    // The server's account may not be able to reach the sources.
    let adapter = fs::read_to_string(adapter).expect("read");
    write_program(&grid.path("adapter"), &adapter);
    let database = format!("path = {PLUGINS}\n{policy}\n");
    grid.write("lcmaps.db", &database);
    Some(grid.program(&format!(
        "LCMAPS_DB_FILE={} exec {}",
        grid.text("lcmaps.db"),
        grid.text("adapter")
    )))
}

#[test]
fn lcmaps_decides_through_its_callout() {
    let grid = Grid::new();
    let map = grid.text("lcmaps.map");
    let policy = format!(
        "local = \"lcmaps_localaccount.mod -gridmapfile {map}\"\n\
         good = \"lcmaps_dummy_good.mod\"\nacquisition_policy:\nlocal -> good"
    );
    grid.write("lcmaps.map", "\"/CN=somebody else\" nobody\n");
    let Some(callout) = lcmaps(&grid, &policy) else {
        return;
    };
    // Its interpreter and its plugins start slowly on a busy machine.
    let options = ["--authz-callout", &callout, "--authz-callout-timeout", "60"];
    // The grid-mapfile would map the client, and LCMAPS denies it.
    let server = grid.serve(&options);
    let refused = grid.log_in(&server);
    assert!(refused.contains("LCMAPS has no account"), "{refused}");
    // LCMAPS maps the client, and the grid-mapfile does not.
    grid.map("\"/CN=somebody else\" nobody\n");
    grid.write("lcmaps.map", &format!("\"{IDENTITY}\" nobody\n"));
    let server = grid.serve(&options);
    let reply = grid.log_in(&server);
    assert!(reply.starts_with("230 User nobody"), "{reply}");
}

/// An account of this machine that could be one of a pool: a name that ends with a number.
fn pool_account() -> Option<String> {
    let accounts = fs::read_to_string("/etc/passwd").expect("read");
    let mut names = accounts.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
        (uid >= 1000 && name.ends_with(|last: char| last.is_ascii_digit())).then(|| name.to_owned())
    });
    names.next()
}

#[test]
fn lcmaps_and_the_server_share_the_leases_of_a_pool() {
    let grid = Grid::new();
    let Some(account) = pool_account() else {
        skipped("no account of this machine has a name that ends with a number");
        return;
    };
    let pool = account.trim_end_matches(|last: char| last.is_ascii_digit());
    grid.map(&format!(
        "\"{IDENTITY}\" .{pool}\n\"/CN=Other User\" .{pool}\n"
    ));
    let directory = grid.path("gridmapdir");
    fs::create_dir(&directory).expect("made");
    File::create(directory.join(&account)).expect("made");
    let policy = format!(
        "pool = \"lcmaps_poolaccount.mod -gridmapfile {} -gridmapdir {}\"\n\
         good = \"lcmaps_dummy_good.mod\"\nacquisition_policy:\npool -> good",
        grid.text("grid-mapfile"),
        directory.display()
    );
    let Some(callout) = lcmaps(&grid, &policy) else {
        return;
    };
    let ask = |identity: &str| {
        let question = format!(
            "{{\"version\":1,\"identity\":\"{identity}\",\"subjects\":[],\"fqans\":[],\"address\":null,\
             \"requested_account\":null}}"
        );
        grid.write("question", &question);
        let input = File::open(grid.path("question")).expect("opened");
        let output = std::process::Command::new(&callout).stdin(input).output();
        let output = output.expect("started");
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let permits = format!("\"account\": \"{account}\"");
    // LCMAPS leases, and the server finds the lease.
    let answer = ask(IDENTITY);
    assert!(answer.contains(&permits), "{answer}");
    let server = grid.serve(&["--gridmapdir", &grid.text("gridmapdir")]);
    let reply = grid.log_in(&server);
    assert!(reply.starts_with(&format!("230 User {account}")), "{reply}");
    // The server leases, and LCMAPS finds the lease.
    fs::remove_file(directory.join(&leases(&directory)[0])).expect("taken back");
    let server = grid.serve(&["--gridmapdir", &grid.text("gridmapdir")]);
    assert!(grid.log_in(&server).starts_with("230"));
    let answer = ask(IDENTITY);
    assert!(answer.contains(&permits), "{answer}");
    let answer = ask("/CN=Other User");
    assert!(answer.contains("deny"), "{answer}");
}

fn leases(pool: &Path) -> Vec<String> {
    let entries = fs::read_dir(pool).expect("read");
    let names = entries.map(|entry| {
        entry
            .expect("read")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    names.filter(|name| name.starts_with('%')).collect()
}
