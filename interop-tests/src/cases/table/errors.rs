//! `globus-url-copy`: error replies must contain the texts that clients look for.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Client, Failure, Launch, check, content};

/// Stream mode and MODE E.
const MODES: [&[&str]; 2] = [&[], &["-p", "2"]];

const NOT_FOUND: &str = "No such file or directory";
const DENIED: &str = "Permission denied";
const IS_DIRECTORY: &str = "Is a directory";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        cases.extend(with_client(mode));
        cases.extend(third_party(mode));
    }
    cases.extend(without_mode());
    cases
}

fn case_name(mode: &[&str], what: &str) -> String {
    format!("globus-url-copy/errors {what} {}", mode.join(" "))
        .trim_end()
        .to_owned()
}

/// Gets and puts.
fn with_client(mode: &'static [&'static str]) -> Vec<Case> {
    let get = |what: &str, source: &'static str, word: &'static str| {
        Case::new(case_name(mode, &format!("get {what}")), move |context| {
            fails(
                context,
                mode,
                [context.from(source), context.local_url("copy")],
                word,
            )
        })
    };
    let put = |what: &str, destination: &'static str, word: &'static str| {
        Case::new(case_name(mode, &format!("put {what}")), move |context| {
            fails(
                context,
                mode,
                [context.local_url("source"), context.to(destination)],
                word,
            )
        })
    };
    vec![
        get("of a missing file", "nosuch", NOT_FOUND),
        get("from a missing directory", "nosuch/file", NOT_FOUND),
        get("below a file", "source/file", "Not a directory"),
        get("of a file that may not be read", "secret", DENIED),
        Case::new(case_name(mode, "get of a directory"), move |context| {
            get_directory(context, mode)
        }),
        put("into a missing directory", "nosuch/file", NOT_FOUND),
        put("below a file", "source/file", "Not a directory"),
        put("over a file that may not be written", "fixed", DENIED),
        put(
            "into a directory that may not be written",
            "closed/file",
            DENIED,
        ),
        put("over a directory", "directory", IS_DIRECTORY),
        Case::new(case_name(mode, "put onto a full disk"), move |context| {
            full_disk(context, mode)
        }),
        Case::new(
            case_name(mode, "put by a user who may only read"),
            move |context| read_only(context, mode),
        ),
    ]
}

/// Copies from server to server.
fn third_party(mode: &'static [&'static str]) -> Vec<Case> {
    let case = |what: &str, source: &'static str, destination: &'static str, word: &'static str| {
        Case::third_party(
            case_name(mode, &format!("third-party {what}")),
            move |context| third_party_fails(context, mode, source, destination, word),
        )
    };
    [
        case("of a missing file", "nosuch", "copy", NOT_FOUND),
        case(
            "into a missing directory",
            "source",
            "nosuch/file",
            NOT_FOUND,
        ),
        case("of a file that may not be read", "secret", "copy", DENIED),
        case("into a closed directory", "source", "closed/file", DENIED),
    ]
    .concat()
}

/// Listings, logins, and options for several files or attempts.
fn without_mode() -> Vec<Case> {
    vec![
        Case::new(
            "globus-url-copy/errors list of a missing directory",
            |context| {
                prepare(context)?;
                context
                    .globus_url_copy(["-list".into(), context.from("nosuch/")])
                    .run()?
                    .failed_with(1, &["550", NOT_FOUND])?;
                Ok(Observation::none())
            },
        ),
        Case::new(
            "globus-url-copy/errors list of a directory that may not be read",
            |context| {
                prepare(context)?;
                context
                    .globus_url_copy(["-list".into(), context.from("dark/")])
                    .run()?
                    .failed_with(1, &[DENIED])?;
                Ok(Observation::none())
            },
        ),
        Case::new(
            "globus-url-copy/errors an unknown name and password",
            wrong_password,
        ),
        Case::new(
            "globus-url-copy/errors -c continues after a missing file",
            continues,
        ),
        Case::new(
            "globus-url-copy/errors -rst gives up after its retries",
            |context| {
                let options = ["-rst", "-rst-retries", "1", "-rst-interval", "1"];
                fails(
                    context,
                    &options,
                    [context.from("nosuch"), context.local_url("copy")],
                    NOT_FOUND,
                )
            },
        ),
    ]
}

