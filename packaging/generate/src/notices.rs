//! The copyright notices of the crates that a program links. Their licences ask that copies of the program have them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::metadata::{Crate, Metadata, MetadataError};
use crate::program::Program;

/// The beginnings of the names of files with licences and notices, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "copyright", "notice"];

/// The notices: each text once, after the crates that have it.
///
/// # Errors
///
/// When a file cannot be read.
pub(crate) fn text(program: Program, metadata: &Metadata) -> Result<String, MetadataError> {
    let mut crates_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in metadata.crates.iter().filter(|one| one.source.is_some()) {
        let title = format!("{} {}", one.name, one.version);
        for path in files(one)? {
            let text = fs::read_to_string(&path).map_err(|error| failed(one, &error))?;
            let text = text.replace('\r', "").trim().to_owned();
            let crates = crates_of.entry(text).or_default();
            if crates.last() != Some(&title) {
                crates.push(title.clone());
            }
        }
    }
    let mut texts: Vec<(String, String)> = crates_of
        .into_iter()
        .map(|(text, crates)| (crates.join(", "), text))
        .collect();
    texts.sort();
    let mut all = format!("{} contains code of these projects.\n", program.name());
    for (crates, text) in texts {
        all.push_str(&format!("\n{}\n{crates}\n\n{text}\n", "=".repeat(80)));
    }
    Ok(all)
}

/// The files with the licences of a crate, in the top directory of its sources and in `LICENSES`.
fn files(one: &Crate) -> Result<Vec<PathBuf>, MetadataError> {
    let mut found = Vec::new();
    for directory in [one.directory().to_owned(), one.directory().join("LICENSES")] {
        let Ok(entries) = fs::read_dir(directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.map_err(|error| failed(one, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.to_lowercase();
            if path.is_file() && NAMES.iter().any(|prefix| name.starts_with(prefix)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn failed(one: &Crate, error: &std::io::Error) -> MetadataError {
    MetadataError::Licence(one.name.clone(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notices_name_what_is_linked() {
        for program in [Program::Server, Program::Client] {
            let metadata = Metadata::read(program).expect("cargo runs");
            let text = text(program, &metadata).expect("readable");
            assert!(text.starts_with(&format!("{} contains", program.name())));
            for name in ["rustls ", "tokio ", "aws-lc-sys "] {
                assert!(text.contains(name), "{name}");
            }
            assert!(text.contains("Permission is hereby granted"), "MIT");
            assert!(!text.contains("proptest"));
        }
    }
}
