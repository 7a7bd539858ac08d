//! JGlobus, the GridFTP client of Java programs.
//!
//! The program that drives it is in this crate's `java` directory; Java compiles it when it starts. One
//! start does several transfers, because each takes seconds.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::cases::{Case, Context, Observation};
use crate::support::{Client, Failure, Server, UserKind, content};

use super::variants::SIZE;

/// The libraries, as Debian names their files.
const LIBRARIES: [&str; 9] = [
    "jglobus-gridftp",
    "jglobus-gss",
    "jglobus-ssl-proxies",
    "jglobus-jsse",
    "bcprov",
    "commons-codec",
    "commons-io",
    "commons-logging",
    "log4j-1.2",
];

/// Enough for six transfers, the start of Java and the compiler on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Options of downloads. In MODE E the client listens, and JGlobus cannot be the accepting
/// side of an authenticated data channel.
const GETS: [&str; 6] = [
    "stream",
    "stream,dcau=none",
    "stream,protection=safe",
    "stream,protection=private",
    "extended,dcau=none",
    "extended,dcau=none,parallel=4",
];

/// Options of uploads.
const PUTS: [&str; 6] = [
    "stream",
    "stream,dcau=none",
    "stream,protection=private",
    "extended",
    "extended,parallel=4",
    "extended,parallel=2,protection=private",
];

/// Options of third-party copies.
const COPIES: [&str; 5] = [
    "stream",
    "stream,dcau=none",
    "stream,protection=private",
    "extended,parallel=2",
    "extended,parallel=2,protection=private",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("jglobus/get", get),
        Case::new("jglobus/put", put),
        Case::new("jglobus/names", |context| {
            jglobus(context, "names", "", "", &["stream"])
        }),
    ];
    cases.extend(Case::third_party("jglobus/copy", copy));
    cases
        .into_iter()
        .map(|case| case.gsi(UserKind::Spaces).rsa_delegations())
        .collect()
}

/// All kinds of downloads.
pub(in crate::cases::table) fn get(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", SIZE)?;
    let observation = jglobus(context, "get", "source", context.local("copy"), &GETS)?;
    for options in GETS {
        content::same(&expected, &context.local(&format!("copy.{options}")))?;
    }
    Ok(observation)
}

/// All kinds of uploads.
pub(in crate::cases::table) fn put(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", SIZE)?;
    let observation = jglobus(context, "put", "copy", &expected, &PUTS)?;
    for options in PUTS {
        content::same(&expected, &context.remote(&format!("copy.{options}")))?;
    }
    Ok(observation)
}

/// All kinds of third-party copies.
pub(in crate::cases::table) fn copy(context: &Context<'_>) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", SIZE)?;
    let destination = context.destination().path(&context.name("copy"));
    let observation = jglobus(context, "copy", "source", destination, &COPIES)?;
    for options in COPIES {
        content::same(&expected, &context.remote(&format!("copy.{options}")))?;
    }
    Ok(observation)
}

/// Runs one action with each of `options`: with the file `remote` at the source, and `other` here or
/// at the destination.
fn jglobus(
    context: &Context<'_>,
    action: &str,
    remote: &str,
    other: impl Into<OsString>,
    options: &[&str],
) -> Result<Observation, Failure> {
    let pki = context.pki()?;
    let mut trust = OsString::from("-DX509_CERT_DIR=");
    trust.push(pki.trust());
    let port = |server: &Server| server.address().port().to_string();
    let finished = Client::new("java")
        // Java starts faster without its optimising compiler.
        .arg("-XX:TieredStopAtLevel=1")
        .arg(trust)
        .args(["--class-path".into(), LIBRARIES.map(path).join(":")])
        .arg(
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("java")
                .join("JGlobus.java"),
        )
        .arg(&pki.user(UserKind::Spaces).credential)
        .arg("localhost")
        .args([port(context.source()), port(context.destination())])
        .args([action, &context.path(remote)])
        .arg(other)
        .args(options.iter().copied())
        .time_limit(TIME_LIMIT)
        .run()?
        .succeeded()?;
    let stdout = String::from_utf8_lossy(&finished.stdout);
    Ok(Observation(stdout.into_owned()))
}

fn path(library: &str) -> String {
    format!("/usr/share/java/{library}.jar")
}
