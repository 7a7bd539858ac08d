//! lftp: a client that mirrors trees, with several connections at a time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::deviations::LINE_ENDS;
use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Client, Failure, Finished, check, chown_to_nobody, content};

/// Settings that must not change the results.
const SETTINGS: [(&str, &str); 5] = [
    ("", ""),
    ("without MLSD", "set ftp:use-mlsd no;"),
    ("with MLSD", "set ftp:use-mlsd yes;"),
    ("in active mode", "set ftp:passive-mode no;"),
    ("with EPSV", "set ftp:prefer-epsv yes;"),
];

type Check = fn(&Context<'_>, &str) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 18] = [
    ("mirror", mirror),
    ("mirror --parallel --use-pget-n", mirror_parallel),
    ("mirror -R", mirror_back),
    ("mirror -R --parallel", mirror_back_parallel),
    ("mirror --only-newer of an unchanged tree", mirror_again),
    ("pget", pget),
    ("get -c", resume_get),
    ("put -c", resume_put),
    ("put over a longer file", put_over),
    ("mput and mget with patterns", patterns),
    ("ls", ls),
    ("cls", cls),
    ("cat", cat),
    ("mv", rename),
    ("chmod", chmod),
    ("mkdir -p and rmdir", directories),
    ("rm -r", remove_tree),
    ("errors", errors),
];

/// Cases that parse a listing, which lftp fetches in TYPE A.
const LISTING: [&str; 5] = [
    "mirror",
    "mirror --parallel --use-pget-n",
    "mirror --only-newer of an unchanged tree",
    "mput and mget with patterns",
    "rm -r",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (word, settings) in SETTINGS {
        for (run_name, run) in CASES {
            let name = format!("lftp/{run_name} {word}").trim_end().to_owned();
            let case = Case::new(name, move |context| run(context, settings));
            cases.push(if LISTING.contains(&run_name) {
                case.deviation(LINE_ENDS)
            } else {
                case
            });
        }
    }
    let name = "lftp/mirror both ways over IPv6";
    cases.push(Case::new(name, ipv6).deviation(LINE_ENDS));
    cases
}

/// Runs a script in a session that starts in the case's directory.
fn lftp(context: &Context<'_>, settings: &str, script: &str) -> Result<Finished, Failure> {
    session(context, &context.home_url(""), settings, script)
}

fn session(
    context: &Context<'_>,
    url: &str,
    settings: &str,
    script: &str,
) -> Result<Finished, Failure> {
    // No retries and no waiting: the first error ends the run.
    let strict = "set cmd:fail-exit yes; set net:max-retries 1; set net:timeout 20; \
                  set net:persist-retries 0; set net:reconnect-interval-base 1;";
    let script = format!("{strict} {settings} open {url}\n{script}\n");
    let finished = Client::new("lftp")
        .args(["--norc", "-f", "/dev/stdin"])
        .env("HOME", context.local("").into_os_string())
        .directory(context.local(""))
        .input(script)
        .run()?;
    Ok(finished)
}

fn tree(top: &Path) -> Result<(), Failure> {
    for directory in ["", "a", "a/two words", "empty"] {
        fs::create_dir(top.join(directory))?;
        chown_to_nobody(&top.join(directory))?;
    }
    let files = [
        ("one", 1),
        ("a/large", 3_000_001),
        ("a/two words/it's", 1000),
        ("a/.hidden", 0),
    ];
    let many = (0..30).map(|number| (format!("a/file{number}"), number * 100));
    for (name, size) in files
        .map(|(name, size)| (name.to_owned(), size))
        .into_iter()
        .chain(many)
    {
        content::write(&top.join(&name), size)?;
        chown_to_nobody(&top.join(&name))?;
    }
    Ok(())
}

fn mirror(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    mirror_with(context, settings, "mirror tree copy")
}

fn mirror_parallel(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    mirror_with(
        context,
        settings,
        "mirror --parallel=4 --use-pget-n=3 tree copy",
    )
}

fn mirror_with(
    context: &Context<'_>,
    settings: &str,
    command: &str,
) -> Result<Observation, Failure> {
    tree(&context.remote("tree"))?;
    lftp(context, settings, command)?.succeeded()?;
    content::same_tree(&context.remote("tree"), &context.local("copy"))?;
    Ok(Observation::none())
}

fn mirror_back(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    mirror_back_with(context, settings, "mirror --reverse tree copy")
}

fn mirror_back_parallel(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    mirror_back_with(context, settings, "mirror --reverse --parallel=4 tree copy")
}

fn mirror_back_with(
    context: &Context<'_>,
    settings: &str,
    command: &str,
) -> Result<Observation, Failure> {
    tree(&context.local("tree"))?;
    lftp(context, settings, command)?.succeeded()?;
    content::same_tree(&context.local("tree"), &context.remote("copy"))?;
    Ok(Observation::none())
}

/// Sizes and times must be such that a second mirror transfers no file.
fn mirror_again(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    tree(&context.remote("tree"))?;
    lftp(context, settings, "mirror tree copy")?.succeeded()?;
    let again = lftp(context, settings, "mirror --verbose --only-newer tree copy")?.succeeded()?;
    check(!again.output().contains("Transferring"), || {
        format!("it copies again\n{again}")
    })?;
    Ok(Observation::none())
}

