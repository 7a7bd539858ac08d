//! The administration interface of the real program: the status, actions, and clients that must not have them.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Running, fails, program, public_directory};

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
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_true(&status) {
                return status;
            }
            assert!(begun.elapsed() < TIME_LIMIT, "never {what}: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
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
        Client::new(self.server.address)
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

/// A client of files.
struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    fn new(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).expect("connected");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        let replies = BufReader::new(stream.try_clone().expect("a handle"));
        let mut client = Self { stream, replies };
        assert!(client.reply().starts_with("220"));
        client.expect("USER anonymous", "331");
        client.expect("PASS x", "230");
        client.expect("TYPE I", "200");
        client
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn expect(&mut self, line: &str, code: &str) -> String {
        self.stream
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("sent");
        let reply = self.reply();
        assert!(reply.starts_with(code), "{line}: {reply}");
        reply
    }

    /// Begins to receive a file, and returns the data connection.
    fn retrieve(&mut self, name: &str) -> TcpStream {
        let reply = self.expect("EPSV", "229");
        let port = reply.rsplit('|').nth(1).expect("a port");
        let port: u16 = port.parse().expect("a port");
        let address = (self.stream.peer_addr().expect("connected").ip(), port);
        let data = TcpStream::connect(address).expect("connected");
        self.expect(&format!("RETR {name}"), "150");
        data
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn list<'a>(status: &'a Value, name: &str) -> &'a Vec<Value> {
    status[name].as_array().expect(name)
}

#[test]
fn the_status_shows_a_transfer_that_moves() {
    let site = Site::new(&[]);
    let mut client = site.client();
    client.expect("SITE TASKID task-7", "250");
    client.expect("SITE CLIENTINFO appname=test;appver=1;", "250");
    let mut data = client.retrieve("large");
    let first = site.wait_for("a transfer that moves", |status| {
        let transfers = list(status, "transfers");
        transfers
            .first()
            .is_some_and(|one| one["bytes"].as_u64() > Some(0))
    });
    let transfer = &list(&first, "transfers")[0];
    assert_eq!(transfer["total_bytes"], LARGE);
    assert_eq!(transfer["verb"], "RETR");
    assert_eq!(transfer["direction"], "send");
    assert_eq!(transfer["path"], "/large");
    assert_eq!(transfer["state"], "running");
    assert_eq!(transfer["user"], "anonymous");
    assert_eq!(transfer["task_id"], "task-7");
    assert_eq!(transfer["channels"], 1);
    assert_eq!(transfer["data_peers"][0], "127.0.0.1");
    let session = &list(&first, "sessions")[0];
    assert_eq!(session["id"], transfer["session"]);
    assert_eq!(session["activity"], "transfer");
    assert_eq!(session["read_only"], true);
    assert_eq!(session["client"], "appname=test;appver=1;");
    assert_eq!(first["counts"]["transfers_running"], 1);
    let before = transfer["bytes"].as_u64().expect("a number");
    let mut piece = vec![0; 64 << 20];
    data.read_exact(&mut piece).expect("received");
    site.wait_for("more bytes", |status| {
        list(status, "transfers")[0]["bytes"].as_u64() > Some(before + (32 << 20))
    });
    std::io::copy(&mut data, &mut std::io::sink()).expect("received");
    assert!(client.reply().starts_with("226"));
    let last = site.wait_for("an idle session", |status| {
        list(status, "transfers").is_empty() && list(status, "sessions")[0]["activity"] == "idle"
    });
    assert_eq!(last["server"]["phase"], "serving");
    assert_eq!(last["server"]["pid"], site.server.id());
    let keys = list(&last, "configuration");
    let anonymous = keys
        .iter()
        .find(|key| key["key"] == "anonymous")
        .expect("a key");
    assert_eq!(anonymous["value"], "true");
    assert_eq!(anonymous["source"], "file");
    client.expect("QUIT", "221");
    site.wait_for("no session", |status| list(status, "sessions").is_empty());
}

