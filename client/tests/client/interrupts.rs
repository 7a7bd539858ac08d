//! SIGINT, SIGTERM and SIGHUP.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Kind;
use rustix::process::{Pid, Signal, kill_process};

use crate::site::{Site, number};

/// More files than wait for a worker, so that the walk is still in the tree.
const FILES: usize = 1500;

/// A file that takes half a minute with 500 kB/s.
const LARGE_BYTES: usize = 16 << 20;

/// The lines about so many files do not fit into a pipe, which has 64 KiB. The last line did not fit.
const PIPE: u64 = 65_536 - 1024;

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn start(mut command: Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends a signal after the first file was copied. Returns the lines of both outputs; the exit status is that of an interruption.
fn interrupted(site: &Site, arguments: &[&str], signal: Signal) -> (Vec<String>, String) {
    let mut child = start(site.command(arguments));
    let mut stderr = child.stderr.take().unwrap();
    let errors = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    let (mut lines, mut is_sent) = (Vec::new(), false);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(r#""event":"file""#) && !is_sent {
            send(&child, signal);
            is_sent = true;
        }
        lines.push(line);
    }
    let errors = errors.join().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{arguments:?}: {errors}");
    (lines, errors)
}

/// Sends signals until the program has ended.
fn insist(child: &mut Child) -> ExitStatus {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        send(child, Signal::INT);
        thread::yield_now();
    }
}

/// Files in the directory `many` of the client.
fn make_files(site: &Site) {
    fs::create_dir_all(site.local("many")).unwrap();
    for index in 0..FILES {
        fs::write(site.local(&format!("many/{index}")), index.to_string()).unwrap();
    }
}

fn copied(lines: &[String]) -> usize {
    let files = lines
        .iter()
        .filter(|line| line.contains(r#""event":"file""#));
    files.count()
}

#[test]
fn an_interrupted_copy_says_what_to_do_and_leaves_what_is_resumed() {
    for (kind, signal) in [
        (Kind::Gridhaul, Signal::INT),
        (Kind::Globus, Signal::TERM),
        (Kind::Gridhaul, Signal::HUP),
    ] {
        let site = Site::anonymous(kind, &[]);
        // A directory with the name of a destination makes the walk look whether it is the destination.
        for name in ["many/back", "many/many"] {
            fs::create_dir_all(site.local(name)).unwrap();
        }
        make_files(&site);
        // The copy cannot end before the program has noticed the signal.
        fs::write(site.local("many/large"), vec![7; LARGE_BYTES]).unwrap();
        let url = site.server.url("many");
        for (from, to, copy) in [
            ("many", url.as_str(), site.served("many")),
            (&url, "back", site.local("back")),
        ] {
            let all = ["copy", "-r", "--json", "--rate", "500k", from, to];
            let (lines, errors) = interrupted(&site, &all, signal);
            assert!(errors.contains("--resume"), "{errors}");
            let done = lines.last().unwrap();
            assert!(done.contains(r#""event":"done""#), "{done}");
            assert_eq!(number(done, "failed"), 0, "{done}");
            let first = copied(&lines);
            assert!(first <= FILES, "it was complete before the signal");
            let entries = fs::read_dir(&copy).unwrap();
            let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let probe = names.find(|name| name.starts_with(".gridhaul-"));
            assert_eq!(probe, None, "{kind:?} {to}");

            let lines = site.must(&["copy", "-r", "--json", "--resume", from, to]);
            let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
            let unchanged = number(lines.last().unwrap(), "unchanged");
            assert!(
                unchanged >= first,
                "{unchanged} of {first} are not copied again"
            );
            assert_eq!(copied(&lines) + unchanged, FILES + 1);
            for index in 0..FILES {
                let found = fs::read_to_string(copy.join(index.to_string()));
                assert_eq!(found.unwrap(), index.to_string());
            }
            assert!(fs::read(copy.join("large")).unwrap() == vec![7; LARGE_BYTES]);
        }
    }
}

#[test]
fn a_second_signal_ends_a_program_that_waits_for_a_server() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("new");
    let words = ["bench", "--put", "-p", "1", "--duration", "3600", &url];
    let mut child = start(site.command(&words));
    while !site.served("new").exists() {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "it has ended before");
        thread::yield_now();
    }
    // The program asks the server to remove the file, which does not answer.
    let server = Pid::from_raw(i32::try_from(site.server.pid()).unwrap()).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    let began = Instant::now();
    let status = insist(&mut child);
    let took = began.elapsed();
    kill_process(server, Signal::CONT).unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn a_second_signal_ends_a_program_whose_output_nothing_reads() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    make_files(&site);
    let url = site.server.url("many");
    let mut child = start(site.command(&["copy", "-r", "--json", "many", &url]));
    let stdout = child.stdout.take().unwrap();
    // All workers wait for the reader then, or will soon.
    while rustix::io::ioctl_fionread(&stdout).unwrap() < PIPE {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "it has ended before");
        thread::yield_now();
    }
    let began = Instant::now();
    let status = insist(&mut child);
    let took = began.elapsed();
    assert_eq!(status.code(), Some(130));
    assert!(took < Duration::from_secs(8), "{took:?}");
    drop(stdout);
}

#[test]
fn a_program_that_ignores_the_end_of_its_terminal_goes_on() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let program = site.command(&[]).get_program().to_owned();
    let url = site.server.url("new");
    let mut command = site.command(&[]);
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "trap '' HUP; exec \"$0\" copy --json --rate 2M \"$1\" \"$2\"",
    ]);
    shell.arg(program).args(["source", &url]);
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(key, value);
        }
    }
    shell.current_dir(command.current_dir(site.place()).get_current_dir().unwrap());
    let mut child = start(shell);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let progress = lines.find(|line| line.as_ref().unwrap().contains("progress"));
    assert!(progress.is_some());
    send(&child, Signal::HUP);
    let last = lines.last().unwrap().unwrap();
    assert!(
        last.contains(r#""event":"done""#) && number(&last, "files") == 1,
        "{last}"
    );
    assert!(child.wait().unwrap().success());
}
