//! `globus-url-copy`: trees and lists of files.

use std::fs::{self, File};
use std::path::Path;

use super::names::NAMES;
use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, check, chown_to_nobody, content};

/// The client's modes for many files.
const MODES: [&[&str]; 9] = [
    &[],
    &["-fast"],
    &["-p", "4"],
    &["-pp"],
    &["-fast", "-pp"],
    &["-cc", "4"],
    &["-cc", "4", "-fast", "-pp"],
    &["-cc", "4", "-p", "2", "-pp"],
    &["-stripe", "-fast"],
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        let name = |direction: &str| {
            format!(
                "globus-url-copy/trees {direction} -r -cd {}",
                mode.join(" ")
            )
        };
        cases.push(Case::new(name("get"), move |context| get(context, mode)));
        cases.push(Case::new(name("put"), move |context| put(context, mode)));
        cases.extend(Case::third_party(name("third-party"), move |context| {
            third_party(context, mode)
        }));
    }
    cases.extend([
        Case::new("globus-url-copy/trees get of a pattern", pattern),
        Case::new(
            "globus-url-copy/trees get of an empty directory",
            empty_directory,
        ),
        Case::new(
            "globus-url-copy/trees put -cd makes the directories above",
            deep_put,
        ),
        Case::new("globus-url-copy/trees -f with a list of pairs", |context| {
            list(context, &[])
        }),
        Case::new(
            "globus-url-copy/trees -f with a list of pairs -cc 4 -p 2",
            |context| list(context, &["-cc", "4", "-p", "2"]),
        ),
        Case::new(
            "globus-url-copy/trees -do dumps the planned copies",
            dump_only,
        ),
        Case::new(
            "globus-url-copy/trees -list of a directory, a file, and a pattern",
            listing,
        ),
        Case::new(
            "globus-url-copy/trees -df dumps failed copies for another run",
            dump_file,
        ),
        Case::new("globus-url-copy/trees -r -list", |context| {
            tree(&context.remote("tree"))?;
            let listing = context
                .globus_url_copy(["-r", "-list", &context.from("tree/")])
                .run()?
                .succeeded()?;
            Ok(observed(context, &listing.output()))
        }),
        Case::new("globus-url-copy/trees -list of 3000 files", long_listing),
    ]);
    cases
}

/// Nested directories, an empty directory, many small files, some larger ones, and unusual names.
fn tree(top: &Path) -> Result<(), Failure> {
    for directory in ["", "a", "a/b", "a/b/c d", "empty", "many"] {
        fs::create_dir(top.join(directory))?;
        chown_to_nobody(&top.join(directory))?;
    }
    let small = (0..60).map(|number| (format!("many/file{number}"), number * 7));
    let large = [
        ("a/large", 3_000_001),
        ("a/b/block", 262_144),
        ("a/b/c d/two words", 1_048_577),
    ];
    // In a tree the client cannot handle a quote at the end of a name.
    let odd = NAMES
        .iter()
        .filter(|(_, name)| !name.ends_with('"'))
        .map(|(_, name)| (format!("a/{name}"), 100));
    let large = large
        .map(|(name, size)| (name.to_owned(), size))
        .into_iter();
    for (name, size) in small.chain(large).chain(odd) {
        content::write(&top.join(&name), size)?;
        chown_to_nobody(&top.join(&name))?;
    }
    Ok(())
}

fn get(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    tree(&context.remote("tree"))?;
    context
        .globus_url_copy(["-r", "-cd"])
        .args(mode)
        .args([context.from("tree/"), context.local_url("copy/")])
        .run()?
        .succeeded()?;
    content::same_tree(&context.remote("tree"), &context.local("copy"))?;
    Ok(Observation::none())
}

fn put(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    tree(&context.local("tree"))?;
    context
        .globus_url_copy(["-r", "-cd"])
        .args(mode)
        .args([context.local_url("tree/"), context.to("copy/")])
        .run()?
        .succeeded()?;
    content::same_tree(&context.local("tree"), &context.remote("copy"))?;
    Ok(Observation::none())
}

fn third_party(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    tree(&context.remote("tree"))?;
    context
        .globus_url_copy(["-r", "-cd"])
        .args(mode)
        .args([context.from("tree/"), context.to("copy/")])
        .run()?
        .succeeded()?;
    content::same_tree(&context.remote("tree"), &context.remote("copy"))?;
    Ok(Observation::none())
}

/// The client fetches a listing and matches the pattern itself.
fn pattern(context: &Context<'_>) -> Result<Observation, Failure> {
    for name in ["one.dat", "two.dat", "three.txt"] {
        context.remote_sample(name, 1000)?;
    }
    fs::create_dir(context.local("copy"))?;
    // An escaped star would be a literal star.
    let source = format!("{}*.d[abc]t", context.from(""));
    context
        .globus_url_copy([source, context.local_url("copy/")])
        .run()?
        .succeeded()?;
    for name in ["one.dat", "two.dat"] {
        content::same(&context.remote(name), &context.local("copy").join(name))?;
    }
    check(!context.local("copy").join("three.txt").exists(), || {
        "a file too many".into()
    })?;
    Ok(Observation::none())
}

