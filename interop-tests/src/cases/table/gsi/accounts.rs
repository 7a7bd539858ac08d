//! Users act as local accounts: the owner of their files, and their permissions.

use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::variants::{CRASHING_ATTEMPTS, SIZE};
use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Client, Failure, Kind, Launch, UserKind, check, content};

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 17] = [
    ("files belong to the account", owner),
    (
        "files of a second user belong to the other account",
        owner_of_second,
    ),
    ("directories belong to the account", owner_of_directories),
    ("a named account that the user may use", named),
    ("a named account that is the user's first", first_named),
    (
        "a named account that the user may not use is refused",
        foreign,
    ),
    ("root is refused", root),
    ("an account that does not exist is refused", missing_account),
    ("a file of another account may not be read", unreadable),
    ("a file of another account may not be written", unwritable),
    ("a file of another account may not be removed", unremovable),
    ("the host's subject is expected, -ss and -ds", right_subject),
    ("another subject is expected, -ss", wrong_source_subject),
    (
        "another subject is expected, -ds",
        wrong_destination_subject,
    ),
    (
        "users without a certificate are refused by name",
        without_certificate,
    ),
    (
        "anonymous users and certificates together, configured by the environment",
        both,
    ),
    (
        "certificates are refused where there is no host certificate",
        without_host_certificate,
    ),
];

pub(super) fn cases() -> Vec<Case> {
    CASES
        .into_iter()
        .map(|(name, run)| Case::new(format!("gsi/accounts {name}"), run))
        .map(|case| case.gsi(UserKind::Plain).crashing(CRASHING_ATTEMPTS))
        .collect()
}

/// Cases with several accounts need root.
fn as_root(context: &Context<'_>) -> Result<(), Failure> {
    if !context.pki()?.accounts().differ() {
        return Err(Failure::Unable(
            "only root can act for other accounts".into(),
        ));
    }
    set_permissions(context.remote(""), Permissions::from_mode(0o777))?;
    Ok(())
}

/// A URL at the destination that names an account.
fn account_url(context: &Context<'_>, account: &str, name: &str) -> String {
    context
        .to(name)
        .replace("gsiftp://", &format!("gsiftp://{account}@"))
}

/// An upload by a user.
fn put(
    context: &Context<'_>,
    user: UserKind,
    options: &[&str],
    url: &str,
) -> Result<Client, Failure> {
    context.local_sample("source", SIZE)?;
    let client = context
        .globus_url_copy(options)
        .args([context.local_url("source").as_str(), url])
        .envs(context.pki()?.environment(user));
    Ok(client)
}

fn belongs_to(path: &Path, account: &str) -> Result<(), Failure> {
    let found = fs::metadata(path)?;
    let printed = |flag| -> Result<String, Failure> {
        let finished = Client::new("id").args([flag, account]).run()?.succeeded()?;
        Ok(finished.output().trim_end().to_owned())
    };
    let expected = (printed("-u")?, printed("-g")?);
    let found = (found.uid().to_string(), found.gid().to_string());
    check(found == expected, || {
        format!(
            "{} belongs to {found:?}, not to {account}, {expected:?}",
            path.display()
        )
    })
}

fn owner(context: &Context<'_>) -> Result<Observation, Failure> {
    as_root(context)?;
    put(context, UserKind::Plain, &[], &context.to("copy"))?
        .run()?
        .succeeded()?;
    content::same(&context.local("source"), &context.remote("copy"))?;
    belongs_to(&context.remote("copy"), &context.pki()?.accounts().first)?;
    Ok(Observation::none())
}

fn owner_of_second(context: &Context<'_>) -> Result<Observation, Failure> {
    as_root(context)?;
    put(context, UserKind::Second, &[], &context.to("copy"))?
        .run()?
        .succeeded()?;
    content::same(&context.local("source"), &context.remote("copy"))?;
    belongs_to(&context.remote("copy"), &context.pki()?.accounts().second)?;
    Ok(Observation::none())
}

fn owner_of_directories(context: &Context<'_>) -> Result<Observation, Failure> {
    as_root(context)?;
    put(context, UserKind::Second, &["-cd"], &context.to("a/b/copy"))?
        .run()?
        .succeeded()?;
    for name in ["a", "a/b", "a/b/copy"] {
        belongs_to(&context.remote(name), &context.pki()?.accounts().second)?;
    }
    Ok(Observation::none())
}

fn named(context: &Context<'_>) -> Result<Observation, Failure> {
    as_root(context)?;
    let first = &context.pki()?.accounts().first;
    put(
        context,
        UserKind::Second,
        &[],
        &account_url(context, first, "copy"),
    )?
    .run()?
    .succeeded()?;
    belongs_to(&context.remote("copy"), first)?;
    Ok(Observation::none())
}

fn first_named(context: &Context<'_>) -> Result<Observation, Failure> {
    as_root(context)?;
    let second = &context.pki()?.accounts().second;
    put(
        context,
        UserKind::Second,
        &[],
        &account_url(context, second, "copy"),
    )?
    .run()?
    .succeeded()?;
    belongs_to(&context.remote("copy"), second)?;
    Ok(Observation::none())
}

/// An upload to an account that the user may not use.
fn refused_account(context: &Context<'_>, account: &str) -> Result<Observation, Failure> {
    put(
        context,
        UserKind::Plain,
        &[],
        &account_url(context, account, "copy"),
    )?
    .run()?
    .failed_with(1, &["530", "Login incorrect"])?;
    check(!context.remote("copy").exists(), || {
        "a file was made".into()
    })?;
    Ok(Observation::none())
}

