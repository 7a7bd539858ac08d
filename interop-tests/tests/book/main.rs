//! Checks of the documentation: links, options, metrics and commands.

mod log;
mod markdown;
mod new_user;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridhaul_interop::{gridhaul_client, gridhaul_program};

use markdown::Page;

/// Pages with options of other programs.
const DEVELOPERS: [&str; 5] = [
    "CONTRIBUTING",
    "CHANGELOG",
    "developers/",
    "measurements/",
    "threat-model",
];

/// The page about `gridhaul`, the client.
const CLIENT: &str = "docs/client.md";

/// Parts of other pages, which the benchmark composes.
const PARTS: [&str; 2] = ["measurements/notes.md", "measurements/rdma-notes.md"];

fn top() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("a workspace").to_owned()
}

/// All pages: those of the top directory, and those beneath `docs`.
fn pages() -> Vec<Page> {
    let top = top();
    let mut paths = markdown_files(&top);
    paths.extend(beneath(&top.join("docs")));
    paths.iter().map(|path| Page::read(&top, path)).collect()
}

fn page(name: &str) -> Page {
    let top = top();
    Page::read(&top, &top.join(name))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

fn markdown_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = entries(directory);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files
}

fn beneath(directory: &Path) -> Vec<PathBuf> {
    let mut files = markdown_files(directory);
    for path in entries(directory).into_iter().filter(|path| path.is_dir()) {
        files.extend(beneath(&path));
    }
    files
}

/// The options in the help of one command of the server, with the name of the value.
fn options(command: &str) -> BTreeMap<String, String> {
    let program = gridhaul_program().expect("the server is built");
    options_of(&program, command)
}

fn options_of(program: &Path, command: &str) -> BTreeMap<String, String> {
    let help = help(program, command);
    let heads = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = match line.split_once(", ") {
            Some((short, long)) if short.len() == 2 && short.starts_with('-') => long,
            _ => line,
        };
        let line = line.strip_prefix("--")?;
        let (name, rest) = line.split_at(line.find(['[', ' ']).unwrap_or(line.len()));
        // The description may follow on the same line.
        let value = rest.split("  ").next().unwrap_or_default();
        let value = value.trim_matches([' ', '[', ']', '=', '<', '>']);
        // An option that may be given several times.
        let name = name.trim_end_matches("...");
        Some((name.to_owned(), value.to_owned()))
    });
    heads.collect()
}

/// Other names of the options of a command.
fn aliases_of(program: &Path, command: &str) -> Vec<String> {
    let help = help(program, command);
    let lists = help.lines().filter_map(|line| line.split_once("[alias"));
    let names = lists.flat_map(|(_, list)| long_options(list));
    names
        .map(|name| name.trim_end_matches(']').to_owned())
        .collect()
}

fn help(program: &Path, command: &str) -> String {
    let words = command.split(' ').chain(["--help"]);
    let output = Command::new(program).args(words).output();
    String::from_utf8(output.expect("it runs").stdout).expect("UTF-8")
}

/// The words of a text that begin with two hyphens, without values.
fn long_options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split([' ', '\'', '"', '(', ')', ',']);
    let options = words.filter_map(|word| word.strip_prefix("--"));
    options
        .map(|option| option.split('=').next().unwrap_or(option))
        .filter(|option| !option.is_empty())
}

/// The names of metrics in the program.
fn metrics() -> BTreeSet<String> {
    let mut files = vec![top().join("drivers/rdma/src/gauges.rs")];
    for directory in ["metrics", "metrics/counters"] {
        let directory = top().join("server/src/telemetry").join(directory);
        let entries = fs::read_dir(directory).expect("it is there");
        let paths = entries.map(|entry| entry.expect("read").path());
        files.extend(paths.filter(|path| path.extension().is_some_and(|kind| kind == "rs")));
    }
    let mut names = BTreeSet::new();
    for file in files {
        let source = fs::read_to_string(file).expect("it is there");
        let quoted = source.split('"').skip(1).step_by(2);
        let is_name = |text: &&str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let found = quoted
            .filter(|text| text.starts_with("gridhaul_"))
            .filter(is_name);
        names.extend(found.map(str::to_owned));
    }
    names
}

