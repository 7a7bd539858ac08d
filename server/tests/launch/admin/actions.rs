//! The status, and what administrators do.

use super::*;

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

/// The client closes the connection while the transfer ends, as globus-url-copy does.
#[test]
fn the_log_names_the_administrator_who_ended_a_session_during_a_transfer() {
    let site = Site::new(&[]);
    for _ in 0..10 {
        let mut client = site.client();
        let data = client.retrieve("large");
        let kicked = site.told(&["kick", "--peer", "127.0.0.1"]);
        assert!(kicked.starts_with("ended session "), "{kicked}");
        drop((data, client));
        site.wait_for("no session", |status| list(status, "sessions").is_empty());
    }
    let (_, log) = site.server.stop();
    assert!(!log.contains("the client closed the connection"), "{log}");
    let named = log.matches("reason=\"ended by the administrator\"").count();
    assert!(named >= 10, "{log}");
}

#[test]
fn draining_lets_transfers_finish_and_a_second_time_ends_the_server() {
    let site = Site::new(&[]);
    let (mut client, mut idle) = (site.client(), site.client());
    let mut data = client.retrieve("large");
    assert_eq!(site.get("/readyz").0, 200);
    let (code, answer) = site.post("/api/drain", "{}");
    assert_eq!((code, &answer["ok"]), (200, &Value::Bool(true)), "{answer}");
    assert_eq!(answer["is_ending"], false);
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
    assert!(told.starts_with("draining since 20"), "{told}");
    assert!(told.contains("left; the server ends now"), "{told}");
    let (code, log) = site.server.ended();
    assert_eq!(code, 0, "{log}");
}

#[test]
fn metrics_tell_what_each_process_takes() {
    let site = Site::new(&[]);
    let (_, page) = site.get("/metrics");
    for role in ["server", "front", "login"] {
        for name in ["cpu_seconds_total", "resident_memory_bytes"] {
            let line = format!("gridhaul_process_{name}{{role=\"{role}\"}} ");
            assert!(page.contains(&line), "{line} in {page}");
        }
    }
}

#[test]
fn the_log_says_that_there_are_no_anonymous_users() {
    let private = tempfile::tempdir().expect("a directory");
    let (root, users) = (public_directory(), private.path().join("users"));
    fs::write(&users, "# none\n").expect("written");
    let mut server = Running::start(
        root.path(),
        &["--passwords", text(&users), "--admin-socket", "none"],
    );
    let replies = server.dialogue(&["USER anonymous", "PASS x@"]);
    assert!(replies[2].starts_with("530"), "{replies:?}");
    assert!(
        !replies[2].contains("anonymous"),
        "strangers learn nothing: {replies:?}"
    );
    server.log_until("the setting anonymous is off");
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
        ("800s".into(), "1024".into())
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
