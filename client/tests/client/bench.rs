//! `gridhaul bench`, and the options that it recommends.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Kind;
use serde_json::Value;

use crate::blocks;
use crate::passive;
use crate::scripted::{Scripted, fails};
use crate::site::{SIZE, Site, assert_same, texts};

/// One short round.
const SHORT: [&str; 8] = [
    "bench",
    "--duration",
    "1",
    "--rounds",
    "1",
    "--parallel",
    "1,3",
    "--json",
];

/// The arguments of a short benchmark that varies this after the number of connections.
fn short<'a>(vary: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], &["--vary", vary], arguments].concat()
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The trials of a stage.
fn trials<'a>(document: &'a Value, stage: &str) -> Vec<&'a Value> {
    let trials = document["trials"].as_array().unwrap().iter();
    trials.filter(|trial| trial["tried"] == stage).collect()
}

/// Why a stage was not tried.
fn not_tried<'a>(document: &'a Value, stage: &str) -> &'a str {
    let all = document["not_tried"].as_array().unwrap();
    let one = all.iter().find(|one| one["tried"] == stage);
    let reason = one.and_then(|one| one["reason"].as_str());
    reason.unwrap_or_else(|| panic!("{stage}: {document}"))
}

/// Whether all trials of a benchmark have rates.
fn assert_measured(document: &Value) {
    for trial in document["trials"].as_array().unwrap() {
        assert_eq!(trial["error"], Value::Null, "{document}");
        assert!(
            trial["bytes_per_second"].as_f64().unwrap() > 0.0,
            "{document}"
        );
        // A quarter of the time of a round.
        assert!(trial["seconds"].as_f64().unwrap() >= 0.25, "{document}");
    }
    assert!(document["recommended"].is_object(), "{document}");
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
            let document = document(&site.must(&short("none", &arguments)));
            assert_measured(&document);
            let counts: Vec<_> = trials(&document, "connections")
                .iter()
                .map(|trial| (&trial["parallel"], &trial["channels"]))
                .map(|(asked, had)| (asked.as_u64(), had.as_u64()))
                .collect();
            assert_eq!(
                counts,
                [(Some(1), Some(1)), (Some(3), Some(3))],
                "{document}"
            );
            assert!(!site.served("new").exists(), "{kind:?} {arguments:?}");
        }
    }
}

#[test]
fn servers_with_devices_need_no_file() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let base = site.server.base();
    let (zeros, discards) = (format!("{base}/dev/zero"), format!("{base}/dev/null"));
    let (zeros, discards) = (zeros.as_str(), discards.as_str());
    for (arguments, ends) in [
        ([zeros, "/dev/null"], ["a device", "memory of this"]),
        (["/dev/zero", discards], ["memory of this", "a device"]),
        ([zeros, discards], ["a device", "a device"]),
    ] {
        let document = document(&site.must(&short("none", &arguments)));
        assert_measured(&document);
        for (end, words) in ["source", "destination"].into_iter().zip(ends) {
            let told = document[end].as_str().unwrap();
            assert!(told.contains(words), "{document}");
        }
    }
}

#[test]
fn a_server_without_devices_needs_a_file() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let base = site.server.base();
    let error = site.fails(&short("none", &[&format!("{base}/dev/zero")]));
    assert!(error.contains("gridhaul-server has none"), "{error}");
    let document = document(&site.must(&short("none", &["/dev/zero", &site.server.url("new")])));
    let told = document["destination"].as_str().unwrap();
    assert!(
        told.contains("the disk of the server are part of the rates"),
        "{document}"
    );
    assert!(!site.served("new").exists());
}

#[test]
fn this_machine_takes_part_with_its_memory_only() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let url = url.as_str();
    for arguments in [
        ["source", url],
        [url, "copy"],
        ["/dev/null", url],
        ["/dev/zero", "/dev/null"],
    ] {
        let output = site.gridhaul(&short("none", &arguments));
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("the memory of this machine"), "{stderr}");
    }
    let output = site.gridhaul(&short("none", &["--put", url, url]));
    assert_eq!(output.status.code(), Some(2), "{:?}", texts(&output));
}

#[test]
fn more_connections_are_recommended_where_they_bring_more() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("new");
    // 8 MB a second for each connection, which is more than its buffers take in the time.
    let rate = [
        "--duration",
        "4",
        "--rounds",
        "1",
        "-p",
        "1,3",
        "--vary",
        "rate",
    ];
    let stack = ["--stack", "tcp:rate=64m"];
    let text = site.must(&[&["bench", "--put"], &rate[..], &stack, &[&url]].concat());
    let command = "recommended: gridhaul copy --parallel 3 --stack 'tcp:rate=64m' SRC DST\n";
    assert!(text.contains(command), "{text}");
    assert!(text.contains("- 3 connections: "), "{text}");
    assert!(text.contains("; 1 connection: "), "{text}");
    assert!(
        text.contains("- rate: rate is given in the stack\n"),
        "{text}"
    );
}

