//! Listings and attributes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::client::gfal;
use super::output::observed;
use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, check, content};

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 11] = [
    ("gfal-ls of a directory", list),
    ("gfal-ls -l of a directory", list_long),
    ("gfal-ls -a of a directory", list_all),
    ("gfal-ls -l of a file, -d -l of a directory", list_one),
    ("gfal-ls of a missing directory", list_missing),
    ("gfal-ls of 1000 files", list_many),
    ("gfal-ls of a closed directory", list_closed),
    ("gfal-ls of names with spaces and UTF-8", list_odd),
    ("gfal-stat of a file", stat_file),
    ("gfal-stat of a directory", stat_directory),
    ("gfal-stat of a missing file", stat_missing),
];

pub(super) fn cases() -> Vec<Case> {
    CASES
        .map(|(name, run)| Case::new(format!("gfal/{name}"), run))
        .into()
}

const NOT_FOUND: &str = "No such file or directory";

/// A directory whose entries have fixed times and modes.
fn shown(context: &Context<'_>) -> Result<(), Failure> {
    context.remote_directory("shown")?;
    context.remote_directory("shown/directory")?;
    for (name, size) in [
        ("small", 5),
        ("large", 1_234_567),
        (".hidden", 0),
        ("two words", 10),
    ] {
        context.remote_sample(&format!("shown/{name}"), size)?;
    }
    fs::set_permissions(context.remote("shown/large"), Permissions::from_mode(0o640))?;
    fs::set_permissions(
        context.remote("shown/directory"),
        Permissions::from_mode(0o750),
    )?;
    symlink("small", context.remote("shown/link"))?;
    for name in [
        "shown/small",
        "shown/large",
        "shown/.hidden",
        "shown/two words",
        "shown/directory",
        "shown",
    ] {
        File::open(context.remote(name))?.set_modified(content::long_ago())?;
    }
    Ok(())
}

fn list(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = gfal("gfal-ls", [context.from("shown/")], context)
        .run()?
        .succeeded()?;
    let listing =
        listing.prints(&["small\n", "large\n", "two words\n", "directory\n", "link\n"])?;
    check(!listing.output().contains(".hidden"), || {
        format!("a hidden file\n{listing}")
    })?;
    Ok(observed(context, &listing.output()))
}

fn list_long(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = gfal("gfal-ls", ["-l", &context.from("shown/")], context)
        .run()?
        .succeeded()?;
    let listing = listing.prints(&["-rw-r-----", "1234567", "Sep  9  2001", "drwxr-x---"])?;
    Ok(observed(context, &listing.output()))
}

fn list_all(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = gfal("gfal-ls", ["-a", &context.from("shown/")], context)
        .run()?
        .succeeded()?;
    // Only the real server's NLST lists `.` and `..`.
    let names = listing.prints(&[".hidden\n"])?.output();
    let names: Vec<_> = names
        .lines()
        .filter(|name| !matches!(*name, "." | ".."))
        .collect();
    Ok(observed(context, &names.join("\n")))
}

fn list_one(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let file = gfal("gfal-ls", ["-l", &context.from("shown/large")], context).run()?;
    let file = file.succeeded()?.prints(&["-rw-r-----", "1234567"])?;
    let url = context.from("shown/directory");
    let directory = gfal("gfal-ls", ["-l", "-d", &url], context).run()?;
    let directory = directory.succeeded()?.prints(&["drwxr-x---"])?;
    Ok(observed(context, &(file.output() + &directory.output())))
}

fn list_missing(context: &Context<'_>) -> Result<Observation, Failure> {
    gfal("gfal-ls", [context.from("nosuch/")], context)
        .run()?
        .failed_with(2, &[NOT_FOUND])?;
    Ok(Observation::none())
}

fn list_many(context: &Context<'_>) -> Result<Observation, Failure> {
    for number in 0..1000 {
        File::create(context.remote(&format!("file{number}")))?;
    }
    let listing = gfal("gfal-ls", [context.from("")], context)
        .run()?
        .succeeded()?;
    let lines = listing.output().lines().count();
    check(lines == 1000, || format!("{lines} of 1000 files"))?;
    Ok(Observation::none())
}

fn list_closed(context: &Context<'_>) -> Result<Observation, Failure> {
    let directory = context.remote_directory("dark")?;
    fs::set_permissions(directory, Permissions::from_mode(0o311))?;
    gfal("gfal-ls", [context.from("dark/")], context)
        .run()?
        .failed_with(13, &["Permission denied"])?;
    Ok(Observation::none())
}

fn list_odd(context: &Context<'_>) -> Result<Observation, Failure> {
    for name in ["two words", "ünï-漢字", "per%41cent", "a;b=c", "it's"] {
        context.remote_sample(name, 1)?;
    }
    let listing = gfal("gfal-ls", [context.from("")], context)
        .run()?
        .succeeded()?;
    let listing = listing.prints(&[
        "two words\n",
        "ünï-漢字\n",
        "per%41cent\n",
        "a;b=c\n",
        "it's\n",
    ])?;
    Ok(observed(context, &listing.output()))
}

/// Removes access and change times, which a test cannot set.
fn timeless(output: &str) -> String {
    output
        .lines()
        .filter(|line| !line.starts_with("Access: 2") && !line.starts_with("Change: "))
        .collect::<Vec<_>>()
        .join("\n")
}

fn stat_file(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let stat = gfal("gfal-stat", [context.from("shown/large")], context)
        .run()?
        .succeeded()?;
    let stat = stat.prints(&[
        "Size: 1234567",
        "regular file",
        "(0640/-rw-r-----)",
        "2001-09-09 01:46:40",
    ])?;
    Ok(observed(context, &timeless(&stat.output())))
}

fn stat_directory(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let stat = gfal("gfal-stat", [context.from("shown/directory")], context)
        .run()?
        .succeeded()?;
    Ok(observed(
        context,
        &timeless(&stat.prints(&["directory", "(0750/drwxr-x---)"])?.output()),
    ))
}

fn stat_missing(context: &Context<'_>) -> Result<Observation, Failure> {
    gfal("gfal-stat", [context.from("nosuch")], context)
        .run()?
        .failed_with(2, &[NOT_FOUND])?;
    Ok(Observation::none())
}