fn pget(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", 20_000_001)?;
    lftp(context, settings, "pget -n 5 source -o copy")?.succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}

fn resume_get(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", 3_000_001)?;
    fs::write(context.local("copy"), &fs::read(&expected)?[..1_234_567])?;
    lftp(context, settings, "get -c source -o copy")?.succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}

fn resume_put(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", 3_000_001)?;
    context.remote_file("copy", &fs::read(&expected)?[..1_234_567])?;
    lftp(context, settings, "put -c source -o copy")?.succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn put_over(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    context.remote_sample("copy", 10_000)?;
    let expected = context.local_sample("source", 1000)?;
    lftp(context, settings, "put source -o copy")?.succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn patterns(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    for name in ["one.dat", "two.dat", "three.txt"] {
        context.local_sample(name, 1000)?;
    }
    context.remote_directory("to")?;
    fs::create_dir(context.local("back"))?;
    lftp(
        context,
        settings,
        "mput -O to *.dat\nmget -O back to/t*.dat",
    )?
    .succeeded()?;
    for (name, put, got) in [
        ("one.dat", true, false),
        ("two.dat", true, true),
        ("three.txt", false, false),
    ] {
        let there = (
            context.remote("to").join(name),
            context.local("back").join(name),
        );
        check(there.0.exists() == put, || format!("{name} in mput"))?;
        check(there.1.exists() == got, || format!("{name} in mget"))?;
    }
    content::same(
        &context.local("two.dat"),
        &context.local("back").join("two.dat"),
    )?;
    Ok(Observation::none())
}

fn shown(context: &Context<'_>) -> Result<(), Failure> {
    let file = context.remote_sample("two words", 12_345)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;
    fs::File::options()
        .write(true)
        .open(file)?
        .set_modified(content::long_ago())?;
    context.remote_directory("directory")?;
    Ok(())
}

fn ls(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = lftp(context, settings, "ls")?.succeeded()?;
    let output = listing.output();
    let line = output
        .lines()
        .map(str::trim_end)
        .find(|line| line.ends_with("two words"));
    let line = line.unwrap_or_default();
    check(
        line.starts_with("-rw-r-----") && line.contains("12345"),
        || output.clone(),
    )?;
    Ok(Observation::none())
}

/// lftp prints the listing that it has parsed in its own format.
fn cls(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    shown(context)?;
    let listing = lftp(context, settings, "cls -1 --perms --size --block-size=1")?.succeeded()?;
    listing.prints(&["-rw-r-----", "12345", "two words", "directory"])?;
    Ok(Observation::none())
}

fn cat(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", 300_001)?;
    let output = lftp(context, settings, "cat -b source")?.succeeded()?;
    content::holds(&expected, &output.stdout)?;
    Ok(Observation::none())
}

fn rename(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    context.remote_file("old", "text")?;
    context.remote_directory("directory")?;
    lftp(
        context,
        settings,
        "mv old directory/new\nmv directory \"another name\"",
    )?
    .succeeded()?;
    content::holds(&context.remote("another name/new"), b"text")?;
    Ok(Observation::none())
}

fn chmod(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    let file = context.remote_file("file", "text")?;
    lftp(context, settings, "chmod 604 file")?.succeeded()?;
    let mode = fs::metadata(file)?.permissions().mode() & 0o777;
    check(mode == 0o604, || format!("mode {mode:o}"))?;
    Ok(Observation::none())
}

fn directories(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    lftp(
        context,
        settings,
        "mkdir -p a/b/c\nmkdir \"d e\"\nrmdir a/b/c\nrmdir \"d e\"",
    )?
    .succeeded()?;
    check(context.remote("a/b").is_dir(), || "no a/b".into())?;
    check(!context.remote("a/b/c").exists(), || {
        "a/b/c is there".into()
    })?;
    check(!context.remote("d e").exists(), || "d e is there".into())?;
    Ok(Observation::none())
}

fn remove_tree(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    tree(&context.remote("tree"))?;
    lftp(context, settings, "rm -r tree")?.succeeded()?;
    check(!context.remote("tree").exists(), || {
        "something is left".into()
    })?;
    Ok(Observation::none())
}

fn errors(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    for command in [
        "get nosuch",
        "rm nosuch",
        "rmdir nosuch",
        "cd nosuch",
        "chmod 600 nosuch",
    ] {
        let finished = lftp(context, settings, command)?;
        check(!finished.status.success(), || {
            format!("`{command}` should fail\n{finished}")
        })?;
        finished.prints(&["No such file or directory"])?;
    }
    Ok(Observation::none())
}

fn ipv6(context: &Context<'_>) -> Result<Observation, Failure> {
    let server = context.server(Role::Ipv6)?;
    tree(&context.remote("tree"))?;
    let url = format!("{}/{}", server.base(), context.name(""));
    session(
        context,
        &url,
        "",
        "mirror tree copy\nmirror --reverse copy back",
    )?
    .succeeded()?;
    content::same_tree(&context.remote("tree"), &context.remote("back"))?;
    Ok(Observation::none())
}
