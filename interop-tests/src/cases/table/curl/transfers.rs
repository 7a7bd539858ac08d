//! Transfers and errors.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::client::{SMALL, curl};
use crate::cases::table::deviations::DROPS;
use crate::cases::table::names::NAMES;
use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Failure, check, content};

/// Several blocks, and not a multiple of any block size.
const SIZE: u64 = 3_000_001;

/// The number of files in one session. With more, the real server stops accepting curl's data
/// connections.
const MANY: u64 = 20;

/// Options for data connections and for the path to a file. None may change the result.
const OPTIONS: [&[&str]; 8] = [
    &[],
    &["--disable-epsv"],
    &["--ftp-port", "-"],
    &["--ftp-port", "-", "--disable-eprt"],
    &["--ftp-method", "nocwd"],
    &["--ftp-method", "singlecwd"],
    &["--ftp-skip-pasv-ip", "--disable-epsv"],
    &["--limit-rate", "20M"],
];

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 10] = [
    ("get of an empty file", |context| {
        get(context, &[], "source", 0)
    }),
    ("put of an empty file", |context| {
        put(context, &[], "copy", 0)
    }),
    ("put over a longer file", put_over),
    ("put appended", append),
    ("put --ftp-create-dirs", create_directories),
    ("put into a missing directory", put_into_missing),
    ("get --use-ascii", get_ascii),
    ("get of a missing file", missing),
    ("get of a file that may not be read", denied),
    ("many files in one session", many),
];

/// Cases with files that contain line ends.
const BINARY: [(&str, Check); 5] = [
    ("get of a part", range),
    ("get resumed", resume_get),
    ("put resumed", resume_put),
    ("put of standard input", put_input),
    ("-6 get, put and list", ipv6),
];

const TYPE_TOO_LATE: &str = "it ignores a TYPE I that comes after EPSV or PASV";

const SPACES: &str = "it drops spaces before a name";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for options in OPTIONS {
        let name = |what: &str| {
            format!("curl/{what} {}", options.join(" "))
                .trim_end()
                .to_owned()
        };
        let both = [
            Case::new(name("get"), move |context| {
                get(context, options, "source", SIZE)
            }),
            Case::new(name("put"), move |context| {
                put(context, options, "copy", SIZE)
            }),
        ];
        cases.extend(both.map(|case| case.deviation(TYPE_TOO_LATE)));
    }
    // curl refuses control characters itself, and sends the bare name, where a tilde means the home
    // directory.
    let plain = |name: &str| !name.contains('\t') && !name.starts_with('~');
    for (word, name) in NAMES.into_iter().filter(|(_, name)| plain(name)) {
        let both = [
            Case::new(format!("curl/get, {word}"), move |context| {
                get(context, &[], name, SMALL)
            }),
            Case::new(format!("curl/put, {word}"), move |context| {
                put(context, &[], name, SMALL)
            }),
        ];
        let odd = name.starts_with(' ');
        cases.extend(both.map(|case| if odd { case.deviation(SPACES) } else { case }));
    }
    cases.extend(CASES.map(|(name, run)| Case::new(format!("curl/{name}"), run)));
    let binary = BINARY.map(|(name, run)| Case::new(format!("curl/{name}"), run));
    cases.extend(binary.map(|case| case.deviation(TYPE_TOO_LATE)));
    cases.push(Case::new("curl/put and get, UTF-8", utf8).deviation(DROPS));
    cases
}

fn get(
    context: &Context<'_>,
    options: &[&str],
    name: &str,
    size: u64,
) -> Result<Observation, Failure> {
    let expected = context.remote_sample(name, size)?;
    curl(context, options)
        .args(["--output", "copy", &context.home_url(name)])
        .run()?
        .succeeded()?;
    if size == 0 {
        // curl makes no file when it receives no byte.
        return Ok(Observation::none());
    }
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}

fn put(
    context: &Context<'_>,
    options: &[&str],
    name: &str,
    size: u64,
) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", size)?;
    curl(context, options)
        .args(["--upload-file", "source", &context.home_url(name)])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote(name))?;
    Ok(Observation::none())
}

/// Ranges with and without an end; at the end curl closes the data connection early.
fn range(context: &Context<'_>) -> Result<Observation, Failure> {
    let source = fs::read(context.remote_sample("source", SIZE)?)?;
    for (range, expected) in [
        ("1000000-", &source[1_000_000..]),
        ("100-999999", &source[100..1_000_000]),
    ] {
        let url = context.home_url("source");
        curl(context, ["--range", range, "--output", "copy", &url])
            .run()?
            .succeeded()?;
        content::holds(&context.local("copy"), expected)?;
    }
    Ok(Observation::none())
}