#[test]
fn a_transfer_and_a_session_can_be_ended() {
    let site = Site::new(&[]);
    let mut client = site.client();
    let _data = client.retrieve("large");
    let status = site.wait_for("a transfer", |status| !list(status, "transfers").is_empty());
    let transfer = &list(&status, "transfers")[0]["id"];
    let (code, answer) = site.post(&format!("/api/transfers/{transfer}/end"), "{}");
    assert_eq!((code, &answer["ok"]), (200, &Value::Bool(true)), "{answer}");
    let reply = client.reply();
    assert!(
        reply.starts_with("426") && reply.contains("ended by the administrator"),
        "{reply}"
    );
    client.expect("NOOP", "200");
    let session = &list(&status, "sessions")[0]["id"];
    let (code, answer) = site.post(&format!("/api/sessions/{session}/end"), "");
    assert_eq!((code, &answer["ok"]), (200, &Value::Bool(true)), "{answer}");
    let reply = client.reply();
    assert!(
        reply.starts_with("421") && reply.contains("administrator"),
        "{reply}"
    );
    site.wait_for("no session", |status| list(status, "sessions").is_empty());
    let (code, answer) = site.post("/api/sessions/999/end", "{}");
    assert_eq!((code, &answer["ok"]), (404, &Value::Bool(false)));
    let (_, log) = site.server.stop();
    for words in [
        "an administrator ends a transfer",
        "an administrator ends a session",
        "ended by the administrator",
    ] {
        assert!(log.contains(words), "{words} in {log}");
    }
}

#[test]
fn a_session_that_is_ended_during_a_transfer_gets_both_replies() {
    let site = Site::new(&[]);
    let mut client = site.client();
    let _data = client.retrieve("large");
    let kicked = site.told(&["kick", "--peer", "127.0.0.1"]);
    assert!(kicked.starts_with("ended session "), "{kicked}");
    assert!(client.reply().starts_with("426"));
    assert!(client.reply().starts_with("421"));
    assert_eq!(client.reply(), "", "the connection is closed");
    let nothing = site.tell(&["kick", "--user", "anonymous"]);
    assert_eq!(nothing.status.code(), Some(1));
}

#[test]
fn draining_lets_transfers_finish_and_a_second_time_ends_the_server() {
    let site = Site::new(&[]);
    let (mut client, mut idle) = (site.client(), site.client());
    let mut data = client.retrieve("large");
    assert_eq!(site.get("/readyz").0, 200);
    let (code, answer) = site.post("/api/drain", "{}");
    assert_eq!((code, &answer["ok"]), (200, &Value::Bool(true)), "{answer}");
    assert_eq!(site.get("/readyz").0, 503);
    assert_eq!(site.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(site.status()["server"]["phase"], "draining");
    assert!(idle.reply().starts_with("421"));
    let begun = Instant::now();
    while TcpStream::connect(site.server.address).is_ok() {
        assert!(begun.elapsed() < TIME_LIMIT, "the listener is still there");
    }
    std::io::copy(&mut data, &mut std::io::sink()).expect("received");
    assert!(client.reply().starts_with("226"));
    let told = site.told(&["drain"]);
    assert!(told.starts_with("draining"), "{told}");
    let (code, log) = site.server.ended();
    assert_eq!(code, 0, "{log}");
}

#[test]
fn a_reload_tells_what_took_effect() {
    let site = Site::with("idle-timeout = 700\n", &[]);
    site.configure("idle-timeout = 800\nmovers = 7\n");
    let (code, answer) = site.post("/api/reload", "{}");
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["ok"], true);
    assert_eq!(answer["applied"], serde_json::json!(["idle-timeout"]));
    assert_eq!(answer["needs_restart"], serde_json::json!(["movers"]));
    let status = site.status();
    let value = |key: &str| {
        let mut keys = list(&status, "configuration").iter();
        keys.find(|one| one["key"] == key).expect("a key")["value"].clone()
    };
    assert_eq!(
        (value("idle-timeout"), value("movers")),
        ("800".into(), "1024".into())
    );
    site.configure("idle-timeout = 800\n");
    assert_eq!(site.told(&["reload"]), "no key has changed\n");
    site.configure("idle-timeout = 900\nmovers = 8\n");
    let told = site.told(&["reload"]);
    assert_eq!(told, "applied: idle-timeout\nneeds a restart: movers\n");
    site.configure("idle-timeout = 'soon'\n");
    let wrong = site.tell(&["reload"]);
    let stdout = String::from_utf8(wrong.stdout).expect("UTF-8");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        stdout.contains("error: ") && stdout.contains("line 2"),
        "{stdout}"
    );
    let (code, answer) = site.post("/api/reload", "{}");
    assert_eq!(
        (code, &answer["ok"]),
        (422, &Value::Bool(false)),
        "{answer}"
    );
}

