//! Clients that are Python libraries: gfal2's bindings and `ftplib`.
//!
//! The cases themselves are Python functions in this crate's `python` directory; what one prints is
//! what a user sees, and must be the same with both servers.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use crate::case::{Case, Failure, Observation};
use crate::{Client, Context};

/// Functions of `gfal2_cases.py` that need one server.
const GFAL2: [&str; 23] = [
    "stat_file",
    "stat_directory",
    "stat_errors",
    "stat_link",
    "access",
    "listdir",
    "readpp",
    "mkdir",
    "mkdir_rec",
    "rmdir",
    "unlink",
    "unlink_directory",
    "rename",
    "chmod",
    "checksum",
    "checksum_range",
    "checksum_empty",
    "checksum_unknown",
    "read_in_pieces",
    "read_at_offset",
    "write_in_pieces",
    "open_errors",
    "copy_to_local_and_back",
];

/// Functions of `gfal2_cases.py` that copy from server to server.
const GFAL2_THIRD_PARTY: [&str; 6] = [
    "copy",
    "copy_as_fts",
    "copy_makes_parents",
    "copy_errors",
    "copy_wrong_checksum",
    "copy_many",
];

/// gfal2 2.21 itself crashes in its `pread` now and then, with any server.
const CRASHING: &str = "read_at_offset";

/// How often that function is tried.
const CRASHING_ATTEMPTS: usize = 10;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for function in GFAL2 {
        cases.push(Case::new(
            format!("gfal2-python/{function}"),
            move |context| gfal2(context, function),
        ));
    }
    for function in GFAL2_THIRD_PARTY {
        cases.extend(Case::third_party(
            format!("gfal2-python/{function}"),
            move |context| gfal2(context, function),
        ));
    }
    cases
}

fn gfal2(context: &Context<'_>, function: &str) -> Result<Observation, Failure> {
    let client = || {
        script("gfal2_cases.py")
            .arg(function)
            .args([context.from(""), context.to("")])
            .args([context.remote(""), context.local("")].map(PathBuf::into_os_string))
    };
    let mut finished = client().run()?;
    for _ in 1..CRASHING_ATTEMPTS {
        if function != CRASHING || finished.status.signal().is_none() {
            break;
        }
        finished = client().run()?;
    }
    let stdout = finished.succeeded()?.stdout;
    Ok(Observation(String::from_utf8_lossy(&stdout).into_owned()))
}

/// One of the scripts, run by Debian's own Python.
fn script(name: &str) -> Client {
    Client::new("python3").arg("-B").arg(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("python")
            .join(name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_a_script_is_in_the_table() {
        let scripts = [("gfal2_cases.py", [&GFAL2[..], &GFAL2_THIRD_PARTY].concat())];
        for (name, mut listed) in scripts {
            let output = script(name)
                .arg("--list")
                .run()
                .unwrap()
                .succeeded()
                .unwrap()
                .output();
            let mut found: Vec<_> = output.lines().collect();
            found.sort_unstable();
            listed.sort_unstable();
            assert_eq!(found, listed, "{name}");
        }
    }
}
