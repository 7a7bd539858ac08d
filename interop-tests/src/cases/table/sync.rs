//! `globus-url-copy -sync`: copies of changed files only.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, check, chown_to_nobody};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for level in 0..=3 {
        let name =
            |direction: &str| format!("globus-url-copy/sync {direction} -sync -sync-level {level}");
        cases.push(Case::new(name("get"), move |context| {
            sync_get(context, level)
        }));
        cases.push(Case::new(name("put"), move |context| {
            sync_put(context, level)
        }));
        cases.extend(Case::third_party(name("third-party"), move |context| {
            sync_third_party(context, level)
        }));
    }
    cases
}

/// The state of a file at the destination before `-sync`, and the level from which on it is copied.
const SYNC: [(&str, u32); 5] = [
    ("missing", 0),
    ("shorter", 1),
    ("older", 2),
    ("altered", 3),
    ("same", u32::MAX),
];

/// Makes the two sides of a `-sync`.
fn sync_sides(source: &Path, destination: &Path) -> Result<(), Failure> {
    let now = SystemTime::now();
    let dated = |path: &Path, text: &str, age: u64| -> Result<(), Failure> {
        fs::write(path, text)?;
        File::options()
            .write(true)
            .open(path)?
            .set_modified(now - Duration::from_secs(age))?;
        chown_to_nobody(path)?;
        Ok(())
    };
    for directory in [source, destination] {
        fs::create_dir(directory)?;
        chown_to_nobody(directory)?;
    }
    for (name, _) in SYNC {
        dated(&source.join(name), "new", 1000)?;
    }
    dated(&destination.join("shorter"), "ol", 500)?;
    dated(&destination.join("older"), "old", 2000)?;
    dated(&destination.join("altered"), "old", 500)?;
    dated(&destination.join("same"), "new", 500)?;
    Ok(())
}

fn check_sync(destination: &Path, level: u32) -> Result<Observation, Failure> {
    for (name, from_level) in SYNC {
        let text = fs::read_to_string(destination.join(name)).unwrap_or_default();
        let expected = match name {
            "same" => "new",
            "shorter" if level < from_level => "ol",
            _ if level < from_level => "old",
            _ => "new",
        };
        check(text == expected, || {
            format!("the file that is {name} holds `{text}` instead of `{expected}`")
        })?;
    }
    Ok(Observation::none())
}

fn sync_options(level: u32) -> [String; 4] {
    [
        "-sync".into(),
        "-sync-level".into(),
        level.to_string(),
        "-r".into(),
    ]
}

fn sync_get(context: &Context<'_>, level: u32) -> Result<Observation, Failure> {
    sync_sides(&context.remote("source"), &context.local("copy"))?;
    context
        .globus_url_copy(sync_options(level))
        .args([context.from("source/"), context.local_url("copy/")])
        .run()?
        .succeeded()?;
    check_sync(&context.local("copy"), level)
}

fn sync_put(context: &Context<'_>, level: u32) -> Result<Observation, Failure> {
    sync_sides(&context.local("source"), &context.remote("copy"))?;
    context
        .globus_url_copy(sync_options(level))
        .args([context.local_url("source/"), context.to("copy/")])
        .run()?
        .succeeded()?;
    check_sync(&context.remote("copy"), level)
}

fn sync_third_party(context: &Context<'_>, level: u32) -> Result<Observation, Failure> {
    sync_sides(&context.remote("source"), &context.remote("copy"))?;
    context
        .globus_url_copy(sync_options(level))
        .args([context.from("source/"), context.to("copy/")])
        .run()?
        .succeeded()?;
    check_sync(&context.remote("copy"), level)
}