#[test]
fn the_level_of_the_log_can_be_changed_until_the_next_reload() {
    let mut site = Site::new(&[]);
    let (code, answer) = site.post("/api/log-level", "{\"level\": \"gridhaul_server=loud\"}");
    assert_eq!(
        (code, &answer["ok"]),
        (422, &Value::Bool(false)),
        "{answer}"
    );
    assert_eq!(site.post("/api/log-level", "{}").0, 400);
    assert_eq!(site.status()["server"]["log_level"], "info");
    let (code, answer) = site.post("/api/log-level", "{\"level\": \"debug\"}");
    assert_eq!(code, 200, "{answer}");
    assert_eq!(site.status()["server"]["log_level"], "debug");
    let mut client = site.client();
    client.expect("NOOP", "200");
    site.server.log_until("Noop");
    let (_, answer) = site.post("/api/reload", "{}");
    assert_eq!(answer["applied"], serde_json::json!(["log-level"]));
    assert_eq!(site.status()["server"]["log_level"], "info");
}

#[test]
fn pages_of_other_sites_get_nothing_and_do_nothing() {
    let site = Site::new(&[]);
    for host in [
        "Host: evil.example",
        "Host: 127.0.0.1.evil.example",
        "Host: evil.example:80",
    ] {
        for path in ["/", "/status.json", "/metrics", "/healthz"] {
            let (code, _) = site.ask(&format!("GET {path}"), &[host], "");
            assert_eq!(code, 421, "{host} {path}");
        }
    }
    let json = "Content-Type: application/json";
    let own = format!("Origin: http://{}", site.address);
    for (headers, expected) in [
        (vec![json, "Origin: http://evil.example"], 403),
        (vec![json, "Origin: null"], 403),
        (vec![json, "Sec-Fetch-Site: cross-site"], 403),
        (vec!["Content-Type: text/plain"], 415),
        (vec!["Content-Type: application/x-www-form-urlencoded"], 415),
        (vec![], 415),
        (vec![json, &own, "Sec-Fetch-Site: same-origin"], 404),
    ] {
        let (code, _) = site.ask("POST /api/sessions/999/end", &headers, "{}");
        assert_eq!(code, expected, "{headers:?}");
    }
    assert_eq!(site.get("/api/drain").0, 405);
    assert_eq!(site.ask("DELETE /status.json", &[], "").0, 405);
    let (code, _) = site.ask("GET /status.json", &["Sec-Fetch-Site: cross-site"], "");
    assert_eq!(code, 403);
    assert_eq!(site.get("/readyz").0, 200, "nothing was drained");
}

