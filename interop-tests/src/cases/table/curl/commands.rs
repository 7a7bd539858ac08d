//! Listings, attributes, and commands of the user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::client::{SMALL, curl};
use crate::cases::{Case, Context, Observation};
use crate::support::{Client, Failure, check, content};

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 7] = [
    ("list", list),
    ("list --list-only", list_names),
    ("list of a pattern of URLs", url_pattern),
    ("--head shows size and time", head),
    ("--remote-time", remote_time),
    ("-Q makes, renames and deletes", quote),
    ("-Q with an error ends the run", quote_error),
];

pub(super) fn cases() -> Vec<Case> {
    CASES
        .map(|(name, run)| Case::new(format!("curl/{name}"), run))
        .into()
}

fn shown(context: &Context<'_>) -> Result<(), Failure> {
    let file = context.remote_sample("two words", 12_345)?;
    fs::set_permissions(file, Permissions::from_mode(0o640))?;
    context.remote_directory("directory")?;
    context.remote_sample("directory/below", 1)?;
    Ok(())
}

fn list(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = curl(context, [context.home_url("")]).run()?.succeeded()?;
    let listing = listing.output().replace('\r', "");
    for (kind, size, name) in [
        ("-rw-r-----", "12345", " two words"),
        ("drwx", "", " directory"),
    ] {
        let named = |line: &&str| line.ends_with(name);
        let line = listing.lines().find(named).unwrap_or_default();
        check(line.starts_with(kind) && line.contains(size), || {
            listing.clone()
        })?;
    }
    Ok(Observation::none())
}

fn list_names(context: &Context<'_>) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = curl(context, ["--list-only", &context.home_url("")])
        .run()?
        .succeeded()?;
    let output = listing.output();
    let names: Vec<_> = output.lines().map(str::trim_end).collect();
    for name in ["two words", "directory"] {
        check(names.contains(&name), || format!("no `{name}`\n{listing}"))?;
    }
    Ok(Observation::none())
}

fn url_pattern(context: &Context<'_>) -> Result<Observation, Failure> {
    for number in 1..=5 {
        context.remote_sample(&format!("file{number}"), 60 * number)?;
    }
    let url = format!("{}[1-5]", context.home_url("file"));
    Client::new("curl")
        .args(["--silent", "--show-error", "--output", "copy#1", &url])
        .directory(context.local(""))
        .run()?
        .succeeded()?;
    for number in 1..=5 {
        let names = (format!("file{number}"), format!("copy{number}"));
        content::same(&context.remote(&names.0), &context.local(&names.1))?;
    }
    Ok(Observation::none())
}

fn head(context: &Context<'_>) -> Result<Observation, Failure> {
    let path = context.remote_sample("source", SMALL)?;
    fs::File::options()
        .write(true)
        .open(path)?
        .set_modified(content::long_ago())?;
    let head = curl(context, ["--head", &context.home_url("source")])
        .run()?
        .succeeded()?;
    let head = head.prints(&[
        "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT",
        "Content-Length: 300",
    ])?;
    Ok(Observation(head.output()))
}

fn remote_time(context: &Context<'_>) -> Result<Observation, Failure> {
    let path = context.remote_sample("source", SMALL)?;
    fs::File::options()
        .write(true)
        .open(path)?
        .set_modified(content::long_ago())?;
    let url = context.home_url("source");
    curl(context, ["--remote-time", "--output", "copy", &url])
        .run()?
        .succeeded()?;
    let date = fs::metadata(context.local("copy"))?.modified()?;
    check(date == content::long_ago(), || {
        format!("another time: {date:?}")
    })?;
    Ok(Observation::none())
}

/// Commands before the transfer and, with a dash, after it.
fn quote(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", SMALL)?;
    context.remote_sample("old", 10)?;
    context.remote_sample("unwanted", 10)?;
    let path = |name: &str| context.path(name);
    curl(
        context,
        ["--quote".into(), format!("MKD {}", path("new directory"))],
    )
    .args(["--quote".into(), format!("RNFR {}", path("old"))])
    .args([
        "--quote".into(),
        format!("RNTO {}", path("new directory/new")),
    ])
    .args(["--quote".into(), format!("-DELE {}", path("unwanted"))])
    .args([
        "--quote".into(),
        format!("-SITE CHMOD 600 {}", path("new directory/new")),
    ])
    .args(["--output", "copy", &context.home_url("source")])
    .run()?
    .succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    check(!context.remote("unwanted").exists(), || {
        "the file was not deleted".into()
    })?;
    let moved = fs::metadata(context.remote("new directory/new"))?;
    check(moved.permissions().mode() & 0o777 == 0o600, || {
        "the mode was not changed".into()
    })?;
    Ok(Observation::none())
}

fn quote_error(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("source", SMALL)?;
    let command = format!("DELE {}", context.path("nosuch"));
    curl(
        context,
        [
            "--quote",
            &command,
            "--output",
            "copy",
            &context.home_url("source"),
        ],
    )
    .run()?
    .failed_with(21, &["550"])?;
    Ok(Observation::none())
}
