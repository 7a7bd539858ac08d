//! Third-party copies: each server authenticates the other.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use super::variants::{PROTECTIONS, SIZE, USERS, options};
use crate::cases::table::transfers::{passive_source, third_party, third_party_with};
use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, Launch, UserKind, content};

/// Stream mode, and MODE E with a cached channel and with several channels.
const MODES: [[&str; 2]; 4] = [["", ""], ["-fast", ""], ["-p", "2"], ["-p", "8"]];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for protection in PROTECTIONS {
        for [flag, channels] in MODES {
            let options = options(&[protection, flag, channels]);
            let words = options.join(" ");
            let for_two = options.clone();
            cases.extend(of(UserKind::Spaces, &words, move |context| {
                third_party(context, &options, SIZE)
            }));
            cases.extend(of(
                UserKind::Plain,
                &format!("-src-cred -dst-cred {words}"),
                move |context| two_users(context, &for_two),
            ));
        }
    }
    for user in USERS.into_iter().chain([UserKind::Second]) {
        let name = format!("{} -p 2", user.name());
        let of_user = of(user, &name, |context| {
            open_to_all(context)?;
            third_party(context, &["-p", "2"], SIZE)
        });
        cases.extend(of_user.map(Case::rsa_delegations));
    }
    for options in [&[][..], &["-dcpriv", "-p", "4"]] {
        let words = options.join(" ");
        cases.extend(of(
            UserKind::Plain,
            &format!("-data-cred auto {words}"),
            move |context| third_party(context, &[&["-data-cred", "auto"], options].concat(), SIZE),
        ));
        cases.extend(of(
            UserKind::Plain,
            &format!("-data-cred auto, two users {words}"),
            move |context| two_users(context, &[&["-data-cred", "auto"], options].concat()),
        ));
        cases.extend(of(
            UserKind::Plain,
            &format!("-data-cred of another user {words}"),
            move |context| data_credential(context, options),
        ));
        let name = format!("gsi/third-party -data-cred auto of anonymous users {words}");
        cases.extend(Case::third_party(name, move |context| {
            anonymous(context, options)
        }));
    }
    cases.extend(of(UserKind::Spaces, "passive source", |context| {
        passive_source(context, &[], SIZE)
    }));
    cases.extend(of(
        UserKind::Spaces,
        "passive source -dcpriv -p 4",
        |context| passive_source(context, &["-dcpriv", "-p", "4"], SIZE),
    ));
    cases
}

/// The case for each pair of servers.
fn of<F>(user: UserKind, name: &str, run: F) -> impl Iterator<Item = Case>
where
    F: Fn(&Context<'_>) -> Result<Observation, Failure> + Send + Sync + Clone + 'static,
{
    Case::third_party(format!("gsi/third-party {name}"), run)
        .into_iter()
        .map(move |case| case.gsi(user))
}

/// Makes the case's directory writable for every account.
fn open_to_all(context: &Context<'_>) -> Result<(), Failure> {
    set_permissions(context.remote(""), Permissions::from_mode(0o777))?;
    Ok(())
}

/// Different users log in to the two servers, and each server gets the subject to expect at the other end.
fn two_users(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    open_to_all(context)?;
    let pki = context.pki()?;
    let credential = |user| pki.user(user).credential.as_os_str();
    let client = context
        .globus_url_copy(options)
        .arg("-src-cred")
        .arg(credential(UserKind::Plain))
        .arg("-dst-cred")
        .arg(credential(UserKind::Second));
    third_party_with(context, client, SIZE)
}

/// Data channels use another credential than the logins.
fn data_credential(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let credential = &context.pki()?.user(UserKind::Second).credential;
    let client = context
        .globus_url_copy(options)
        .arg("-data-cred")
        .arg(credential);
    third_party_with(context, client, SIZE)
}

/// A server that trusts a client accepts its credential for data channels even if it presented none.
fn anonymous(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let trust = context.pki()?.trust();
    let start = |kind| {
        Launch::new(kind, context.remote(""))
            .env("X509_CERT_DIR", &trust)
            .start()
    };
    let (source, destination) = (
        start(context.source().kind())?,
        start(context.destination().kind())?,
    );
    let expected = context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(["-data-cred", "auto"])
        .args(options)
        .args([source.url("source"), destination.url("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}