#[test]
fn requests_are_small() {
    let site = Site::new(&[]);
    let long = format!("X-Long: {}", "x".repeat(64 * 1024));
    assert_eq!(site.ask("GET /healthz", &[&long], "").0, 431);
    let json = ["Content-Type: application/json"];
    let (code, _) = site.ask("POST /api/log-level", &json, &"x".repeat(5000));
    assert_eq!(code, 413);
    assert_eq!(site.get("/healthz").0, 200);
}

#[test]
fn clients_that_are_idle_or_do_not_read_do_not_keep_the_administrator_out() {
    let site = Site::new(&[]);
    let idle: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(site.address).expect("connected"))
        .collect();
    let deaf: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(site.address).expect("connected");
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", site.address);
            let _ = stream.write_all(request.repeat(200).as_bytes());
            stream
        })
        .collect();
    let begun = Instant::now();
    let unix = UnixStream::connect(site.socket()).expect("connected");
    assert_eq!(exchange(unix, "GET /healthz", &["Host: x"], "").0, 200);
    assert_eq!(site.get("/healthz").0, 200, "strangers make room");
    let summary = site.told(&["status"]);
    assert!(summary.contains("serving"), "{summary}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop((idle, deaf));
}

/// What curl prints as another user, and the status.
fn curl_of_another_user(arguments: &[&str]) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"])
        .args(["curl", "-s", "-m", "20", "-w", "%{http_code}"])
        .args(arguments)
        .output()
        .expect("started");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn another_user_of_this_machine_gets_no_data() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can act as another user");
        return;
    }
    let site = Site::new(&[]);
    assert_eq!(site.get("/status.json").0, 200);
    let get = curl_of_another_user;
    let url = |path: &str| format!("http://{}{path}", site.address);
    let refused = get(&[&url("/status.json")]);
    assert!(
        refused.contains("not for account") && refused.ends_with("403"),
        "{refused}"
    );
    let json = "Content-Type: application/json";
    let refused = get(&["-H", json, "-d", "{}", &url("/api/drain")]);
    assert!(refused.ends_with("403"), "{refused}");
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        let open = get(&[&url(path)]);
        assert!(open.ends_with("200"), "{path}: {open}");
    }
    let socket = site.socket();
    let all = Permissions::from_mode(0o755);
    fs::set_permissions(site.private.path(), all).expect("set");
    let nothing = get(&["--unix-socket", text(&socket), "http://x/status.json"]);
    assert_eq!(nothing, "000", "the kernel refuses the connection");
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("set");
    let refused = get(&["--unix-socket", text(&socket), "http://x/status.json"]);
    assert!(
        refused.contains("not for account") && refused.ends_with("403"),
        "{refused}"
    );
    assert_eq!(site.get("/readyz").0, 200, "nothing was drained");
}

