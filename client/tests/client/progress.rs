//! What a copy shows at a terminal.

use std::fs;

use gridhaul_interop::{Kind, content};

use crate::site::Site;
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