#[test]
fn the_summary_lists_every_page() {
    let listed = page("docs/SUMMARY.md").links();
    let docs = top().join("docs");
    for path in beneath(&docs) {
        let name = path.strip_prefix(&docs).expect("beneath");
        let name = name.display().to_string();
        if name != "SUMMARY.md" && !PARTS.contains(&name.as_str()) {
            assert!(listed.contains(&name), "docs/SUMMARY.md lacks {name}");
        }
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut links = 0;
    for page in pages() {
        let directory = page.path.parent().expect("a file");
        for link in page.links() {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.path.clone()
            } else {
                directory.join(file)
            };
            assert!(target.exists(), "{}: no file {file}", page.name);
            if !anchor.is_empty() {
                let anchors = Page::read(directory, &target).anchors();
                let exists = anchors.iter().any(|known| known == anchor);
                assert!(exists, "{}: {link} is none of {anchors:?}", page.name);
            }
        }
    }
    assert!(links > 150, "only {links} links");
}

/// The commands of the client without `guc`, whose options have one hyphen.
const OF_CLIENT: [&str; 18] = [
    "copy",
    "rput",
    "rget",
    "cat",
    "sum",
    "ping",
    "bench",
    "ls",
    "stat",
    "mkdir",
    "rm",
    "mv",
    "proxy create",
    "proxy show",
    "proxy destroy",
    "chmod",
    "du",
    "tree",
];

#[test]
fn every_option_of_the_client_in_the_documentation_exists() {
    let client = gridhaul_client().expect("the client is built");
    let names = |command: &&'static str| {
        let options = options_of(&client, command).into_keys();
        let names: BTreeSet<String> = options.chain(aliases_of(&client, command)).collect();
        (*command, names)
    };
    let known: BTreeMap<&str, BTreeSet<String>> = OF_CLIENT.iter().map(names).collect();
    let any: BTreeSet<&String> = known.values().flatten().collect();
    let mut seen = 0;
    for page in pages() {
        for text in page.code().chain(page.spans()) {
            let Some((_, arguments)) = text.split_once("gridhaul ") else {
                continue;
            };
            let command = OF_CLIENT.iter().find(|name| arguments.starts_with(*name));
            for option in command.into_iter().flat_map(|_| long_options(arguments)) {
                seen += 1;
                let exists = command.is_some_and(|command| known[command].contains(option));
                assert!(exists, "{}: no --{option}: {text}", page.name);
            }
        }
        // The page of the client may name its options alone.
        let alone = page.spans().filter(|span| span.starts_with("--"));
        for option in alone.flat_map(long_options).filter(|_| page.name == CLIENT) {
            seen += 1;
            let exists = any.iter().any(|known| *known == option);
            assert!(exists, "{}: no --{option}", page.name);
        }
    }
    assert!(seen > 30, "only {seen} options");
}

#[test]
fn every_option_in_the_documentation_exists() {
    let mut known = BTreeSet::from(["version".to_owned()]);
    for command in [
        "serve",
        "check",
        "doctor",
        "ssh",
        "node",
        "nodes invite",
        "passwd",
        "import",
    ] {
        known.extend(options(command).into_keys());
    }
    // These talk to a running server.
    for command in ["status", "top", "kick", "drain", "reload"] {
        known.extend(options(command).into_keys());
    }
    let mut seen = 0;
    let mut check = |page: &Page, text: &str| {
        for option in long_options(text) {
            seen += 1;
            let exists = known.contains(option);
            assert!(exists, "{}: no --{option}: {text}", page.name);
        }
    };
    for page in pages() {
        let is_for_operators =
            page.name != CLIENT && !DEVELOPERS.iter().any(|part| page.name.contains(part));
        for span in page.spans().filter(|span| span.starts_with("--")) {
            if is_for_operators {
                check(&page, span);
            }
        }
        for text in page.code().chain(page.spans()) {
            // `cargo test -p gridhaul-server` has options of cargo.
            match text.split_once("gridhaul-server ") {
                Some((before, arguments)) if !before.contains("cargo") => check(&page, arguments),
                _ => {}
            }
        }
    }
    assert!(seen > 100, "only {seen} options");
}

