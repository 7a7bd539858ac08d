//! Administrator settings for files of transfers: the order of writes, holes, and
//! direct I/O.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gridhaul_interop::{Client, Kind, Launch, Server, chown_to_nobody, content};
use tempfile::TempDir;

/// Several blocks for several channels, and not a multiple of any block size.
const SIZE: u64 = 20_000_001;

/// Stream mode, and MODE E with small and large blocks.
const MODES: [&[&str]; 3] = [&[], &["-p", "4"], &["-p", "16", "-bs", "65536"]];

/// A server with these settings, and a directory for the client.
struct Site {
    place: TempDir,
    server: Server,
}

impl Site {
    fn new(flags: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let root = place.path().join("served");
        fs::create_dir(&root).unwrap();
        chown_to_nobody(&root).unwrap();
        let launch = Launch::new(Kind::Gridhaul, &root);
        let launch = flags.iter().fold(launch, |launch, flag| launch.arg(flag));
        let server = launch.start().unwrap();
        Self { place, server }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn remote(&self, name: &str) -> PathBuf {
        self.server.root().join(name)
    }

    fn local_url(&self, name: &str) -> String {
        format!("file://{}", self.local(name).display())
    }

    fn copy(&self, mode: &[&str], source: &str, destination: &str) {
        let copied = Client::new("globus-url-copy")
            .args(mode.iter().copied().chain([source, destination]))
            .run()
            .unwrap();
        assert!(copied.status.success(), "{copied}\n{}", self.server.log());
    }

    /// Puts a local file, gets it back and copies it within the server, with a comparison after each step.
    fn go_round(&self, mode: &[&str]) {
        let there = self.server.url("there");
        self.copy(mode, &self.local_url("source"), &there);
        content::same(&self.local("source"), &self.remote("there")).unwrap();
        self.copy(mode, &there, &self.local_url("back"));
        content::same(&self.local("source"), &self.local("back")).unwrap();
        self.copy(mode, &there, &self.server.url("again"));
        content::same(&self.local("source"), &self.remote("again")).unwrap();
    }
}

/// The number of bytes that the file system has allocated for a file.
fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn files_are_complete_with_every_setting() {
    let together = [
        "--ordered-writes",
        "--sparse-files",
        "--sync-files",
        "close",
    ];
    let treatments: [&[&str]; 5] = [
        &["--atomic-uploads", "*"],
        &["--ordered-writes"],
        &["--sparse-files"],
        &["--sync-files", "data"],
        &together,
    ];
    for flags in treatments {
        let site = Site::new(flags);
        content::write(&site.local("source"), SIZE).unwrap();
        for mode in MODES {
            site.go_round(mode);
        }
    }
}

#[test]
fn holes_stay_holes() {
    let site = Site::new(&["--sparse-files"]);
    let source = File::create(site.local("source")).unwrap();
    source.set_len(5 * SIZE).unwrap();
    for mark in [1_000_000, 3 * SIZE] {
        source.write_all_at(b"mark", mark).unwrap();
    }
    for mode in MODES {
        // An existing file is truncated first; otherwise the holes would keep its content.
        content::write(&site.remote("there"), SIZE).unwrap();
        chown_to_nobody(&site.remote("there")).unwrap();
        site.go_round(mode);
        for copy in ["there", "again"] {
            let bytes = allocated(&site.remote(copy));
            assert!(bytes < SIZE / 10, "{mode:?}: {bytes} bytes for {copy}");
        }
    }
}

#[test]
fn zeros_that_are_stored_into_a_file_replace_its_bytes() {
    let site = Site::new(&["--sparse-files"]);
    content::write(&site.remote("there"), SIZE).unwrap();
    chown_to_nobody(&site.remote("there")).unwrap();
    content::write(&site.local("expected"), SIZE).unwrap();
    let expected = File::options().write(true).open(site.local("expected"));
    let zeros = vec![0; 3_000_000];
    expected.unwrap().write_all_at(&zeros, 5_000_001).unwrap();
    let source = File::create(site.local("zeros")).unwrap();
    source.set_len(SIZE).unwrap();
    for mode in MODES {
        let options = [mode, &["-off", "5000001", "-len", "3000000"]].concat();
        let there = site.server.url("there");
        site.copy(&options, &site.local_url("zeros"), &there);
        content::same(&site.local("expected"), &site.remote("there")).unwrap();
    }
}
