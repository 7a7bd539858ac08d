//! Cases of the other areas, repeated for users with certificates.
//!
//! Only a few of them: a login takes the real server a quarter of a second, and some cases need a
//! hundred logins.

use super::variants::CRASHING_ATTEMPTS;
use crate::cases::Case;
use crate::cases::table::{errors, gfal, python, recursive, transfers};
use crate::support::UserKind;

/// Cases of `globus-url-copy`.
const GLOBUS_URL_COPY: [&str; 18] = [
    "get stream, 0 bytes",
    "put -p 4, 0 bytes",
    "get -fast, 100000000 bytes",
    "put -p 4, 100000000 bytes",
    "third-party -p 4, 100000000 bytes",
    "trees get -r -cd ",
    "trees put -r -cd -fast",
    "trees third-party -r -cd -fast",
    "trees get -r -cd -pp",
    "trees third-party -r -cd -pp",
    "trees put -r -cd -cc 4",
    "trees third-party -r -cd -cc 4 -fast -pp",
    "trees -list of a directory, a file, and a pattern",
    "errors get of a file that may not be read",
    "errors put over a file that may not be written -p 2",
    "errors third-party of a missing file",
    "errors list of a missing directory",
    "errors -c continues after a missing file",
];

/// Cases of gfal2, each with and without authenticated data channels.
const GFAL2: [&str; 16] = [
    "gfal-copy/get -n 4",
    "gfal-copy/put -K MD5",
    "gfal-copy/third-party -n 4",
    "gfal-copy/third-party -K ADLER32",
    "gfal-copy/third-party of a missing file",
    "gfal/gfal-ls of a directory",
    "gfal/gfal-ls -l of a directory",
    "gfal/gfal-stat of a file",
    "gfal/gfal-stat of a missing file",
    "gfal/gfal-sum",
    "gfal/gfal-mkdir -p",
    "gfal/gfal-rm",
    "gfal/gfal-rename",
    "gfal/gfal-cat",
    "gfal/gfal-save",
    "gfal2-python/copy_as_fts",
];

/// The configuration of a gfal2 that authenticates data channels.
const DCAU: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gfal2-dcau");

pub(super) fn cases() -> Vec<Case> {
    let globus_url_copy = [transfers::cases(), recursive::cases(), errors::cases()]
        .into_iter()
        .flatten()
        .filter_map(|case| again("gsi/", case, &GLOBUS_URL_COPY.map(prefixed)));
    let gfal2 = |prefix: &'static str| {
        [gfal::cases(), python::cases()]
            .into_iter()
            .flatten()
            .filter_map(move |case| again(prefix, case, &GFAL2.map(String::from)))
            .map(|case| case.crashing(CRASHING_ATTEMPTS))
    };
    globus_url_copy
        .chain(gfal2("gsi/gfal2 without DCAU: "))
        .chain(
            gfal2("gsi/gfal2 with DCAU: ")
                .map(|case| case.rsa_delegations().env("GFAL_CONFIG_DIR", DCAU)),
        )
        .collect()
}

fn prefixed(name: &str) -> String {
    format!("globus-url-copy/{name}")
}

/// The case under another name, for a user with a certificate, if it is among the `chosen`.
fn again(prefix: &str, case: Case, chosen: &[String]) -> Option<Case> {
    // The name of a third-party case ends with its servers in parentheses.
    let is_chosen = |name: &String| {
        case.name == *name
            || case
                .name
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.starts_with(" ("))
    };
    if !chosen.iter().any(is_chosen) {
        return None;
    }
    let mut case = case.gsi(UserKind::Spaces);
    case.name.insert_str(0, prefix);
    Some(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chosen_case_is_there() {
        let cases = cases();
        let there = |name: &str| cases.iter().any(|case| case.name.contains(name));
        for name in GLOBUS_URL_COPY
            .map(prefixed)
            .iter()
            .map(String::as_str)
            .chain(GFAL2)
        {
            assert!(there(name), "{name}");
        }
    }
}
