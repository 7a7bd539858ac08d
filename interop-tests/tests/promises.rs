//! The threat model names a test for each property. These tests must exist, and so must the files that it names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The directories of crates whose short name in the threat model differs from the directory.
const DIRECTORIES: [(&str, &str); 5] = [
    ("direct", "drivers/direct"),
    ("interop", "interop-tests"),
    ("iwarp", "drivers/iwarp"),
    ("rdma", "drivers/rdma"),
    ("splice", "drivers/splice"),
];

fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("a workspace").to_owned()
}

/// The code spans outside of code blocks.
fn quoted(text: &str) -> BTreeSet<String> {
    let paragraphs = text.lines().filter(|line| !line.starts_with("```"));
    let quoted = paragraphs.flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.map(str::to_owned).collect()
}

/// The files that may contain a test of this crate, target and path.
fn candidates(crate_name: &str, target: &str, modules: &[&str]) -> Vec<PathBuf> {
    let directory = DIRECTORIES.iter().find(|(name, _)| *name == crate_name);
    let directory = directory.map_or(crate_name, |(_, directory)| directory);
    let mut top = workspace().join(directory);
    if target == "lib" {
        top.push("src");
    } else {
        top.push("tests");
        top.push(target);
    }
    // The last module may be an inline module.
    let outer = modules.len().saturating_sub(1);
    [modules, &modules[..outer]]
        .iter()
        .flat_map(|modules| {
            let path: PathBuf = modules
                .iter()
                .fold(top.clone(), |path, name| path.join(name));
            [path.with_extension("rs"), path.join("mod.rs")]
        })
        .collect()
}

/// Whether a file has this function with an attribute that makes it a test.
fn has_test(file: &Path, name: &str) -> bool {
    let Ok(text) = fs::read_to_string(file) else {
        return false;
    };
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    let is_head = |line: &&str| {
        line.strip_prefix("async ")
            .unwrap_or(line)
            .starts_with(&head)
    };
    let Some(at) = lines.iter().position(is_head) else {
        return false;
    };
    let above = lines[..at].iter().rev();
    above
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

#[test]
fn every_promised_property_names_an_existing_test() {
    let text = fs::read_to_string(workspace().join("docs/threat-model.md")).expect("it is there");
    let mut tests = 0;
    for quoted in quoted(&text) {
        let Some((place, path)) = quoted.split_once(' ') else {
            continue;
        };
        let Some((crate_name, target)) = place.split_once('/') else {
            continue;
        };
        tests += 1;
        let mut modules: Vec<_> = path.split("::").collect();
        let name = modules.pop().expect("split gives one at least");
        let candidates = candidates(crate_name, target, &modules);
        let exists = candidates.iter().any(|file| has_test(file, name));
        assert!(exists, "no test '{quoted}' in {candidates:?}");
    }
    assert!(tests > 50, "only {tests} tests are named");
}

#[test]
fn every_mechanism_is_a_file_or_directory() {
    let text = fs::read_to_string(workspace().join("docs/threat-model.md")).expect("it is there");
    let is_path = |quoted: &&String| quoted.contains("/src/") && !quoted.contains(' ');
    let quoted = quoted(&text);
    let paths: Vec<_> = quoted.iter().filter(is_path).collect();
    assert!(paths.len() > 30, "only {} files are named", paths.len());
    for path in paths {
        assert!(workspace().join(path).exists(), "no file {path}");
    }
}
