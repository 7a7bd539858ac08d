//! Clients that must have neither the status nor actions, and those that may.

use super::*;

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

#[test]
fn another_user_of_this_machine_gets_no_data() {
    if !has_root() {
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

/// Keeps as many connections open as the server lets it, and opens another one for each that the server closes.
const FLOOD: &str = "
import select, socket, sys
def connect():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((sys.argv[1], int(sys.argv[2])))
    return one
waiting, total = select.poll(), 0
all = {one.fileno(): one for one in (connect() for _ in range(300))}
for number in all: waiting.register(number, select.POLLIN | select.POLLHUP)
print('open', flush=True)
while True:
    for number, _ in waiting.poll():
        waiting.unregister(number)
        all.pop(number).close()
        one = connect()
        all[one.fileno()] = one
        waiting.register(one.fileno(), select.POLLIN | select.POLLHUP)
        total += 1
        if total == 1000: print('again', flush=True)
";

#[test]
fn another_user_who_opens_hundreds_of_connections_does_not_keep_administrators_out() {
    if !has_root() {
        return;
    }
    let private = tempfile::tempdir().expect("a directory");
    let token = private.path().join("token");
    fs::write(&token, "correct horse battery").expect("written");
    fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("set");
    for flags in [&[][..], &["--admin-token", text(&token)]] {
        let site = Site::new(flags);
        let mut flood = Command::new("setpriv")
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"])
            .args(["/usr/bin/python3", "-c", FLOOD])
            .args([
                site.address.ip().to_string(),
                site.address.port().to_string(),
            ])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = std::io::BufReader::new(flood.stdout.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("again") {
            assert!(lines.read_line(&mut said).expect("read") > 0, "{said}");
        }
        let bearer = "Authorization: Bearer correct horse battery";
        for _ in 0..50 {
            let (code, answer) = site.ask("GET /status.json", &[bearer], "");
            assert_eq!(code, 200, "{answer}");
        }
        assert_eq!(site.get("/").0, 200);
        let summary = site.told(&["status"]);
        assert!(summary.contains("serving"), "{summary}");
        flood.kill().expect("its parent");
        flood.wait().expect("ended");
    }
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
        skipped("only root can start a server as another user, who must reach the program");
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
    let mut client = Client::log_in(&server);
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
    assert_eq!(
        site.get("/status.json?token=correct%20horse%20battery").0,
        401
    );
    assert_eq!(site.get("/healthz").0, 200);
    let (code, page) = site.get("/");
    assert!(code == 200 && page.contains("id=\"login\""), "{page}");
    let json = "Content-Type: application/json";
    assert_eq!(site.ask("POST /api/drain", &[json], "{}").0, 401);
    let bearer = "Authorization: Bearer correct horse battery";
    let (code, _) = site.ask("POST /api/sessions/999/end", &[json, bearer], "{}");
    assert_eq!(code, 404, "there is no such session");
    assert!(
        site.told(&["status"]).contains("serving"),
        "the socket needs no secret"
    );
    let mut stream = TcpStream::connect(site.address).expect("connected");
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        site.address
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(!answer.to_lowercase().contains("set-cookie"), "{answer}");
    let (_, log) = site.server.stop();
    assert!(log.contains("a wrong secret was shown"), "{log}");
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