fn foreign(context: &Context<'_>) -> Result<Observation, Failure> {
    refused_account(context, &context.pki()?.accounts().foreign)
}

fn root(context: &Context<'_>) -> Result<Observation, Failure> {
    refused_account(context, "root")
}

fn missing_account(context: &Context<'_>) -> Result<Observation, Failure> {
    refused_account(context, "nosuchaccount")
}

/// A file of the account that runs the tests, which is root.
fn protected(context: &Context<'_>) -> Result<(), Failure> {
    as_root(context)?;
    fs::create_dir(context.remote("roots"))?;
    for path in ["roots/file", "file"] {
        content::write(&context.remote(path), SIZE)?;
        set_permissions(context.remote(path), Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn unreadable(context: &Context<'_>) -> Result<Observation, Failure> {
    protected(context)?;
    for options in [&[][..], &["-p", "2"], &["-dcpriv"]] {
        context
            .globus_url_copy(options)
            .args([context.from("file"), context.local_url("copy")])
            .run()?
            .failed_with(
                1,
                &["the server responded with an error", "Permission denied"],
            )?;
    }
    Ok(Observation::none())
}

fn unwritable(context: &Context<'_>) -> Result<Observation, Failure> {
    protected(context)?;
    for name in ["file", "roots/new"] {
        put(context, UserKind::Plain, &[], &context.to(name))?
            .run()?
            .failed_with(
                1,
                &["the server responded with an error", "Permission denied"],
            )?;
    }
    let length = fs::metadata(context.remote("file"))?.len();
    check(length == SIZE, || {
        format!("the file has {length} bytes now")
    })?;
    check(!context.remote("roots/new").exists(), || {
        "a file was made".into()
    })?;
    Ok(Observation::none())
}

fn unremovable(context: &Context<'_>) -> Result<Observation, Failure> {
    protected(context)?;
    Client::new("gfal-rm")
        .arg(context.from("roots/file"))
        .envs(context.environment())
        .run()?
        .failed_with(13, &["Permission denied"])?;
    check(context.remote("roots/file").exists(), || {
        "it is gone".into()
    })?;
    Ok(Observation::none())
}

const HOST_SUBJECT: &str = "/DC=test/O=Grid/CN=localhost";
const OTHER_SUBJECT: &str = "/DC=test/O=Grid/CN=other.host";

fn right_subject(context: &Context<'_>) -> Result<Observation, Failure> {
    put(
        context,
        UserKind::Plain,
        &["-ds", HOST_SUBJECT],
        &context.to("copy"),
    )?
    .run()?
    .succeeded()?;
    context
        .globus_url_copy(["-ss", HOST_SUBJECT, &context.from("copy")])
        .arg(context.local_url("back"))
        .run()?
        .succeeded()?;
    content::same(&context.local("source"), &context.local("back"))?;
    Ok(Observation::none())
}

fn wrong_source_subject(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(["-ss", OTHER_SUBJECT, &context.from("source")])
        .arg(context.local_url("copy"))
        .run()?
        .failed_with(1, &["do not match"])?;
    Ok(Observation::none())
}

fn wrong_destination_subject(context: &Context<'_>) -> Result<Observation, Failure> {
    put(
        context,
        UserKind::Plain,
        &["-ds", OTHER_SUBJECT],
        &context.to("copy"),
    )?
    .run()?
    .failed_with(1, &["do not match"])?;
    check(!context.remote("copy").exists(), || {
        "a file was made".into()
    })?;
    Ok(Observation::none())
}

/// `ftp://` to a server that accepts certificates only.
fn without_certificate(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    let address = format!("ftp://{}", context.source().address());
    let url = context
        .from("source")
        .replace(&context.source().base(), &address);
    context
        .globus_url_copy([url, context.local_url("copy")])
        .run()?
        .failed_with(1, &["530", "Must perform GSSAPI authentication"])?;
    Ok(Observation::none())
}

/// `gsiftp://` to a server that accepts anonymous users only.
fn without_host_certificate(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    let server = context.server(Role::Main)?;
    let url = server
        .url(&context.name("source"))
        .replace("ftp://", "gsiftp://");
    context
        .globus_url_copy([url, context.local_url("copy")])
        .run()?
        .failed_with(1, &["the server responded with an error", "5"])?;
    Ok(Observation::none())
}

/// Both programs read the same variables.
fn both(context: &Context<'_>) -> Result<Observation, Failure> {
    let pki = context.pki()?;
    let expected = context.remote_sample("source", SIZE)?;
    let arguments: &[&str] = match context.subject() {
        Kind::Gridhaul => &["--gsi", "--allow-disabled-login"],
        Kind::Globus => &["-allow-disabled-login"],
    };
    let launch = arguments.iter().fold(
        Launch::new(context.subject(), context.remote("")),
        |launch, argument| launch.arg(*argument),
    );
    let server = launch
        .env("X509_USER_CERT", pki.host_certificate())
        .env("X509_USER_KEY", pki.host_key())
        .env("X509_CERT_DIR", pki.trust())
        .env("GRIDMAP", pki.gridmap())
        .start()?;
    let anonymous = server.url("source");
    let secure = anonymous.replace("ftp://127.0.0.1", "gsiftp://localhost");
    for (url, copy) in [(anonymous, "anonymous"), (secure, "secure")] {
        context
            .globus_url_copy([url, context.local_url(copy)])
            .run()?
            .succeeded()?;
        content::same(&expected, &context.local(copy))?;
    }
    Ok(Observation::none())
}
