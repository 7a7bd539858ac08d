//! The administration interface of the real program.

mod access;
mod actions;
mod certificates;
mod socket;
mod terminal;

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::program::{Running, fails, has_root, program, public_directory, text, wait_for};
use gridhaul_skip::skipped;

const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The bytes of the file `large`: more than buffers take.
const LARGE: u64 = 256 << 20;

/// A server with both doors of the administration.
struct Site {
    root: TempDir,
    private: TempDir,
    server: Running,
    address: SocketAddr,
}

impl Site {
    fn new(flags: &[&str]) -> Self {
        Self::with("", flags)
    }

    /// With more lines in the configuration file.
    fn with(file: &str, flags: &[&str]) -> Self {
        let (root, private) = (
            public_directory(),
            tempfile::tempdir().expect("a directory"),
        );
        let large = File::create(root.path().join("large")).expect("made");
        large.set_len(LARGE).expect("set");
        let config = private.path().join("config.toml");
        fs::write(&config, format!("anonymous = true\n{file}")).expect("written");
        let socket = private.path().join("admin.sock");
        let mut all = vec![
            "--admin-listen",
            "127.0.0.1:0",
            "--config",
            text(&config),
            "--admin-socket",
            text(&socket),
        ];
        all.extend(flags);
        let mut server = Running::start(root.path(), &all);
        let mut line = String::new();
        server.stdout.read_line(&mut line).expect("a line");
        let address = line.strip_prefix("Administration at http://");
        let address = address.unwrap_or_else(|| panic!("{line}"));
        let address = address.trim_end().parse().expect("an address");
        Self {
            root,
            private,
            server,
            address,
        }
    }

    fn socket(&self) -> PathBuf {
        self.private.path().join("admin.sock")
    }

    fn configure(&self, file: &str) {
        let config = self.private.path().join("config.toml");
        fs::write(config, format!("anonymous = true\n{file}")).expect("written");
    }

    /// The answer to a request over TCP, with these header lines.
    fn ask(&self, line: &str, headers: &[&str], body: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        let host = format!("Host: {}", self.address);
        let has_host = headers.iter().any(|header| header.starts_with("Host:"));
        let mut all = headers.to_vec();
        if !has_host {
            all.push(&host);
        }
        exchange(stream, line, &all, body)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), &[], "")
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let json = ["Content-Type: application/json"];
        let (status, answer) = self.ask(&format!("POST {path}"), &json, body);
        let answer = serde_json::from_str(&answer);
        (status, answer.unwrap_or(Value::Null))
    }

    fn status(&self) -> Value {
        let (status, document) = self.get("/status.json");
        assert_eq!(status, 200, "{document}");
        serde_json::from_str(&document).expect("JSON")
    }

    /// Asks for the status until something about it is true.
    fn wait_for(&self, what: &str, is_true: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || self.status(), is_true)
    }

    /// The output of a command that talks to the server.
    fn tell(&self, words: &[&str]) -> Output {
        let mut command = program();
        let command = command.args(words).arg("--socket").arg(self.socket());
        command.output().expect("started")
    }

    /// As [`Site::tell`], for a command that works.
    fn told(&self, words: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.tell(words);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("UTF-8")
    }

    fn client(&self) -> Client {
        Client::log_in(&self.server)
    }
}

/// Sends a request, and returns the status and the body.
fn exchange(
    mut stream: impl Read + Write,
    line: &str,
    headers: &[&str],
    body: &str,
) -> (u16, String) {
    let length = body.len();
    let mut request =
        format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    request.push_str(&format!("\r\n{body}"));
    // The server may refuse before it has read everything.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {answer:?}"));
    (
        status,
        format!("{body}{}", if status == 401 { head } else { "" }),
    )
}

fn list<'a>(status: &'a Value, name: &str) -> &'a Vec<Value> {
    status[name].as_array().expect(name)
}
