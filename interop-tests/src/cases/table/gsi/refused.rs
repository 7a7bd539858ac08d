//! Refused credentials: each is refused for its own reason.
//!
//! `globus-url-copy` itself rejects some of them; a bare OpenSSL client presents
//! them all. The real server sends the reason to the client; ours logs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::variants::{SIZE, USERS};
use crate::cases::{Case, Context, Observation};
use crate::support::{BadKind, Client, Failure, Kind, UserKind, check};

/// Highest versions of TLS.
const VERSIONS: [&str; 2] = ["1.2", "1.3"];

/// The time limit for a line to appear in the log.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("gsi/refused valid credentials log in", good),
        Case::new(
            "gsi/refused subjects within name constraints log in",
            constrained,
        )
        .deviation("it refuses every critical name constraint as an unknown extension"),
    ];
    for bad in BadKind::ALL {
        for version in VERSIONS {
            let name = format!("gsi/refused a certificate {}, TLS {version}", bad.name());
            cases.push(Case::new(name, move |context| {
                openssl(context, bad, version)
            }));
        }
        let name = format!("gsi/refused a certificate {}, globus-url-copy", bad.name());
        cases.push(Case::new(name, move |context| {
            globus_url_copy(context, bad)
        }));
    }
    cases
        .into_iter()
        .map(|case| case.gsi(UserKind::Plain))
        .collect()
}

/// Texts of the reason: in the reply of the real server, and in our log.
fn reasons(bad: BadKind) -> [&'static str; 2] {
    match bad {
        BadKind::UnknownAuthority => [
            "Untrusted self-signed certificate",
            "not in the trust directory",
        ],
        BadKind::Impostor => [
            "Untrusted self-signed certificate",
            "was not made with the key of",
        ],
        BadKind::NoSigningPolicy => ["Error getting signing policy file", "no signing policy"],
        BadKind::OutsideSigningPolicy => [
            "does not match the signing policies",
            "the signing policy of",
        ],
        BadKind::Revoked => ["has been revoked", "was revoked"],
        BadKind::RevocationListExpired => ["CRL has expired", "the revocation list of"],
        BadKind::Expired | BadKind::ProxyExpired => ["has expired", "has expired at"],
        BadKind::NotYetValid => ["is not yet valid", "is not valid before"],
        BadKind::PathLengthExceeded => ["Proxy path length exceeded", "allows 0 further proxies"],
        BadKind::AuthorityAsUser => ["Bad GSS name", "belongs to a certificate authority"],
        BadKind::SignedByUser => [
            "Cannot find trusted CA certificate",
            "is no certificate authority",
        ],
        BadKind::SubjectNotExtended => [
            "does not equal subject name",
            "is not named after its issuer",
        ],
        BadKind::FullBelowLimited => ["with a limited proxy", "was issued by a limited one"],
        BadKind::NameConstraintBroken => ["unknown critical extension", "the name constraints of"],
        BadKind::Unmapped => ["Could not map", "map"],
        BadKind::IndependentProxy => ["Could not map", "independent"],
    }
}

/// The result of a login with the credential of a file.
fn login(context: &Context<'_>, credential: &Path, version: &str) -> Result<String, Failure> {
    let finished = Client::new("python3")
        .arg("-B")
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/gsi_cases.py"))
        .args(["login", "localhost"])
        .arg(context.source().address().port().to_string())
        .arg(credential)
        .arg(version)
        .run()?
        .succeeded()?;
    Ok(finished.output().trim_end().to_owned())
}

fn logs_in(context: &Context<'_>, user: UserKind) -> Result<Observation, Failure> {
    for version in VERSIONS {
        let said = login(context, &context.pki()?.user(user).credential, version)?;
        check(said == "logged in", || format!("{}: {said}", user.name()))?;
    }
    Ok(Observation::none())
}

fn good(context: &Context<'_>) -> Result<Observation, Failure> {
    for user in USERS {
        logs_in(context, user)?;
    }
    Ok(Observation::none())
}

fn constrained(context: &Context<'_>) -> Result<Observation, Failure> {
    logs_in(context, UserKind::Constrained)
}

fn openssl(context: &Context<'_>, bad: BadKind, version: &str) -> Result<Observation, Failure> {
    let credential = context.pki()?.bad(bad);
    let said = login(context, &credential.credential, version)?;
    let expected = match (bad.is_authentic(), context.subject()) {
        (true, _) => "refused by name: 530",
        // RFC 2228 5.3: the reply to security data that fails the check is 535.
        (false, Kind::Gridhaul) => "refused in the handshake: 535",
        (false, Kind::Globus) => "refused in the handshake: 530",
    };
    check(said.starts_with(expected), || {
        format!("expected {expected}: {said}")
    })?;
    let [theirs, ours] = reasons(bad);
    match context.subject() {
        Kind::Globus => check(said.contains(theirs), || {
            format!("expected the reason `{theirs}`: {said}")
        })?,
        Kind::Gridhaul => logged(context, &[&credential.subject, ours])?,
    }
    Ok(Observation::none())
}

/// Waits for a line with all of these words in the server's log.
fn logged(context: &Context<'_>, words: &[&str]) -> Result<(), Failure> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let log = context.source().log();
        let is_there = log
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)));
        if is_there {
            return Ok(());
        }
        check(Instant::now() < deadline, || {
            format!("the log has no line with {words:?}\n{log}")
        })?;
        thread::sleep(Duration::from_millis(10));
    }
}

fn globus_url_copy(context: &Context<'_>, bad: BadKind) -> Result<Observation, Failure> {
    let pki = context.pki()?;
    context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy([context.from("source"), context.local_url("copy")])
        .envs(pki.environment_of(&pki.bad(bad).credential))
        .run()?
        .failed_with(1, &["error: "])?;
    let received = fs::metadata(context.local("copy")).map_or(0, |copy| copy.len());
    check(received == 0, || {
        format!("{received} bytes arrived nevertheless")
    })?;
    Ok(Observation::none())
}
