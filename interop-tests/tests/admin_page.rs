//! The administration page of our server in headless Chromium, driven by `python/admin_page.py`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridhaul_interop::support::slow::SlowGets;
use gridhaul_interop::{Client, Kind, Launch, NodeLaunch, Pki, Server};
use tempfile::TempDir;

/// The size of each file: some minutes at the rate of the clients.
const SIZE: u64 = 400_000_000;

/// The pause of the clients between two reads.
const PAUSE: Duration = Duration::from_millis(30);

/// Names of files that stay as they are.
const PLAIN: [&str; 3] = ["/alpha.root", "/beta.root", "/gamma.root"];

/// A server with its administration page, and running transfers.
struct Site {
    _place: TempDir,
    server: Server,
    base: String,
    gets: SlowGets,
}

impl Site {
    /// With a transfer of each of these files.
    fn new(paths: &[&str]) -> Self {
        Self::with(paths, |_| Vec::new())
    }

    /// With more arguments, which may name files in the directory.
    fn with(paths: &[&str], arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        for path in paths {
            let file = File::create(place.path().join(path.trim_start_matches('/'))).unwrap();
            file.set_len(SIZE).unwrap();
        }
        let launch = Launch::new(Kind::Gridhaul, place.path())
            .arg("--admin-listen")
            .arg("127.0.0.1:0");
        let arguments = arguments(place.path()).into_iter();
        let server = arguments.fold(launch, Launch::arg).start().unwrap();
        let base = server.administration();
        let gets = SlowGets::start(server.address(), paths, PAUSE).unwrap();
        Self {
            _place: place,
            server,
            base,
            gets,
        }
    }

    /// Runs a function of the script.
    fn run(&self, function: &str, arguments: &[&str]) {
        run(&self.server, &self.base, function, arguments);
    }
}

fn run(server: &Server, base: &str, function: &str, arguments: &[&str]) {
    let finished = script()
        .args([function, base])
        .args(arguments.iter().copied())
        .time_limit(Duration::from_secs(180))
        .run()
        .unwrap();
    let log = server.log();
    assert!(finished.status.success(), "{finished}\n{log}");
}

fn script() -> Client {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/admin_page.py");
    Client::new("python3").arg("-B").arg(path)
}

#[test]
fn running_transfers_are_shown_sorted_and_filtered() {
    Site::new(&PLAIN).run("shows_transfers", &PLAIN);
}

#[test]
fn a_transfer_is_ended_with_the_keyboard_alone() {
    let mut site = Site::new(&PLAIN);
    site.run("ends_by_keyboard", &[PLAIN[1]]);
    let reply = site.gets.end(1).unwrap();
    assert_eq!(reply.code, 426, "{reply:?}");
    assert!(reply.text().contains("administrator"), "{reply:?}");
}

#[test]
fn updates_keep_the_focus_and_the_selection() {
    Site::new(&PLAIN).run("keeps_focus_and_selection", &[PLAIN[0]]);
}

#[test]
fn names_of_files_are_text() {
    let hostile = "/<img src=x onerror=alert(1)>";
    Site::new(&[hostile]).run("shows_hostile_names", &[hostile]);
}

#[test]
fn the_page_is_readable_in_dark_and_light_and_has_names_for_screen_readers() {
    let site = Site::new(&PLAIN);
    site.run("is_readable_in_dark_and_light", &[]);
    site.run("is_structured", &[]);
}

#[test]
fn the_page_fits_320_pixels() {
    Site::new(&PLAIN).run("fits_a_narrow_window", &[]);
}

#[test]
fn actions_reach_the_server_and_report_back() {
    let site = Site::new(&PLAIN[..1]);
    site.run("acts_on_the_server", &[]);
}

#[test]
fn data_nodes_are_shown_and_drained() {
    let pki = Pki::shared().unwrap();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let node = NodeLaunch::new(pki, place.path()).start().unwrap();
    // Nothing listens at the second one.
    let names = [node.address().to_string(), "127.0.0.1:1".to_owned()];
    let server = Launch::new(Kind::Gridhaul, place.path())
        .gsi(pki)
        .arg("--admin-listen")
        .arg("127.0.0.1:0")
        .arg("--nodes")
        .arg(names.join(","))
        .start()
        .unwrap();
    let names = names.each_ref().map(String::as_str);
    let base = server.administration();
    run(&server, &base, "shows_and_drains_nodes", &names);
    let log = server.log();
    for words in ["drains a data node", "resumes a data node"] {
        let line = log.lines().find(|line| line.contains(words));
        assert!(line.is_some_and(|line| line.contains(names[0])), "{log}");
    }
}

#[test]
fn a_lost_server_is_noticed() {
    let site = Site::new(&PLAIN[..1]);
    site.run("notices_a_lost_server", &[&site.server.pid().to_string()]);
}

#[test]
fn the_form_takes_the_secret() {
    let secret = "correct horse battery staple";
    let site = Site::with(&PLAIN[..1], |place| {
        let file = place.join("secret");
        fs::write(&file, secret).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        vec!["--admin-token".to_owned(), file.display().to_string()]
    });
    site.run("logs_in_with_a_secret", &[secret]);
}

#[test]
fn pages_of_other_origins_neither_read_nor_act() {
    Site::new(&PLAIN).run("refuses_other_origins", &[PLAIN[0]]);
}
