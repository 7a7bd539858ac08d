//! `gridhaul bench`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use gridhaul_interop::Kind;

use crate::site::{Site, texts};

const SHORT: [&str; 4] = ["--duration", "1", "-p", "1,3"];

fn bench<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["bench"], &SHORT[..], arguments].concat()
}

#[test]
fn rates_are_measured_both_ways_and_between_servers_and_nothing_stays() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        let source = File::create(site.served("large")).unwrap();
        source.set_len(50_000_000).unwrap();
        let (large, new) = (site.server.url("large"), site.server.url("new"));
        for arguments in [
            vec![large.as_str()],
            vec!["--put", &new],
            vec![&large, &new],
        ] {
            let json = site.must(&bench(&[&["--json"], &*arguments].concat()));
            for words in [r#""parallel":1,"#, r#""parallel":3,"#, r#""error":null"#] {
                assert!(json.contains(words), "{kind:?} {arguments:?}: {json}");
            }
            assert!(json.contains(r#""recommended":{"#), "{json}");
            assert!(!json.contains(r#""bytes_per_second":0.0"#), "{json}");
            assert!(!site.served("new").exists(), "{kind:?} {arguments:?}");
        }
    }
}

#[test]
fn more_connections_are_recommended_where_they_bring_more() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("new");
    // 8 MB a second for each connection, which is more than its buffers take in the time.
    let rate = ["--duration", "4", "-p", "1,3", "--stack", "tcp:rate=64m"];
    let text = site.must(&[&["bench", "--put"], &rate[..], &[&url]].concat());
    assert!(
        text.contains("recommended: --parallel 3 --stack 'tcp:rate=64m'"),
        "{text}"
    );
    assert!(text.contains("100 %"), "{text}");
}

#[test]
fn a_stack_that_a_server_does_not_have_fails_alone() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let output = site.gridhaul(&bench(&[
        "--put",
        "--also",
        "rdma",
        &site.server.url("new"),
    ]));
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(stdout.matches("failed").count(), 2, "{stdout}");
    assert!(stderr.contains("rdma, 1 connections: "), "{stderr}");
    assert!(!site.served("new").exists());
}

#[test]
fn what_exists_stays() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let error = site.fails(&bench(&["--put", &url]));
    assert!(error.contains("would be replaced and removed"), "{error}");
    let error = site.fails(&bench(&[&url, &url]));
    assert!(error.contains("would be replaced and removed"), "{error}");
    assert!(site.served("a").exists());
    let error = site.fails(&bench(&[&site.server.url("missing")]));
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn an_interrupted_benchmark_leaves_no_file() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let url = site.server.url("new");
        // The second trial would take an hour, and a failure of the third stack would be told.
        let words = ["bench", "--put", "-p", "1", "--duration", "3600", &url];
        let mut child = site.command(&words).stderr(Stdio::piped()).spawn().unwrap();
        while !site.served("new").exists() {
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let errors: Vec<_> = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{errors:?}");
        assert!(!site.served("new").exists(), "{kind:?} {errors:?}");
    }
}