#[test]
fn the_reference_of_options_matches_the_help() {
    let mut expected = options("serve");
    expected.remove("help");
    assert!(expected.len() > 60, "{expected:?}");
    let mut documented = BTreeMap::new();
    for row in page("docs/reference/options.md").rows() {
        let name = row[0].trim_matches('`').strip_prefix("--");
        if let (Some(name), Some(value)) = (name, row.get(1)) {
            documented.insert(name.to_owned(), value.trim_matches('`').to_owned());
        }
    }
    for (name, value) in &documented {
        let printed = expected.get(name);
        assert_eq!(printed, Some(value), "docs/reference/options.md: --{name}");
    }
    for name in expected.keys() {
        let is_there = documented.contains_key(name);
        assert!(is_there, "docs/reference/options.md lacks --{name}");
    }
    assert!(documented.len() > 60, "{documented:?}");
}

#[test]
fn every_option_of_other_commands_is_in_the_reference() {
    let page = page("docs/reference/options.md");
    let mentioned: BTreeSet<&str> = page.spans().flat_map(long_options).collect();
    let settings = options("serve");
    for command in [
        "check", "doctor", "ssh", "node", "passwd", "status", "top", "kick", "drain", "reload",
    ] {
        let own = options(command).into_keys();
        for name in own.filter(|name| !settings.contains_key(name)) {
            let is_there = mentioned.contains(name.as_str());
            assert!(
                is_there,
                "docs/reference/options.md lacks --{name} of {command}"
            );
        }
    }
}

#[test]
fn every_metric_is_in_the_reference() {
    let page = page("docs/reference/metrics.md");
    let documented: BTreeSet<&str> = page.spans().collect();
    for name in metrics() {
        let is_there = documented.contains(name.as_str());
        assert!(is_there, "docs/reference/metrics.md lacks {name}");
    }
}

#[test]
fn every_metric_in_the_documentation_exists() {
    let metrics = metrics();
    assert!(metrics.len() > 30, "{metrics:?}");
    // The changelog may name removed metrics.
    for page in pages().iter().filter(|page| page.name != "CHANGELOG.md") {
        for span in page.spans().filter(|span| span.starts_with("gridhaul_")) {
            let name = span.split([' ', '{', '=']).next().unwrap_or(span);
            let exists = name.contains("::") || metrics.contains(name);
            assert!(exists, "{}: no metric {name}", page.name);
        }
    }
}

#[test]
fn commands_in_the_documentation_run() {
    let program = gridhaul_program().expect("the server is built");
    let programs = program.parent().expect("an absolute path").display();
    let mut count = 0;
    for page in pages() {
        for commands in page.commands() {
            count += 1;
            let place = tempfile::tempdir().expect("a directory");
            // The account of the server must be able to enter it.
            fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("its own");
            let output = Command::new("sh")
                .args(["-euc", &commands])
                .current_dir(place.path())
                .env("PATH", format!("{programs}:/usr/bin:/bin"))
                .env("HOME", place.path())
                .output()
                .expect("sh runs");
            assert!(
                output.status.success(),
                "{}:\n{commands}\n{}{}",
                page.name,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    assert!(count >= 3, "only {count} blocks of commands");
}

#[test]
fn the_first_pages_are_short() {
    let read = |name| fs::read_to_string(top().join(name)).expect("it is there");
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
    let bytes = read("ARCHITECTURE.md").len();
    assert!(bytes <= 10_000, "ARCHITECTURE.md has {bytes} bytes");
}