#[test]
fn blocks_of_this_machine_are_varied_and_what_servers_choose_is_not() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("new");
    let put = document(&site.must(&short("blocks,rate,ring", &["--put", &url])));
    assert_measured(&put);
    let sizes: Vec<_> = trials(&put, "blocks")
        .iter()
        .map(|trial| trial["block_bytes"].as_u64())
        .collect();
    // The first one measures again what was chosen before.
    assert_eq!(sizes, [None, Some(256 << 10), Some(4 << 20)], "{put}");
    // The round trip is short, unless the machine is busy.
    match trials(&put, "ring").as_slice() {
        [] => assert!(not_tried(&put, "ring").contains("large enough"), "{put}"),
        [_, others @ ..] => {
            for other in others {
                let stack = other["stack"].as_str().unwrap();
                assert!(stack.contains("buffer="), "{put}");
            }
        }
    }
    assert!(
        trials(&put, "connections")[0]["sent_again"].is_u64(),
        "{put}"
    );
    fs::copy(site.local("source"), site.served("large")).unwrap();
    let url = site.server.url("large");
    let get = document(&site.must(&short("blocks,rate,ring", &[&url])));
    assert_measured(&get);
    assert!(not_tried(&get, "blocks").contains("no command"), "{get}");
    assert!(not_tried(&get, "rate").contains("only the server"), "{get}");
    assert_eq!(
        trials(&get, "connections")[0]["sent_again"],
        Value::Null,
        "{get}"
    );
}

#[test]
fn messages_and_rings_of_rdma_are_varied_as_far_as_the_server_allows() {
    let drivers = ["--anonymous-drivers", "auto,tcp,rdma"];
    let all = Site::anonymous(Kind::Gridhaul, &drivers);
    let some = ["--client-options", "rdma:provider;slab;slabs"];
    let some = Site::anonymous(Kind::Gridhaul, &[drivers, some].concat());
    for (site, has_messages) in [(all, true), (some, false)] {
        let url = site.server.url("new");
        let stack = ["--stack", "rdma:provider=soft", "--put", &url];
        let document = document(&site.must(&short("blocks,rate,ring", &stack)));
        assert_measured(&document);
        let stacks = |stage| -> Vec<&str> {
            let trials = trials(&document, stage).into_iter().skip(1);
            trials
                .map(|trial| trial["stack"].as_str().unwrap())
                .collect()
        };
        let rings = stacks("ring");
        assert!(!rings.is_empty(), "{document}");
        assert!(
            rings.iter().all(|stack| stack.contains("slab=")),
            "{rings:?}"
        );
        let messages = stacks("blocks");
        let are_messages = |stack: &&str| stack.contains("message=");
        assert!(messages.iter().all(are_messages), "{messages:?}");
        match has_messages {
            true => assert!(!messages.is_empty(), "{document}"),
            false => {
                let reason = not_tried(&document, "blocks");
                assert!(reason.contains("does not accept the stack"), "{reason}");
            }
        }
        assert!(
            not_tried(&document, "rate").contains("TCP carries rdma"),
            "{document}"
        );
    }
}

#[test]
fn a_stack_that_a_server_does_not_have_fails_alone() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let options = [
        "--duration",
        "1",
        "--rounds",
        "2",
        "-p",
        "1,3",
        "--vary",
        "none",
    ];
    let url = site.server.url("new");
    let stack = ["--put", "--also", "rdma", &url];
    let output = site.gridhaul(&[&["bench"], &options[..], &stack].concat());
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(stdout.matches("failed").count(), 2, "{stdout}");
    // It is not tried again in the second round.
    assert_eq!(
        stderr.matches("rdma, 1 connections: ").count(),
        1,
        "{stderr}"
    );
    assert!(!site.served("new").exists());
}

#[test]
fn no_more_bytes_are_moved_than_is_allowed() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("new");
    let output = site.gridhaul(&short("none", &["--put", "--most", "5M", &url]));
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    let document = document(&stdout);
    assert!(
        not_tried(&document, "more").contains("--most"),
        "{document}"
    );
    assert_eq!(document["recommended"], Value::Null, "{document}");
    assert!(!site.served("new").exists());
    // One transfer of 4 MiB, and none that would exceed 5 MB.
    let log = site.server.log();
    assert_eq!(log.matches("verb=\"STOR\"").count(), 1, "{log}");
}

#[test]
fn what_exists_stays() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let url = url.as_str();
    for arguments in [["--put", url], [url, url], ["/dev/zero", url]] {
        let error = site.fails(&short("none", &arguments));
        assert!(error.contains("would be replaced and removed"), "{error}");
    }
    assert!(site.served("a").exists());
    let error = site.fails(&short("none", &[&site.server.url("missing")]));
    assert!(error.contains("missing"), "{error}");
}

