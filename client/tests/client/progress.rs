//! What a copy shows at a terminal.

use std::fs;

use gridhaul_interop::{Kind, content};

use crate::site::{SIZE, Site};
use crate::terminal::Terminal;

const FILES: usize = 3;

/// A directory of files, and what the terminal shows of their copy.
fn screen(options: &str, environment: &str) -> String {
    let site = Site::anonymous(Kind::Gridhaul, &["--stack", "tcp:rate=400m"]);
    fs::create_dir(site.local("tree")).unwrap();
    for number in 0..FILES {
        content::write(&site.local(&format!("tree/file{number}")), 10_000_000).unwrap();
    }
    let (program, tree) = (env!("CARGO_BIN_EXE_gridhaul"), site.local("tree"));
    let (tree, url) = (tree.display(), site.server.url("tree"));
    let state = site.local("state");
    let state = state.display();
    let shown = Terminal::start(&format!(
        "stty cols 100; env XDG_STATE_HOME={state} {environment} {program} copy -r {options} {tree} {url}"
    ))
    .read();
    assert!(site.served("tree/file2").exists(), "{shown}");
    shown
}

#[test]
fn a_terminal_shows_bars_of_the_files_and_of_all_and_then_one_line() {
    let shown = screen("", "TERM=xterm");
    for words in ["tree/file0", "of 3 files", "% █", "MB/s"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains(" -> "), "{shown}");
    let last = shown.trim_end().rsplit(['\n', '\r', '\u{1b}']).next();
    let last = last.unwrap_or_default();
    assert!(last.contains("3 files, 30.0 MB in "), "{last}");
}

#[test]
fn a_terminal_without_bars_gets_a_line_for_each_file() {
    for (options, environment) in [("--no-progress", "TERM=xterm"), ("", "TERM=dumb")] {
        let shown = screen(options, environment);
        assert_eq!(shown.matches(" -> ").count(), FILES, "{shown}");
        assert!(!shown.contains('█'), "{shown}");
    }
}

/// What the terminal shows of a copy with each channel and stripe.
fn shown(site: &Site, words: &[&str]) -> String {
    let (program, place) = (env!("CARGO_BIN_EXE_gridhaul"), site.place().display());
    let words = words.join(" ");
    Terminal::start(&format!(
        "stty rows 60 cols 100; cd {place}; env XDG_STATE_HOME={place}/state TERM=xterm {program} copy --progress channels {words}"
    ))
    .read()
}

/// The numbers of these parts in the last event that has them, and the bytes of the file there.
fn last_parts(lines: &str, name: &str) -> (Vec<u64>, u64) {
    let marked = format!("\"{name}\":[");
    let mut events = lines.lines().rev();
    let event = events.find(|line| line.contains(&marked));
    let event = event.unwrap_or_else(|| panic!("no {name}: {lines}"));
    let behind = |mark: &str| event.split(mark).nth(1).unwrap();
    let parts = behind(&marked).split(']').next().unwrap().split(',');
    let bytes = behind("\"bytes\":").split([',', '}']).next().unwrap();
    let parts = parts.map(|number| number.parse().unwrap());
    (parts.collect(), bytes.parse().unwrap())
}

#[test]
fn data_channels_are_shown_beneath_their_file() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let url = site.server.url("a");
        for (from, to) in [("source", url.as_str()), (&url, "back")] {
            let options = ["-p", "3", "--rate", "2M"];
            let screen = shown(&site, &[&options[..], &[from, to]].concat());
            for words in ["channel 1 ", "channel 2 ", "channel 3 ", "/s"] {
                assert!(screen.contains(words), "{kind:?} {words}: {screen}");
            }
            assert!(!screen.contains("channel 4"), "{kind:?}: {screen}");
            let options = [&["copy", "--json", "--progress", "channels"], &options[..]];
            let lines = site.must(&[&options.concat()[..], &[from, to]].concat());
            let (channels, bytes) = last_parts(&lines, "channels");
            assert_eq!(channels.len(), 3, "{kind:?}: {lines}");
            let sum: u64 = channels.iter().sum();
            assert!(bytes > 0 && sum >= bytes && sum <= SIZE, "{lines}");
        }
        let lines = site.must(&["copy", "--json", "--rate", "2M", "source", &url]);
        assert!(!lines.contains("channels\":["), "{lines}");
    }
}

#[test]
fn the_lines_of_channels_are_limited() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    content::write(&site.local("large"), 40_000_000).unwrap();
    let url = site.server.url("a");
    let screen = shown(&site, &["-p", "20", "--rate", "20M", "large", &url]);
    assert!(screen.contains("channel 16 "), "{screen}");
    assert!(!screen.contains("channel 17"), "{screen}");
    assert!(screen.contains("… 4 more"), "{screen}");
}

#[test]
fn stripes_between_servers_are_shown_beneath_their_file() {
    for (kind, arguments, count) in [
        (Kind::Gridhaul, &["--stripes", "2"][..], 2),
        (Kind::Globus, &[], 1),
    ] {
        let limited = ["--stripes", "2", "--stack", "tcp:rate=24m"];
        let source = Site::anonymous(Kind::Gridhaul, &limited);
        let site = Site::anonymous(kind, arguments);
        content::write(&source.served("large"), 10_000_000).unwrap();
        let (from, to) = (source.server.url("large"), site.server.url("a"));
        let copy = ["--mode", "extended", &from, &to];
        let screen = shown(&site, &copy);
        assert!(screen.contains(&format!("stripe {count} ")), "{screen}");
        let options = ["copy", "--json", "--progress", "channels"];
        let lines = site.must(&[&options[..], &copy].concat());
        let (stripes, bytes) = last_parts(&lines, "stripes");
        assert_eq!(stripes.len(), count, "{kind:?}: {lines}");
        assert_eq!(stripes.iter().sum::<u64>(), bytes, "{lines}");
    }
}