fn empty_directory(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_directory("empty")?;
    context
        .globus_url_copy([
            "-r",
            "-cd",
            &context.from("empty/"),
            &context.local_url("copy/"),
        ])
        .run()?
        .prints(&[])?;
    let found = fs::read_dir(context.local("copy")).map_or(0, Iterator::count);
    check(found == 0, || format!("{found} entries"))?;
    Ok(Observation::none())
}

fn deep_put(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", 1000)?;
    context
        .globus_url_copy([
            "-cd",
            &context.local_url("source"),
            &context.to("a/b/c/copy"),
        ])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("a/b/c/copy"))?;
    Ok(Observation::none())
}

fn list(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let mut pairs = String::new();
    for number in 0..20 {
        let name = format!("file {number}");
        context.remote_sample(&name, 1000 * number)?;
        pairs += &format!(
            "\"{}\" \"{}\"\n",
            context.from(&name),
            context.local_url(&name)
        );
    }
    fs::write(context.local("list"), pairs)?;
    context
        .globus_url_copy(options)
        .args(["-f", "list"])
        .run()?
        .succeeded()?;
    for number in 0..20 {
        let name = format!("file {number}");
        content::same(&context.remote(&name), &context.local(&name))?;
    }
    Ok(Observation::none())
}

/// The dump has the sizes, times and modes of the server's listing.
fn dump_only(context: &Context<'_>) -> Result<Observation, Failure> {
    let top = context.remote_directory("tree")?;
    let path = context.remote_file("tree/file", "some text")?;
    File::options()
        .write(true)
        .open(&path)?
        .set_modified(content::long_ago())?;
    context
        .globus_url_copy(["-r", "-do", "dump", &context.from("tree/")])
        .arg(context.local_url("copy/"))
        .run()?
        .succeeded()?;
    let dump = fs::read_to_string(context.local("dump"))?;
    check(dump.contains("size=9;modify=1000000000;mode=0644;"), || {
        dump.clone()
    })?;
    check(!context.local("copy").exists() && top.exists(), || {
        "something was copied".into()
    })?;
    Ok(observed(context, &dump))
}

/// One of two files is missing at first; a second run copies only that one.
fn dump_file(context: &Context<'_>) -> Result<Observation, Failure> {
    let pair = |name: &str| format!("{} {}\n", context.from(name), context.local_url(name));
    fs::write(
        context.local("list"),
        ["first", "second"].map(pair).concat(),
    )?;
    context.remote_sample("first", 1000)?;
    context
        .globus_url_copy(["-df", "dump", "-f", "list"])
        .run()?
        .failed_with(1, &["No such file or directory"])?;
    let dump = fs::read_to_string(context.local("dump"))?;
    check(dump.contains("/second") && !dump.contains("/first"), || {
        dump
    })?;
    context.remote_sample("second", 2000)?;
    context
        .globus_url_copy(["-df", "dump", "-f", "list"])
        .run()?
        .succeeded()?;
    for name in ["first", "second"] {
        content::same(&context.remote(name), &context.local(name))?;
    }
    Ok(Observation::none())
}

fn listing(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_directory("tree")?;
    context.remote_directory("tree/directory")?;
    for name in ["tree/one.dat", "tree/two.dat", "tree/three.txt"] {
        context.remote_sample(name, 10)?;
    }
    let mut seen = String::new();
    for name in ["tree/", "tree", "tree/one.dat", "tree/*.dat"] {
        let url = context.from(name).replace("%2A", "*");
        let listing = context
            .globus_url_copy(["-list", &url])
            .run()?
            .succeeded()?;
        seen += &listing.output();
    }
    Ok(observed(context, &seen))
}

fn long_listing(context: &Context<'_>) -> Result<Observation, Failure> {
    for number in 0..3000 {
        File::create(context.remote(&format!("file{number}")))?;
    }
    let listing = context
        .globus_url_copy(["-list", &context.from("")])
        .run()?
        .succeeded()?;
    let files = listing
        .output()
        .lines()
        .filter(|line| line.starts_with("    file"))
        .count();
    check(files == 3000, || {
        format!("{files} of 3000 files are listed")
    })?;
    Ok(Observation::none())
}

/// The output without addresses and the names of the case's directories. A listing has no
/// defined order.
fn observed(context: &Context<'_>, output: &str) -> Observation {
    let mut output = output.replace(&context.from(""), "REMOTE/");
    output = output.replace(&context.local_url(""), "LOCAL/");
    Observation::unordered(&output)
}