fn resume_get(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", SIZE)?;
    fs::write(context.local("copy"), &fs::read(&expected)?[..1_234_567])?;
    let url = context.home_url("source");
    curl(context, ["--continue-at", "-", "--output", "copy", &url])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}

fn resume_put(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", SIZE)?;
    context.remote_file("copy", &fs::read(&expected)?[..1_234_567])?;
    let url = context.home_url("copy");
    curl(
        context,
        ["--continue-at", "-", "--upload-file", "source", &url],
    )
    .run()?
    .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn append(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_file("copy", "begun ")?;
    fs::write(context.local("source"), "and ended")?;
    let url = context.home_url("copy");
    curl(context, ["--append", "--upload-file", "source", &url])
        .run()?
        .succeeded()?;
    content::holds(&context.remote("copy"), b"begun and ended")?;
    Ok(Observation::none())
}

fn create_directories(context: &Context<'_>) -> Result<Observation, Failure> {
    put(context, &["--ftp-create-dirs"], "new/two words/copy", 1000)
}

fn put_into_missing(context: &Context<'_>) -> Result<Observation, Failure> {
    context.local_sample("source", 1000)?;
    let url = context.home_url("nosuch/copy");
    // "Server denied you to change to the given directory".
    curl(context, ["--upload-file", "source", &url])
        .run()?
        .failed_with(9, &["denied"])?;
    check(!context.remote("nosuch").exists(), || "it was made".into())?;
    Ok(Observation::none())
}

fn put_over(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("copy", SIZE)?;
    put(context, &[], "copy", 1000)
}

fn put_input(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", SIZE)?;
    curl(context, ["--upload-file", "-", &context.home_url("copy")])
        .input(fs::read(&expected)?)
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

/// TYPE A puts CR LF on the wire, and curl does not convert it.
fn get_ascii(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_file("source", "one\ntwo\n")?;
    let output = curl(context, ["--use-ascii", &context.home_url("source")])
        .run()?
        .succeeded()?;
    let text = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    check(text == "one\ntwo\n", || format!("not the text: {text:?}"))?;
    Ok(Observation::none())
}

fn missing(context: &Context<'_>) -> Result<Observation, Failure> {
    // "Couldn't find remote file".
    curl(context, ["--output", "copy", &context.home_url("nosuch")])
        .run()?
        .failed_with(78, &[])?;
    check(!context.local("copy").exists(), || "a file was made".into())?;
    Ok(Observation::none())
}

fn denied(context: &Context<'_>) -> Result<Observation, Failure> {
    let path = context.remote_sample("source", SMALL)?;
    fs::set_permissions(path, Permissions::from_mode(0o000))?;
    let finished = curl(context, ["--output", "copy", &context.home_url("source")]).run()?;
    check(!finished.status.success(), || {
        format!("a file without read permission was read\n{finished}")
    })?;
    check(!context.local("copy").exists(), || "a file was made".into())?;
    Ok(Observation::none())
}

fn ipv6(context: &Context<'_>) -> Result<Observation, Failure> {
    let server = context.server(Role::Ipv6)?;
    let expected = context.local_sample("source", SIZE)?;
    let url = format!("{}/{}", server.base(), context.name(""));
    for port in [&[][..], &["--ftp-port", "-"]] {
        curl(context, port)
            .args(["--upload-file", "source", &format!("{url}copy")])
            .run()?
            .succeeded()?;
        content::same(&expected, &context.remote("copy"))?;
        curl(context, port)
            .args(["--output", "back", &format!("{url}copy")])
            .run()?
            .succeeded()?;
        content::same(&expected, &context.local("back"))?;
    }
    curl(context, ["--list-only", &url])
        .run()?
        .succeeded()?
        .prints(&["copy"])?;
    Ok(Observation::none())
}

fn utf8(context: &Context<'_>) -> Result<Observation, Failure> {
    for name in ["ünï-漢字-🚀", "caf\u{e9} con leche"] {
        put(context, &[], name, SMALL)?;
        get(context, &[], name, SMALL)?;
    }
    Ok(Observation::none())
}

fn many(context: &Context<'_>) -> Result<Observation, Failure> {
    let mut arguments = Vec::new();
    for number in 0..MANY {
        let name = format!("file{number}");
        context.remote_sample(&name, 3 * number)?;
        arguments.extend(["--output".into(), name.clone(), context.home_url(&name)]);
    }
    curl(context, arguments).run()?.succeeded()?;
    for number in 1..MANY {
        let name = format!("file{number}");
        content::same(&context.remote(&name), &context.local(&name))?;
    }
    Ok(Observation::none())
}