/// A user with a session on this machine may have the server connect to its own ports. The account of that connection is
/// the one that started the server, if that is not root.
#[test]
fn the_server_itself_is_no_administrator() {
    let program = env!("CARGO_BIN_EXE_gridhaul-server");
    let nobody = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
    let can_run = Command::new("setpriv")
        .args(nobody)
        .args([program, "--version"])
        .output();
    if !can_run.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: only root can start a server as another user, who must reach the program"
        );
        return;
    }
    let root = public_directory();
    let mut request =
        b"POST /api/drain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                        Content-Length: 2\r\n\r\n{}"
            .to_vec();
    // The connection stays established, because the other end does not read that much.
    request.resize(64 << 20, b' ');
    fs::write(root.path().join("request"), request).expect("written");
    let mut server = Running::of(
        Command::new("setpriv")
            .args(nobody)
            .args([
                program,
                "--anonymous",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .args(["--admin-socket", "none", "--log-level", "debug", "--root"])
            .arg(root.path()),
    );
    let mut line = String::new();
    server.stdout.read_line(&mut line).expect("a line");
    let address = line.trim_end().strip_prefix("Administration at http://");
    let address: SocketAddr = address.expect("an address").parse().expect("an address");
    let mut client = Client::new(server.address);
    client.expect(&format!("EPRT |1|127.0.0.1|{}|", address.port()), "200");
    client.expect("RETR request", "150");
    server.log_until("an action was refused");
    let get = |path: &str| {
        let stream = TcpStream::connect(address).expect("connected");
        exchange(stream, &format!("GET {path}"), &["Host: localhost"], "").0
    };
    assert_eq!(get("/readyz"), 200, "nothing was drained");
}

#[test]
fn a_secret_is_needed_where_one_is_configured() {
    let private = tempfile::tempdir().expect("a directory");
    let token = private.path().join("token");
    fs::write(&token, "correct horse battery\n").expect("written");
    fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("set");
    let site = Site::new(&["--admin-token", text(&token)]);
    let get = |headers: &[&str]| site.ask("GET /status.json", headers, "").0;
    assert_eq!(get(&[]), 401);
    assert_eq!(get(&["Authorization: Bearer wrong horse battery"]), 401);
    assert_eq!(get(&["Authorization: Bearer correct horse battery"]), 200);
    assert_eq!(get(&["Cookie: gridhaul-admin=correct horse battery"]), 401);
    assert_eq!(site.get("/healthz").0, 200);
    let (code, form) = site.get("/");
    assert!(code == 401 && form.contains("<form"), "{form}");
    let form = "Content-Type: application/x-www-form-urlencoded";
    assert_eq!(site.ask("POST /login", &[form], "token=wrong").0, 401);
    let foreign = ["Origin: http://evil.example", form];
    assert_eq!(
        site.ask("POST /login", &foreign, "token=correct+horse+battery")
            .0,
        403
    );
    let mut stream = TcpStream::connect(site.address).expect("connected");
    let body = "token=correct+horse+battery";
    write!(
        stream,
        "POST /login HTTP/1.1\r\nHost: {}\r\n{form}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        site.address,
        body.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: "));
    let cookie = cookie.unwrap_or_else(|| panic!("{answer}"));
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().expect("a value"));
    assert_eq!(get(&[&cookie]), 200);
    assert!(
        site.told(&["status"]).contains("serving"),
        "the socket needs no secret"
    );
    assert_eq!(site.ask("POST /logout", &[&cookie], "").0, 303);
    assert_eq!(get(&[&cookie]), 401);
}

#[test]
fn an_address_of_the_network_needs_protection() {
    let root = public_directory();
    let refused = fails(
        program()
            .args([
                "--anonymous",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "0.0.0.0:0",
                "--root",
            ])
            .arg(root.path()),
    );
    assert!(
        refused.contains("admin-listen 0.0.0.0:0 is not an address of this machine alone"),
        "{refused}"
    );
}

#[test]
fn the_terminal_shows_what_the_server_does() {
    let site = Site::new(&[]);
    fs::write(site.root.path().join("a"), "x").expect("written");
    let mut client = site.client();
    let _data = client.retrieve("large");
    let begun = Instant::now();
    let summary = loop {
        let summary = site.told(&["status"]);
        if summary.contains("/large") {
            break summary;
        }
        assert!(begun.elapsed() < TIME_LIMIT, "{summary}");
    };
    assert!(
        summary.contains("RETR") && summary.contains("256M"),
        "{summary}"
    );
    let json: Value = serde_json::from_str(&site.told(&["status", "--json"])).expect("JSON");
    assert_eq!(list(&json, "transfers").len(), 1);
    let frame = site.told(&["top", "--once"]);
    assert!(
        frame.contains("/large") && !frame.contains('\u{1b}'),
        "{frame}"
    );
    assert!(
        frame.lines().all(|line| line.chars().count() <= 80),
        "{frame}"
    );
    let id = list(&json, "sessions")[0]["id"].to_string();
    assert_eq!(site.told(&["kick", &id]), format!("ended session {id}\n"));
    let config = site.private.path().join("config.toml");
    let socket = site.socket();
    let line = format!("anonymous = true\nadmin-socket = {:?}\n", text(&socket));
    fs::write(&config, line).expect("written");
    let output = program()
        .args(["status", "--config"])
        .arg(&config)
        .output()
        .expect("started");
    assert!(output.status.success());
    let missing = fails(program().args(["status", "--socket", "/nonexistent/admin.sock"]));
    assert!(
        missing.contains("cannot reach the server at /nonexistent/admin.sock"),
        "{missing}"
    );
}

#[test]
fn a_second_server_does_not_take_the_socket_of_the_first() {
    let site = Site::new(&[]);
    let socket = site.socket();
    let refused = fails(
        program()
            .args([
                "--anonymous",
                "--listen",
                "127.0.0.1:0",
                "--admin-socket",
                text(&socket),
                "--root",
            ])
            .arg(site.root.path()),
    );
    assert!(
        refused.contains("another server listens there"),
        "{refused}"
    );
    assert!(site.told(&["status"]).contains("serving"));
}

/// A terminal of `script`, in which a key or a signal ends `top`.
#[test]
fn top_restores_the_terminal() {
    let site = Site::new(&[]);
    let shell = format!(
        "stty -g > {0}/before; {1} top --socket {2} ; stty -g > {0}/after",
        text(site.private.path()),
        env!("CARGO_BIN_EXE_gridhaul-server"),
        text(&site.socket()),
    );
    let mut child = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("script");
    let mut stdout = child.stdout.take().expect("piped");
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains("SESSION USER") {
        let bytes = stdout.read(&mut piece).expect("read");
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend(&piece[..bytes]);
    }
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"q")
        .expect("typed");
    stdout.read_to_end(&mut shown).expect("read");
    assert!(child.wait().expect("ended").success());
    let shown = String::from_utf8_lossy(&shown);
    assert!(
        shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"),
        "{shown}"
    );
    let read = |name: &str| fs::read_to_string(site.private.path().join(name)).expect("written");
    assert_eq!(read("before"), read("after"));
}

