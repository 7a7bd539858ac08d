//! The commands of the terminal.

use super::*;

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
