//! The names of calls in errors can be sent to other machines.

use std::fs;
use std::path::{Path, PathBuf};

use gridhaul_storage::StorageError;

/// Functions whose first argument is the name of a call.
const MAKERS: [&str; 3] = [
    "StorageError::new(",
    "StorageError::refused(",
    "StorageError::from_io(",
];

/// Those of this package.
const OWN_MAKERS: [&str; 2] = ["(failed(", ".writable("];

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("sources") {
        let path = entry.expect("sources").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The names of calls in a source: string literals that are the first argument.
fn names<'a>(source: &'a str, makers: &[&'a str]) -> Vec<&'a str> {
    let uses = makers.iter().flat_map(|maker| source.split(*maker).skip(1));
    let literals = uses.filter_map(|rest| rest.trim_start().strip_prefix('"'));
    literals.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_call_in_the_sources_is_in_the_list() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = [&MAKERS[..], &OWN_MAKERS].concat();
    let mut found = 0;
    for (package, makers) in [
        ("storage", own.as_slice()),
        ("transfer", &MAKERS),
        ("accounts", &MAKERS),
        ("server", &MAKERS),
    ] {
        let mut files = Vec::new();
        sources(&workspace.join(package).join("src"), &mut files);
        for file in files {
            let source = fs::read_to_string(&file).expect("a source");
            // Tests make up names.
            let code = source.split("mod tests {").next().unwrap_or_default();
            // The name is empty where only the text of the error is needed.
            let names = names(code, makers).into_iter();
            for name in names.filter(|name| !name.is_empty()) {
                found += 1;
                let is_known = StorageError::call_named(name).is_some();
                assert!(is_known, "{name} in {} is not in CALLS", file.display());
            }
        }
    }
    assert!(found > 50, "only {found} names found");
}

#[test]
fn other_names_are_unknown() {
    for name in ["", "exec", "OPEN", "open "] {
        assert_eq!(StorageError::call_named(name), None);
    }
}
