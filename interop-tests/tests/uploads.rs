//! Uploads under temporary names that break off, and the restarts of real clients.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{Control, connect_data};
use gridhaul_interop::{Client, Finished, Kind, Launch, Relay, Server, chown_to_nobody, content};
use tempfile::TempDir;

const SIZE: u64 = 3_000_001;

/// The bytes that have arrived when the first attempt breaks off.
const ARRIVED: usize = 1_234_567;

/// A server whose uploads have temporary names, with an unfinished upload of `copy`, and its source.
struct Site {
    place: TempDir,
    server: Server,
}

impl Site {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let root = place.path().join("served");
        fs::create_dir(&root).unwrap();
        chown_to_nobody(&root).unwrap();
        let launch = Launch::new(Kind::Gridhaul, &root)
            .arg("--atomic-uploads")
            .arg("*");
        let server = launch.start().unwrap();
        let site = Self { place, server };
        content::write(&site.local("source"), SIZE).unwrap();
        site
    }

    fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn remote(&self, name: &str) -> PathBuf {
        self.server.root().join(name)
    }

    /// Sends the beginning of the source in stream mode, and disconnects. Returns the inode of the unfinished upload, which no session
    /// has any more.
    fn interrupt(&self) -> u64 {
        let mut control = Control::anonymous(self.server.address()).unwrap();
        control.must("TYPE I", 200).unwrap();
        let mut channel = connect_data(control.passive().unwrap()).unwrap();
        control.must("STOR copy", 150).unwrap();
        let source = fs::read(self.local("source")).unwrap();
        channel.write_all(&source[..ARRIVED]).unwrap();
        let part = self.remote(".copy.gridhaul-part");
        let deadline = Instant::now() + Duration::from_secs(20);
        while fs::metadata(&part).map_or(0, |found| found.len()) < ARRIVED as u64 {
            assert!(Instant::now() < deadline, "{}", self.server.log());
            std::thread::yield_now();
        }
        // In stream mode the end of the data connection would be that of the file, so it stays open until the session has ended.
        drop(control);
        let file = fs::File::open(part).unwrap();
        while file.try_lock().is_err() {
            assert!(Instant::now() < deadline, "{}", self.server.log());
            std::thread::yield_now();
        }
        drop(channel);
        file.metadata().unwrap().ino()
    }

    /// The upload is complete, in the file of the first attempt.
    fn continued(&self, inode: u64, client: &Finished) {
        assert!(client.status.success(), "{client}\n{}", self.server.log());
        content::same(&self.local("source"), &self.remote("copy")).unwrap();
        assert_eq!(
            fs::metadata(self.remote("copy")).unwrap().ino(),
            inode,
            "{client}"
        );
        assert_eq!(fs::read_dir(self.server.root()).unwrap().count(), 1);
    }
}

#[test]
fn lftp_continues_an_upload_at_its_size() {
    let site = Site::new();
    let inode = site.interrupt();
    let script = format!(
        "set cmd:fail-exit yes; set net:max-retries 1; open {}\ndebug 9\nput -c source -o copy\n",
        site.server.url("")
    );
    let client = Client::new("lftp")
        .args(["--norc", "-f", "/dev/stdin"])
        .env("HOME", site.place.path().as_os_str())
        .directory(site.place.path())
        .input(script)
        .run()
        .unwrap();
    site.continued(inode, &client);
    let said = client.to_string();
    assert!(said.contains(&format!("REST {ARRIVED}")), "{said}");
}

#[test]
fn curl_continues_an_upload_at_its_size() {
    let site = Site::new();
    let inode = site.interrupt();
    let client = Client::new("curl")
        .args([
            "--silent",
            "--verbose",
            "--continue-at",
            "-",
            "--upload-file",
        ])
        .arg(site.local("source"))
        .arg(site.server.url("copy"))
        .run()
        .unwrap();
    site.continued(inode, &client);
    let said = client.to_string();
    assert!(
        said.contains("SIZE copy") && said.contains("APPE copy"),
        "{said}"
    );
}

#[test]
fn globus_url_copy_restarts_a_third_party_copy() {
    let large = 100_000_000;
    for mode in [&[][..], &["-p", "4"]] {
        let site = Site::new();
        content::write(&site.remote("large"), large).unwrap();
        chown_to_nobody(&site.remote("large")).unwrap();
        // The control channel of the destination breaks, once.
        let relay = Relay::start(site.server.address(), "150").unwrap();
        let to = format!("ftp://{}{}", relay.address(), site.server.path("copy"));
        let client = Client::new("globus-url-copy")
            .args(["-rst", "-rst-retries", "5", "-rst-interval", "1"])
            .args(mode.iter().copied())
            .args([site.server.url("large"), to])
            .run()
            .unwrap();
        assert!(client.status.success(), "{client}\n{}", site.server.log());
        assert!(relay.has_broken());
        content::same(&site.remote("large"), &site.remote("copy")).unwrap();
        assert_eq!(fs::read_dir(site.server.root()).unwrap().count(), 2);
    }
}
