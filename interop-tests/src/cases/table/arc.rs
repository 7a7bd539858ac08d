//! The clients of NorduGrid ARC, which implement transfers on top of the Globus control library.

use std::fs;

use crate::cases::{Case, Context, Observation};
use crate::support::{Client, Failure, UserKind, check, content};

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

/// Name, check, and whether the real server passes.
const CASES: [(&str, Check, bool); 5] = [
    ("arccp get", get, true),
    ("arccp put", put, true),
    ("arccp -r", get_tree, false),
    ("arcls", list, false),
    ("arcmkdir and arcrm", directories, true),
];

pub(super) fn cases() -> Vec<Case> {
    CASES
        .into_iter()
        .map(|(name, run, passes)| {
            let case = Case::new(format!("arc/{name}"), run).gsi(UserKind::Spaces);
            if passes {
                case
            } else {
                case.deviation("its listings have . and ..")
            }
        })
        .collect()
}

fn arc(context: &Context<'_>, program: &str) -> Client {
    // The clients create a configuration directory in HOME.
    Client::new(program)
        .envs(context.environment())
        .env("HOME", context.local(""))
        .directory(context.local(""))
}

pub(super) fn get(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.remote_sample("two words", 3_000_001)?;
    let copy = context.local("copy");
    arc(context, "arccp")
        .arg(context.from("two words"))
        .arg(&copy)
        .run()?
        .succeeded()?;
    content::same(&expected, &copy)?;
    Ok(Observation::none())
}

pub(super) fn put(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", 3_000_001)?;
    arc(context, "arccp")
        .arg(&expected)
        .arg(context.from("copy"))
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn get_tree(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_directory("tree/below")?;
    context.remote_sample("tree/one", 10)?;
    context.remote_sample("tree/below/two", 100_001)?;
    fs::create_dir(context.local("copy"))?;
    let mut copy = context.local("copy").into_os_string();
    copy.push("/");
    arc(context, "arccp")
        .args(["-r", &context.from("tree/")])
        .arg(copy)
        .run()?
        .succeeded()?;
    content::same_tree(&context.remote("tree"), &context.local("copy"))?;
    Ok(Observation::none())
}

fn list(context: &Context<'_>) -> Result<Observation, Failure> {
    for name in ["one", "two words", ".three"] {
        context.remote_sample(name, 10)?;
    }
    let listing = arc(context, "arcls")
        .arg(context.from(""))
        .run()?
        .succeeded()?;
    let output = String::from_utf8_lossy(&listing.stdout).into_owned();
    let mut names: Vec<_> = output.lines().collect();
    names.sort_unstable();
    check(names == [".three", "one", "two words"], || {
        format!("other names\n{listing}")
    })?;
    Ok(Observation::none())
}

fn directories(context: &Context<'_>) -> Result<Observation, Failure> {
    arc(context, "arcmkdir")
        .arg(context.from("new"))
        .run()?
        .succeeded()?;
    check(context.remote("new").is_dir(), || "no directory".into())?;
    let file = context.remote_sample("file", 10)?;
    arc(context, "arcrm")
        .arg(context.from("file"))
        .run()?
        .succeeded()?;
    check(!file.exists(), || "the file is there".into())?;
    Ok(Observation::none())
}
