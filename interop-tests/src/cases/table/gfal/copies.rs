//! Copies, with checksums and options.

use std::os::unix::process::ExitStatusExt;

use super::client::{closed, gfal};
use crate::cases::table::deviations::DROPS;
use crate::cases::table::names::{DROPPED, NAMES};
use crate::cases::{Case, Context, Observation, Partners, Role};
use crate::support::{Failure, check, chown_to_nobody, content};

/// An empty file, one byte, sizes around the block sizes of the servers, and many blocks.
const SIZES: [u64; 6] = [0, 1, 262_144, 1_048_575, 1_048_577, 50_000_001];

/// Options, and settings of gfal2's GridFTP plug-in, that must not change the copy.
const OPTIONS: [&[&str]; 11] = [
    &["-n", "4"],
    &["-n", "1"],
    &["--tcp-buffersize", "262144"],
    &["-T", "30"],
    &["--just-copy"],
    &["-D", "GRIDFTP PLUGIN:DELAY_PASSV=false"],
    &["-D", "GRIDFTP PLUGIN:SESSION_REUSE=false"],
    &["-D", "GRIDFTP PLUGIN:GRIDFTP_V2=false"],
    &["-D", "GRIDFTP PLUGIN:RD_NB_STREAM=4"],
    &["-D", "GRIDFTP PLUGIN:PERF_MARKER_TIMEOUT=5"],
    &["-D", "GRIDFTP PLUGIN:ENABLE_PASV_PLUGIN=true"],
];

/// A copy's two ends.
#[derive(Clone, Copy)]
pub(in crate::cases::table) enum Direction {
    Get,
    Put,
    ThirdParty,
}