/// Waits until a file of the server has bytes, while a client writes it.
fn wait_for(file: &Path, client: &mut Child) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::metadata(file).map_or(0, |found| found.len()) == 0 {
        let ended = client.try_wait().unwrap();
        assert_eq!(ended, None, "it has ended before");
        assert!(Instant::now() < deadline, "{} is missing", file.display());
        thread::yield_now();
    }
}

#[test]
fn an_interrupted_benchmark_leaves_no_file() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("gridhaul.toml");
    fs::write(&config, "atomic-uploads = ['*']\n").unwrap();
    let atomic = ["--config", config.to_str().unwrap()];
    let unfinished = ".new.gridhaul-blocks";
    // At this rate the first transfer takes some seconds.
    let slow = ["--stack", "tcp:rate=8m"];
    for (kind, arguments, options, name) in [
        (Kind::Gridhaul, &[][..], &[][..], "new"),
        (Kind::Globus, &[], &[], "new"),
        (Kind::Gridhaul, &atomic, &slow, unfinished),
    ] {
        let site = Site::anonymous(kind, arguments);
        let url = site.server.url("new");
        // The second trial would take an hour, and a failure of the third stack would be told.
        let words = ["bench", "--put", "-p", "1", "--duration", "3600", &url];
        let mut command = site.command(&[&words[..], options].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        wait_for(&site.served(name), &mut child);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let errors: Vec<_> = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{errors:?}");
        for name in ["new", unfinished] {
            let left = site.served(name);
            assert!(!left.exists(), "{kind:?} {name} {errors:?}");
        }
    }
}

#[test]
fn a_server_that_does_not_say_whether_a_file_exists_gets_none() {
    for (size, facts) in [
        ("450 Not now.", "550 No such file."),
        ("550 Permission denied.", "451 Not now."),
        (
            "550 Permission denied.",
            "250-Facts\r\n Size=7; /new\r\n250 End",
        ),
    ] {
        let server = Scripted::start(Box::new(move |line, control| {
            let reply = match line.split(' ').next() {
                Some("FEAT") => "211-Features\r\n SIZE\r\n MLST Size*;\r\n211 End",
                Some("SIZE") => size,
                Some("MLST") => facts,
                _ => return false,
            };
            control.write_all(format!("{reply}\r\n").as_bytes()).is_ok()
        }));
        let error = fails(&["bench", "--put", &server.url("new")]);
        let told = error.contains("Not now") || error.contains("would be replaced");
        assert!(told, "{error}");
        let commands = server.commands();
        let is_change = |line: &String| line.starts_with("STOR") || line.starts_with("DELE");
        assert!(!commands.iter().any(is_change), "{commands:?}");
    }
}

/// Takes uploads in MODE E, and tells the length of the first block of each.
fn take(line: &str, control: &mut TcpStream, first: &Mutex<Sender<u64>>) -> std::io::Result<bool> {
    let reply = match line.split(' ').next() {
        Some("FEAT") => blocks::FEATURES.to_owned(),
        Some("SIZE") => format!("213 {SIZE}\r\n"),
        Some("MLST") => "550 No such file.\r\n".to_owned(),
        Some("PASV") => passive::listen()?,
        Some("STOR") => {
            control.write_all(b"150 Come.\r\n")?;
            let mut data = passive::accept()?;
            let mut header = [0; 17];
            data.read_exact(&mut header)?;
            let count = u64::from_be_bytes(header[1..9].try_into().unwrap());
            std::io::copy(&mut (&data).take(count), &mut std::io::sink())?;
            blocks::receive(&mut data)?;
            first.lock().unwrap().send(count).unwrap();
            "226 Complete.\r\n".to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes()).map(|()| true)
}

#[test]
fn copies_send_blocks_of_the_size_that_is_wanted() {
    let (sender, lengths) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = Scripted::start(Box::new(move |line, control| {
        take(line, control, &sender).unwrap_or(true)
    }));
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let first = |options: &[&str]| {
        let url = server.url("new");
        let copy = ["--mode", "extended", "source", &url];
        site.must(&[&["copy"], options, &copy].concat());
        lengths.recv().unwrap()
    };
    // The first block has four times the smallest size, unless the file is shorter: whole mebibytes of it.
    assert_eq!(first(&[]), 3 << 20);
    assert_eq!(first(&["--block-size", "64K"]), 256 << 10);
    assert_eq!(first(&["--block-size", "256K"]), 1 << 20);
    for wrong in ["63K", "9M", "0", "x"] {
        let output = site.gridhaul(&["copy", "--block-size", wrong, "source", "copy"]);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("a size from 64K to 8M"), "{stderr}");
    }
    // Both ends take the largest ones.
    let url = site.server.url("a");
    let options = ["--block-size", "8M", "--parallel", "4"];
    site.must(&[&["copy"], &options[..], &["source", &url]].concat());
    site.must(&[&["copy"], &options[..], &[&url, "back"]].concat());
    assert_same(&site.local("source"), &site.local("back"), &options);
}
