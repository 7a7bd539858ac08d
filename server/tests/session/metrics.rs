//! What a scraper gets, read by a parser of its own.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::gsi;
use crate::served::Served;

const TIME_LIMIT: Duration = Duration::from_secs(20);

fn served() -> Served {
    Served::with(|settings| {
        settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
    })
}

fn address(served: &Served) -> SocketAddr {
    served.server().metrics_address().expect("an address")
}

/// Sends a request, and returns the status line and the body.
fn ask(served: &Served, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address(served)).expect("connected");
    stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
    let length = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{head}");
    let status = head.lines().next().unwrap_or_default();
    (status.to_owned(), body.to_owned())
}

/// Every sample by its name with labels. Names have a type before their first sample, counters end in
/// `_total`, and nothing comes twice.
pub(crate) fn scrape(served: &Served) -> BTreeMap<String, f64> {
    let (status, body) = ask(served, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(body.ends_with('\n'));
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (word, name) = (words.next(), words.next().expect("a name"));
            let rest = words.next().expect("a text");
            match word {
                Some("TYPE") => assert_eq!(types.insert(name, rest), None, "{line}"),
                Some("HELP") => assert!(rest.ends_with('.'), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (key, value) = line.rsplit_once(' ').expect("a value");
        let name = key.split('{').next().expect("a name");
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .filter(|family| types.get(family) == Some(&"histogram"))
            .unwrap_or(name);
        let kind = types.get(family).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(*kind == "counter", name.ends_with("_total"), "{line}");
        let value = value.parse().expect("a number");
        assert_eq!(samples.insert(key.to_owned(), value), None, "{line}");
    }
    samples
}

/// Scrapes until a sample has a value.
fn wait_for(served: &Served, key: &str, value: f64) {
    let begun = Instant::now();
    while scrape(served).get(key) != Some(&value) {
        assert!(begun.elapsed() < TIME_LIMIT, "{key} never was {value}");
    }
}

#[test]
fn transfers_are_seen_while_they_run_and_counted_when_they_end() {
    const BYTES: usize = 64 << 20;
    let served = served();
    let file = std::fs::File::create(served.path("large")).expect("created");
    file.set_len(BYTES as u64).expect("set");
    let before = scrape(&served);
    assert_eq!(before["gridhaul_sessions_open"], 0.0);
    assert_eq!(before["gridhaul_transfers_running"], 0.0);

    let mut client = served.anonymous();
    let mut data = client.passive();
    client.expect("RETR large", 150);
    wait_for(&served, "gridhaul_transfers_running", 1.0);
    let during = scrape(&served);
    assert_eq!(during["gridhaul_sessions_open"], 1.0);
    assert_eq!(during["gridhaul_movers_busy{direction=\"send\"}"], 1.0);
    assert_eq!(during["gridhaul_movers_busy{direction=\"receive\"}"], 0.0);
    let mut content = Vec::new();
    data.read_to_end(&mut content).expect("received");
    assert_eq!(content.len(), BYTES);
    client.expect_reply(226);
    client.put("STOR small", b"123");
    client.passive();
    client.expect("RETR nothing", 550);

    wait_for(&served, "gridhaul_transfers_running", 0.0);
    wait_for(&served, "gridhaul_movers_busy{direction=\"send\"}", 0.0);
    let after = scrape(&served);
    for (key, value) in [
        ("gridhaul_sessions_opened_total", 1.0),
        ("gridhaul_logins_total{result=\"success\"}", 1.0),
        (
            "gridhaul_transfers_total{verb=\"RETR\",result=\"success\"}",
            1.0,
        ),
        (
            "gridhaul_transfers_total{verb=\"RETR\",result=\"failure\"}",
            1.0,
        ),
        (
            "gridhaul_transfers_total{verb=\"STOR\",result=\"success\"}",
            1.0,
        ),
        (
            "gridhaul_transfer_bytes_total{direction=\"sent\"}",
            BYTES as f64,
        ),
        ("gridhaul_transfer_bytes_total{direction=\"received\"}", 3.0),
        ("gridhaul_transfer_seconds_count{direction=\"sent\"}", 2.0),
        (
            "gridhaul_transfer_seconds_bucket{direction=\"sent\",le=\"+Inf\"}",
            2.0,
        ),
        ("gridhaul_buffer_bytes", 0.0),
        ("gridhaul_brokers", 0.0),
    ] {
        assert_eq!(after.get(key), Some(&value), "{key}");
    }
    assert!(after["gridhaul_buffer_bytes_limit"] > 0.0);
}

#[test]
fn a_refused_login_is_counted() {
    let served = served();
    let mut client = served.greeted();
    client.expect("USER nobody", 331);
    client.expect("PASS wrong", 530);
    let samples = scrape(&served);
    assert_eq!(samples["gridhaul_logins_total{result=\"failure\"}"], 1.0);
}

#[test]
fn a_port_range_without_a_free_port_is_counted() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port();
    let served = Served::with(|settings| {
        settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
        settings.port_range = Some(format!("{port}-{port}").parse().expect("a range"));
    });
    const KEY: &str = "gridhaul_data_ports_exhausted_total";
    assert_eq!(scrape(&served)[KEY], 0.0);
    served.anonymous().expect("PASV", 425);
    assert_eq!(scrape(&served)[KEY], 1.0);
}

#[test]
fn failures_are_counted_by_the_side_that_made_them() {
    let served = served();
    let before = scrape(&served);
    for cause in ["client", "peer", "storage", "disk_full", "server"] {
        let key = format!("gridhaul_transfer_failures_total{{cause=\"{cause}\"}}");
        assert_eq!(before[&key], 0.0, "{key}");
    }
    let mut client = served.anonymous();
    client.passive();
    client.expect("RETR nothing", 550);
    client.expect("NOOP", 200);
    let after = scrape(&served);
    let of = |cause| after[&format!("gridhaul_transfer_failures_total{{cause=\"{cause}\"}}")];
    assert_eq!((of("client"), of("storage")), (1.0, 0.0));
}

#[test]
fn the_ends_of_certificates_and_the_process_are_seen() {
    let served = gsi::served_with(|settings| {
        settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
    });
    let end = |kind| format!("gridhaul_certificate_expiry_timestamp_seconds{{kind=\"{kind}\"}}");
    let count = |kind, state| format!("gridhaul_certificates{{kind=\"{kind}\",state=\"{state}\"}}");
    wait_for(&served, &count("host", "ok"), 1.0);
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after")
        .as_secs_f64();
    let samples = scrape(&served);
    assert!(samples[&end("host")] > now);
    assert_eq!(samples[&count("authority", "ok")], 1.0);
    assert_eq!(samples[&count("delegated", "soon")], 0.0);
    let mut client = gsi::logged_in(&served, "alice");
    let during = scrape(&served);
    assert!(during[&end("delegated")] > now);
    client.expect("QUIT", 221);
    while scrape(&served).contains_key(&end("delegated")) {
        std::thread::yield_now();
    }
    for name in [
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_threads",
        "process_open_fds",
        "process_max_fds",
    ] {
        assert!(samples[name] > 0.0, "{name}");
    }
}

#[test]
fn nothing_else_is_there_to_get() {
    let served = served();
    let status = |request: &str| ask(&served, request).0;
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(
        status("DELETE /metrics HTTP/1.1\r\n\r\n"),
        "HTTP/1.1 405 Method Not Allowed"
    );
    assert_eq!(status("USER me\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let long = "x".repeat(8 * 1024);
    assert_eq!(
        status(&long),
        "HTTP/1.1 431 Request Header Fields Too Large"
    );
}

#[test]
fn without_the_setting_nobody_listens() {
    assert_eq!(Served::new().server().metrics_address(), None);
}