/// Makes the files of the cases: missing permissions and missing names.
fn prepare(context: &Context<'_>) -> Result<(), Failure> {
    context.local_sample("source", 1_000_000)?;
    context.remote_sample("source", 1_000_000)?;
    context.remote_sample("fixed", 10)?;
    context.remote_sample("secret", 10)?;
    for name in ["directory", "closed", "dark"] {
        context.remote_directory(name)?;
    }
    for (name, mode) in [
        ("fixed", 0o444),
        ("secret", 0),
        ("closed", 0o555),
        ("dark", 0o311),
    ] {
        fs::set_permissions(context.remote(name), Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// The copy must fail with status 1 and `word`, and must not change existing files.
fn fails(
    context: &Context<'_>,
    options: &[&str],
    urls: [String; 2],
    word: &str,
) -> Result<Observation, Failure> {
    prepare(context)?;
    let finished = context.globus_url_copy(options).args(urls).run()?;
    finished.failed_with(1, &["the server responded with an error", word])?;
    let fixed = fs::metadata(context.remote("fixed"))?.len();
    check(fixed == 10, || {
        format!("the protected file has {fixed} bytes now")
    })?;
    content::same(&context.local("source"), &context.remote("source"))?;
    Ok(Observation::none())
}

/// When one server aborts, the other may lose its data connection and report that first.
fn third_party_fails(
    context: &Context<'_>,
    options: &[&str],
    source: &str,
    destination: &str,
    word: &str,
) -> Result<Observation, Failure> {
    prepare(context)?;
    let finished = context
        .globus_url_copy(options)
        .args([context.from(source), context.to(destination)])
        .run()?;
    let seen = LOST
        .into_iter()
        .find(|lost| finished.output().contains(lost))
        .unwrap_or(word);
    finished.failed_with(1, &["the server responded with an error", seen])?;
    content::same(&context.local("source"), &context.remote("source"))?;
    Ok(Observation::none())
}

/// The errors of a data connection when the other end aborts.
const LOST: [&str; 3] = [
    "Connection refused",
    "Connection reset by peer",
    "Broken pipe",
];

/// In MODE E the client may see the end of the data channel before the reply.
fn get_directory(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    prepare(context)?;
    let word = if mode.is_empty() {
        IS_DIRECTORY
    } else {
        "error: "
    };
    context
        .globus_url_copy(mode)
        .args([context.from("directory"), context.local_url("copy")])
        .run()?
        .failed_with(1, &[word])?;
    Ok(Observation::none())
}

/// A file of 3 MB does not fit into a file system of 1 MiB.
///
/// The server runs in its own mount namespace, so that the small file system is removed with it.
fn full_disk(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    context.local_sample("source", 3_000_000)?;
    let mount = Client::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]);
    if !mount.run()?.status.success() {
        return Err(Failure::Unable(
            "only root may mount a small file system".into(),
        ));
    }
    let root = context.remote_directory("small")?;
    let server = Launch::new(context.subject(), &root)
        .through("unshare")
        .through("--mount")
        .through("/bin/sh")
        .through("-c")
        .through("mount -t tmpfs -o size=1m,mode=777 none \"$0\" && exec \"$@\"")
        .through(&root)
        .start()?;
    let finished = context
        .globus_url_copy(mode)
        .args([context.local_url("source"), server.url("copy")])
        .run()?;
    // The server closes the data connection as well, and the client may notice that first.
    let word = LOST
        .into_iter()
        .find(|lost| finished.output().contains(lost));
    let word = word.unwrap_or("No space left on device");
    finished.failed_with(1, &[word])?;
    Ok(Observation::none())
}

fn read_only(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    prepare(context)?;
    let server = context.server(Role::ReadOnly)?;
    context
        .globus_url_copy(mode)
        .args([
            context.local_url("source"),
            server.url(&context.name("copy")),
        ])
        .run()?
        .failed_with(1, &["the server responded with an error"])?;
    check(!context.remote("copy").exists(), || {
        "a file was made".into()
    })?;
    context
        .globus_url_copy(mode)
        .args([
            server.url(&context.name("source")),
            context.local_url("copy"),
        ])
        .run()?
        .succeeded()?;
    content::same(&context.remote("source"), &context.local("copy"))?;
    Ok(Observation::none())
}

fn wrong_password(context: &Context<'_>) -> Result<Observation, Failure> {
    prepare(context)?;
    let url = context
        .from("source")
        .replace("ftp://", "ftp://joe:secret@");
    context
        .globus_url_copy([url, context.local_url("copy")])
        .run()?
        .failed_with(1, &["530", "Login incorrect"])?;
    Ok(Observation::none())
}

/// The second of three files is missing; the third must still arrive.
fn continues(context: &Context<'_>) -> Result<Observation, Failure> {
    let names = ["first", "second", "third"];
    for name in ["first", "third"] {
        context.remote_sample(name, 1000)?;
    }
    let pairs = names.map(|name| format!("{} {}\n", context.from(name), context.local_url(name)));
    fs::write(context.local("list"), pairs.concat())?;
    context
        .globus_url_copy(["-c", "-f", "list"])
        .run()?
        .failed_with(1, &[NOT_FOUND])?;
    for name in ["first", "third"] {
        content::same(&context.remote(name), &context.local(name))?;
    }
    Ok(Observation::none())
}