impl Direction {
    /// One case, or the cases of a third-party copy.
    fn cases<F>(self, name: &str, run: F) -> Vec<Case>
    where
        F: Fn(&Context<'_>, Self) -> Result<Observation, Failure> + Send + Sync + Clone + 'static,
    {
        let run = move |context: &Context<'_>| run(context, self);
        match self {
            Self::Get => vec![Case::new(format!("gfal-copy/get {name}"), run)],
            Self::Put => vec![Case::new(format!("gfal-copy/put {name}"), run)],
            Self::ThirdParty => Case::third_party(format!("gfal-copy/third-party {name}"), run),
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for direction in [Direction::Get, Direction::Put, Direction::ThirdParty] {
        let mut add = |name: &str, options: &'static [&'static str]| {
            cases.extend(direction.cases(name, move |context, direction| {
                copy(context, direction, options, "source", "copy", 3_000_001)
            }));
        };
        for options in OPTIONS {
            add(&options.join(" "), options);
        }
        add("-K ADLER32", &["-K", "ADLER32"]);
        add("-K MD5", &["-K", "MD5"]);
        for size in SIZES {
            cases.extend(
                direction.cases(&format!("{size} bytes"), move |context, direction| {
                    copy(context, direction, &[], "source", "copy", size)
                }),
            );
        }
        for (word, name) in NAMES {
            cases.extend(direction.cases(word, move |context, direction| {
                named(context, direction, name)
            }));
        }
        for (word, name) in DROPPED {
            let run = move |context: &Context<'_>, direction| named(context, direction, name);
            let alike = direction
                .cases(word, run)
                .into_iter()
                .filter(|case| matches!(case.setup.partners, Partners::One | Partners::Alike));
            cases.extend(alike.map(|case| case.deviation(DROPS)));
        }
        cases.extend(
            direction.cases("-p makes the directories above", |context, direction| {
                copy(context, direction, &["-p"], "source", "a/b/c/copy", 1000)
            }),
        );
        cases.extend(direction.cases("-f over another file", over_another));
        cases.extend(direction.cases("over another file is refused", exists));
        cases.extend(direction.cases("of a missing file", missing));
        cases.extend(direction.cases("into a missing directory", into_missing));
        cases.extend(direction.cases("with a wrong checksum", wrong_checksum));
        cases.extend(direction.cases("-r of a tree", recursive));
    }
    cases.extend([
        Case::new("gfal-copy/put into a closed directory", into_closed),
        Case::new("gfal-copy/get -6", ipv6),
    ]);
    cases
}

/// The two arguments of a copy. gfal2 decodes remote paths, but not local ones.
fn ends(context: &Context<'_>, direction: Direction, source: &str, copy: &str) -> [String; 2] {
    let local = |name: &str| format!("file://{}", context.local(name).display());
    match direction {
        Direction::Get => [context.from(source), local(copy)],
        Direction::Put => [local(source), context.to(copy)],
        Direction::ThirdParty => [context.from(source), context.to(copy)],
    }
}

fn source_of(
    context: &Context<'_>,
    direction: Direction,
    name: &str,
    size: u64,
) -> Result<std::path::PathBuf, Failure> {
    Ok(match direction {
        Direction::Put => context.local_sample(name, size)?,
        _ => context.remote_sample(name, size)?,
    })
}

fn copy_of(context: &Context<'_>, direction: Direction, name: &str) -> std::path::PathBuf {
    match direction {
        Direction::Get => context.local(name),
        _ => context.remote(name),
    }
}

/// Copies a file of this size; `source` and `copy` are its names.
pub(in crate::cases::table) fn copy(
    context: &Context<'_>,
    direction: Direction,
    options: &[&str],
    source: &str,
    copy: &str,
    size: u64,
) -> Result<Observation, Failure> {
    let expected = source_of(context, direction, source, size)?;
    gfal("gfal-copy", options, context)
        .args(ends(context, direction, source, copy))
        .run()?
        .succeeded()?;
    content::same(&expected, &copy_of(context, direction, copy))?;
    Ok(Observation::none())
}

/// The remote file has this name; in a third-party copy both have.
fn named(context: &Context<'_>, direction: Direction, name: &str) -> Result<Observation, Failure> {
    match direction {
        Direction::Get => copy(context, direction, &[], name, "copy", 1000),
        Direction::Put => copy(context, direction, &[], "source", name, 1000),
        Direction::ThirdParty => {
            context.remote_directory("from")?;
            context.remote_directory("to")?;
            let (source, target) = (format!("from/{name}"), format!("to/{name}"));
            copy(context, direction, &[], &source, &target, 1000)
        }
    }
}

/// Makes another, longer file at the destination.
fn occupied(context: &Context<'_>, direction: Direction) -> Result<std::path::PathBuf, Failure> {
    let copy = copy_of(context, direction, "copy");
    content::write(&copy, 5000)?;
    chown_to_nobody(&copy)?;
    Ok(copy)
}

fn over_another(context: &Context<'_>, direction: Direction) -> Result<Observation, Failure> {
    occupied(context, direction)?;
    copy(context, direction, &["-f"], "source", "copy", 1000)
}

fn exists(context: &Context<'_>, direction: Direction) -> Result<Observation, Failure> {
    let copy = occupied(context, direction)?;
    source_of(context, direction, "source", 1000)?;
    gfal(
        "gfal-copy",
        ends(context, direction, "source", "copy"),
        context,
    )
    .run()?
    .failed_with(17, &["File exists"])?;
    check(copy.metadata()?.len() == 5000, || {
        "the other file was changed".into()
    })?;
    Ok(Observation::none())
}

fn missing(context: &Context<'_>, direction: Direction) -> Result<Observation, Failure> {
    gfal(
        "gfal-copy",
        ends(context, direction, "nosuch", "copy"),
        context,
    )
    .run()?
    .failed_with(2, &["No such file or directory"])?;
    check(!copy_of(context, direction, "copy").exists(), || {
        "a copy was made".into()
    })?;
    Ok(Observation::none())
}

fn into_missing(context: &Context<'_>, direction: Direction) -> Result<Observation, Failure> {
    source_of(context, direction, "source", 1000)?;
    copy_fails(
        context,
        ends(context, direction, "source", "nosuch/copy"),
        2,
        "No such file or directory",
    )
}

fn into_closed(context: &Context<'_>) -> Result<Observation, Failure> {
    source_of(context, Direction::Put, "source", 1000)?;
    closed(context)?;
    let ends = ends(context, Direction::Put, "source", "closed/copy");
    copy_fails(context, ends, 13, "Permission denied")
}

/// gfal2's message when its threads process the server's reply in the wrong order.
const CONFUSED: &str = "GLOBUS_FTP_CLIENT_IDLE not allowed here";

/// A copy that is refused early. With any server gfal2 sometimes misses the reply or crashes, and then
/// the copy is repeated.
fn copy_fails(
    context: &Context<'_>,
    ends: [String; 2],
    code: i32,
    word: &str,
) -> Result<Observation, Failure> {
    let mut finished = gfal("gfal-copy", ends.clone(), context).run()?;
    for _ in 1..20 {
        if !finished.output().contains(CONFUSED) && finished.status.signal().is_none() {
            break;
        }
        finished = gfal("gfal-copy", ends.clone(), context).run()?;
    }
    finished.failed_with(code, &[word])?;
    Ok(Observation::none())
}

fn wrong_checksum(context: &Context<'_>, direction: Direction) -> Result<Observation, Failure> {
    source_of(context, direction, "source", 1000)?;
    gfal("gfal-copy", ["-K", "ADLER32:12345678"], context)
        .args(ends(context, direction, "source", "copy"))
        .run()?
        .failed_with(5, &["checksum"])?;
    Ok(Observation::none())
}

fn recursive(context: &Context<'_>, direction: Direction) -> Result<Observation, Failure> {
    let source = match direction {
        Direction::Put => context.local("tree"),
        _ => context.remote("tree"),
    };
    for directory in ["", "a", "a/b"] {
        std::fs::create_dir(source.join(directory))?;
        chown_to_nobody(&source.join(directory))?;
    }
    for (name, size) in [
        ("one", 1),
        ("a/two", 70_000),
        ("a/b/three", 300_000),
        ("a/b/four", 0),
    ] {
        content::write(&source.join(name), size)?;
        chown_to_nobody(&source.join(name))?;
    }
    // With SESSION_REUSE gfal2 sometimes omits files of a third-party copy.
    gfal(
        "gfal-copy",
        ["-r", "-D", "GRIDFTP PLUGIN:SESSION_REUSE=false"],
        context,
    )
    .args(ends(context, direction, "tree", "copy"))
    .run()?
    .succeeded()?;
    content::same_tree(&source, &copy_of(context, direction, "copy"))?;
    Ok(Observation::none())
}

fn ipv6(context: &Context<'_>) -> Result<Observation, Failure> {
    let server = context.server(Role::Ipv6)?;
    let expected = context.remote_sample("source", 1_000_000)?;
    let copy = format!("file://{}", context.local("copy").display());
    gfal(
        "gfal-copy",
        ["-6", &server.url(&context.name("source")), &copy],
        context,
    )
    .run()?
    .succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}
