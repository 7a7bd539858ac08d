//! `sshftp://`: globus-url-copy starts the server through ssh and a real sshd on the loopback
//! interface. The same cases run against the real server.

use gridhaul_interop::{Client, Finished, Kind, SshHost, content};

/// The client's script passes the user name to ssh unquoted, so that options may precede
/// it: without `-F` ssh would read the configuration of the account that runs the tests.
fn url(host: &SshHost, name: &str) -> String {
    let configuration = host.path("ssh-config").display().to_string();
    let configuration = configuration.replace('/', "%2F");
    let (user, address) = (whoami(), host.address());
    let path = host.path(name).display().to_string();
    format!("sshftp://-F%20{configuration}%20{user}@{address}{path}")
}

fn local(host: &SshHost, name: &str) -> String {
    format!("file://{}", host.path(name).display())
}

fn copy(host: &SshHost, options: &[&str], source: &str, destination: &str) -> Finished {
    Client::new("globus-url-copy")
        .args(options.iter().copied().chain([source, destination]))
        .env("GLOBUS_REMOTE_SSHFTP", host.path("sshftp"))
        .run()
        .unwrap()
}

/// The account that runs the tests.
fn whoami() -> String {
    let finished = Client::new("id").arg("-un").run().unwrap();
    assert!(finished.status.success(), "{finished}");
    finished.output().trim().to_owned()
}

/// Larger than one block, and not a multiple of one.
const BYTES: u64 = 3_000_001;

fn files_go_both_ways(kind: Kind) {
    let host = SshHost::new(kind).unwrap();
    let source = host.path("source");
    content::write(&source, BYTES).unwrap();
    for (name, options) in [("plain", &[][..]), ("parallel", &["-p", "4"])] {
        let finished = copy(&host, options, &local(&host, "source"), &url(&host, name));
        assert!(finished.status.success(), "{finished}");
        content::same(&source, &host.path(name)).unwrap();
        let fetched = format!("{name}.fetched");
        let finished = copy(&host, options, &url(&host, name), &local(&host, &fetched));
        assert!(finished.status.success(), "{finished}");
        content::same(&source, &host.path(&fetched)).unwrap();
    }
}

fn copies_go_from_one_session_to_another(kind: Kind) {
    let host = SshHost::new(kind).unwrap();
    content::write(&host.path("source"), BYTES).unwrap();
    let finished = copy(
        &host,
        &["-p", "2"],
        &url(&host, "source"),
        &url(&host, "copy"),
    );
    assert!(finished.status.success(), "{finished}");
    content::same(&host.path("source"), &host.path("copy")).unwrap();
}

fn missing_files_are_named(kind: Kind) {
    let host = SshHost::new(kind).unwrap();
    let finished = copy(&host, &[], &url(&host, "missing"), &local(&host, "copy"));
    assert!(!finished.status.success(), "{finished}");
    let output = finished.output();
    assert!(output.contains("No such file or directory"), "{finished}");
}

macro_rules! for_both {
    ($($case:ident: $ours:ident, $theirs:ident;)*) => {$(
        #[test]
        fn $ours() {
            $case(Kind::Gridhaul);
        }

        #[test]
        fn $theirs() {
            $case(Kind::Globus);
        }
    )*};
}

for_both! {
    files_go_both_ways: ours_stores_and_fetches, theirs_stores_and_fetches;
    copies_go_from_one_session_to_another: ours_copies_to_another, theirs_copies_to_another;
    missing_files_are_named: ours_names_missing_files, theirs_names_missing_files;
}
