//! A server with a trust directory of its own, and the faults that its administrator and its clients make.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::Control;
use gridhaul_interop::{Client, Kind, Launch, Pki, Server, chown_to_nobody};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) struct Site {
    place: TempDir,
    /// Holds the only port of the server's range.
    _taken: TcpListener,
    pub(crate) server: Option<Server>,
    pub(crate) metrics: SocketAddr,
    /// The lists whose end is long past.
    stale: Vec<(String, Vec<u8>)>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let pki = Pki::shared().expect("certificates");
        let place = tempfile::tempdir().expect("a directory");
        let all = Permissions::from_mode(0o755);
        fs::set_permissions(place.path(), all).expect("set");
        let (root, trust) = (place.path().join("served"), place.path().join("trust"));
        fs::create_dir(&root).expect("made");
        fs::create_dir(&trust).expect("made");
        chown_to_nobody(&root).expect("owned");
        fs::write(root.join("file"), vec![7; 1 << 20]).expect("written");
        let stale = copy_trust(pki, &trust);
        let config = place.path().join("gridhaul.toml");
        fs::write(&config, "idle-timeout = 900\n").expect("written");
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let range = format!("{port}-{port}");
        // Users with certificates and anonymous ones.
        let mut launch = Launch::new(Kind::Gridhaul, &root).arg("--gsi");
        for (flag, path) in [
            ("--config", config),
            ("--trust", trust),
            ("--cert", pki.host_certificate()),
            ("--key", pki.host_key()),
            ("--gridmap", pki.gridmap()),
        ] {
            launch = launch.arg(flag).arg(path);
        }
        for (flag, value) in [
            ("--metrics-listen", "127.0.0.1:0"),
            ("--penalty-exempt", "127.0.0.0/8"),
            ("--port-range", &range),
        ] {
            launch = launch.arg(flag).arg(value);
        }
        let server = launch.start().expect("started");
        let metrics = server.metrics_address().expect("it tells the address");
        Self {
            place,
            _taken: taken,
            server: Some(server),
            metrics,
            stale,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("not ended yet")
    }

    /// The page after the server has taken its first inventory of certificates.
    pub(crate) fn whole_page(&self) -> String {
        let begun = Instant::now();
        loop {
            let page = page(self.metrics);
            if page.contains("gridhaul_certificate_expiry_timestamp_seconds{kind=\"host\"}") {
                return page;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{page}");
            std::thread::yield_now();
        }
    }

    /// Puts the stale lists where the server reads them.
    pub(crate) fn let_lists_expire(&self) {
        assert!(!self.stale.is_empty());
        for (name, content) in &self.stale {
            let new = self.place.path().join("new");
            fs::write(&new, content).expect("written");
            fs::rename(new, self.place.path().join("trust").join(name)).expect("renamed");
        }
    }

    /// Breaks the configuration file, and has it read again.
    pub(crate) fn reload_nonsense(&self) {
        let config = self.place.path().join("gridhaul.toml");
        fs::write(config, "idle-timeout = \"never\"\n").expect("written");
        let pid = i32::try_from(self.server().pid()).expect("a process number");
        let pid = Pid::from_raw(pid).expect("not zero");
        kill_process(pid, Signal::HUP).expect("sent");
    }

    /// Asks for data ports, of which none is free.
    pub(crate) fn exhaust_ports(&self) {
        let mut control = Control::anonymous(self.server().address()).expect("logged in");
        for _ in 0..3 {
            control.must("PASV", 425).expect("no port");
        }
    }

    /// Tries wrong passwords.
    pub(crate) fn guess_passwords(&self) {
        for _ in 0..5 {
            let mut control = Control::greeted(self.server().address()).expect("connected");
            control.must("USER nobody", 331).expect("a reply");
            control.must("PASS guess", 530).expect("a reply");
        }
    }

    /// Gets a file and stores one, so that there are transfers to count.
    pub(crate) fn transfer(&self) {
        // In active mode: the server has no data port.
        let url = |name| {
            let url = self.server().url(name).replace("gsiftp", "ftp");
            url.replace("localhost", "127.0.0.1")
        };
        let (file, null) = (
            self.place.path().join("served/file"),
            PathBuf::from("/dev/null"),
        );
        for (flag, path, url) in [
            ("--output", null, url("file")),
            ("--upload-file", file, url("new")),
        ] {
            let done = Client::new("curl")
                .args(["--silent", "--show-error", "--ftp-port", "127.0.0.1"])
                .arg(flag)
                .arg(path)
                .arg(url)
                .run()
                .expect("it runs");
            assert!(done.status.success(), "{done}");
        }
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        drop(self.server.take());
    }
}

/// The page of metrics of a server.
pub(crate) fn page(server: SocketAddr) -> String {
    let mut stream = TcpStream::connect(server).expect("connected");
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).expect("set");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    page.to_owned()
}

/// Copies the trust directory without the lists whose end is past, and returns these.
fn copy_trust(pki: &Pki, to: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut stale = Vec::new();
    for entry in fs::read_dir(pki.trust()).expect("a directory") {
        let path: PathBuf = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        let name = name.to_str().expect("UTF-8").to_owned();
        let content = fs::read(&path).expect("a file");
        if name.ends_with(".r0") && is_stale(&path) {
            stale.push((name, content));
        } else {
            fs::write(to.join(name), content).expect("written");
        }
    }
    stale
}

fn is_stale(list: &std::path::Path) -> bool {
    let done = Client::new("openssl")
        .args(["crl", "-noout", "-nextupdate", "-in"])
        .arg(list)
        .run()
        .expect("it runs");
    done.output().contains(" 2020 GMT")
}