#[test]
fn a_certificate_of_the_right_subject_is_let_in_over_tls() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/security/samples");
    let private = tempfile::tempdir().expect("a directory");
    let key = private.path().join("key");
    fs::copy(samples.join("host.key"), &key).expect("copied");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("set");
    let (cert, ca) = (samples.join("host.pem"), samples.join("ca.pem"));
    let start = |subject: &str| {
        let root = public_directory();
        let mut server = Running::start(
            root.path(),
            &[
                "--anonymous",
                "--admin-listen",
                "0.0.0.0:0",
                "--admin-socket",
                "none",
                "--admin-cert",
                text(&cert),
                "--admin-key",
                text(&key),
                "--admin-clients",
                text(&ca),
                "--admin-subjects",
                subject,
            ],
        );
        let mut line = String::new();
        server.stdout.read_line(&mut line).expect("a line");
        let address = line
            .trim_end()
            .strip_prefix("Administration at https://0.0.0.0:");
        let port = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        (server, port, root)
    };
    let get = |port: &str, path: &str, proof: &[&str]| {
        let output = Command::new("curl")
            .args([
                "-s",
                "-m",
                "20",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "--cacert",
                text(&ca),
            ])
            .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
            .args(proof)
            .arg(format!("https://localhost:{port}{path}"))
            .output()
            .expect("started");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let proof = ["--cert", text(&cert), "--key", text(&key)];
    let (_server, port, _root) = start("/DC=test/O=Samples/CN=localhost");
    assert_eq!(get(&port, "/status.json", &proof), "200");
    assert_eq!(get(&port, "/status.json", &[]), "403");
    assert_eq!(get(&port, "/healthz", &[]), "200");
    let (_server, port, _root) = start("/DC=test/O=Samples/CN=Alice Smith");
    assert_eq!(get(&port, "/status.json", &proof), "403", "another subject");
}
