//! Clients that are Python libraries: gfal2's bindings and `ftplib`.
//!
//! The cases are Python functions in this crate's `python` directory. Their output
//! must be the same with both servers.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use super::deviations::{DROPS, LINE_ENDS};
use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Client, Failure};

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

/// Functions of `ftplib_cases.py`.
const FTPLIB: [&str; 48] = [
    "login",
    "login_as_ftp",
    "login_of_an_unknown_user",
    "commands_before_login",
    "quit_before_login",
    "working_directory",
    "working_directory_errors",
    "mkd",
    "mkd_with_quotes",
    "rmd",
    "delete",
    "rename",
    "rename_missing",
    "rename_out_of_order",
    "size",
    "mdtm_and_mfmt",
    "nlst",
    "listing",
    "listing_of_a_file_and_a_pattern",
    "mlsd",
    "mlsd_of_chosen_facts",
    "mlsd_errors",
    "mlst",
    "stat_of_a_file",
    "features",
    "opts_utf8",
    "unknown_commands",
    "retrbinary",
    "retrbinary_with_rest",
    "retrbinary_errors",
    "storbinary",
    "storbinary_over_a_longer_file",
    "storbinary_with_rest",
    "append",
    "lines",
    "active_mode",
    "extended_passive",
    "aborted_by_the_client",
    "abort",
    "abort_without_a_transfer",
    "upload_interrupted",
    "chmod",
    "checksums",
    "names_on_the_wire",
    "names_that_are_not_utf8",
    "names_that_are_too_long",
    "many_sessions",
    "many_transfers_in_one_session",
];

/// Functions of `ftplib_cases.py` for servers in other roles than the main one.
const FTPLIB_ROLES: [(&str, Role); 2] = [("ipv6", Role::Ipv6), ("read_only", Role::ReadOnly)];

/// Functions with which the real server deviates.
const FTPLIB_DEVIATIONS: [(&str, &str); 14] = [
    (
        "mkd",
        "it answers 553 to MKD of an existing name, and has another text before the path of its 257",
    ),
    (
        "rmd",
        "it answers 451 to RMD of a directory that is not empty",
    ),
    ("mdtm_and_mfmt", "it answers MFMT with 250"),
    ("names_that_are_too_long", "it answers 451"),
    (
        "nlst",
        "its NLST has . and .., and in TYPE A lines that end CR CR LF",
    ),
    ("listing", LINE_ENDS),
    ("listing_of_a_file_and_a_pattern", LINE_ENDS),
    ("mlsd", LINE_ENDS),
    ("opts_utf8", "it answers 500 though its FEAT lists UTF8"),
    ("quit_before_login", "it answers 211"),
    (
        "unknown_commands",
        "its answer to TYPE X has a line end in the middle",
    ),
    (
        "abort",
        "it answers when the peer has read everything, or not at all",
    ),
    ("names_on_the_wire", DROPS),
    ("names_that_are_not_utf8", DROPS),
];

/// gfal2 2.21 sometimes crashes, with any server: the number of attempts.
const CRASHING_ATTEMPTS: usize = 5;

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
    let roles = FTPLIB
        .map(|function| (function, Role::Main))
        .into_iter()
        .chain(FTPLIB_ROLES);
    for (function, role) in roles {
        let case = Case::new(format!("ftplib/{function}"), move |context| {
            ftplib(context, function, role)
        });
        let deviation = FTPLIB_DEVIATIONS.iter().find(|(odd, _)| *odd == function);
        cases.push(match deviation {
            Some((_, reason)) => case.deviation(reason),
            None => case,
        });
    }
    cases
}

fn gfal2(context: &Context<'_>, function: &str) -> Result<Observation, Failure> {
    let client = || {
        script("gfal2_cases.py")
            .arg(function)
            .args([context.from(""), context.to("")])
            .args([context.remote(""), context.local("")].map(PathBuf::into_os_string))
            .envs(context.environment())
    };
    let mut finished = client().run()?;
    for _ in 1..CRASHING_ATTEMPTS {
        if finished.status.signal().is_none() {
            break;
        }
        context.clear()?;
        finished = client().run()?;
    }
    let stdout = finished.succeeded()?.stdout;
    Ok(Observation(String::from_utf8_lossy(&stdout).into_owned()))
}

fn ftplib(context: &Context<'_>, function: &str, role: Role) -> Result<Observation, Failure> {
    let address = context.server(role)?.address();
    let finished = script("ftplib_cases.py")
        .args([
            function,
            &address.ip().to_string(),
            &address.port().to_string(),
        ])
        .arg(context.path(""))
        .args([context.remote(""), context.local("")].map(PathBuf::into_os_string))
        .run()?
        .succeeded()?;
    Ok(Observation(
        String::from_utf8_lossy(&finished.stdout).into_owned(),
    ))
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
        let roles = FTPLIB_ROLES.map(|(function, _)| function);
        let scripts = [
            ("gfal2_cases.py", [&GFAL2[..], &GFAL2_THIRD_PARTY].concat()),
            ("ftplib_cases.py", [&FTPLIB[..], &roles].concat()),
        ];
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
