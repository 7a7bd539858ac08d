//! `globus-url-copy`: every size in every mode, in every direction.

use crate::cases::{Case, Context, Observation};
use crate::support::{Client, Failure, content};

/// An empty file, one byte, and sizes around the block sizes of the client and the real server (256 KiB, 1 MiB).
const SIZES: [u64; 8] = [
    0, 1, 262_143, 262_144, 262_145, 1_048_575, 1_048_576, 1_048_577,
];

/// A file of many blocks.
const LARGE: u64 = 100_000_000;

/// Stream mode, and MODE E with one and several connections.
const MODES: [&[&str]; 5] = [&[], &["-fast"], &["-p", "1"], &["-p", "4"], &["-p", "16"]];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        let name = |direction: &str, size: u64| {
            let options = if mode.is_empty() {
                "stream".into()
            } else {
                mode.join(" ")
            };
            format!("globus-url-copy/{direction} {options}, {size} bytes")
        };
        for size in SIZES.into_iter().chain([LARGE]) {
            cases.push(Case::new(name("get", size), move |context| {
                get(context, mode, size)
            }));
            cases.push(Case::new(name("put", size), move |context| {
                put(context, mode, size)
            }));
            cases.extend(Case::third_party(
                name("third-party", size),
                move |context| third_party(context, mode, size),
            ));
        }
    }
    cases
}

/// Downloads one file.
pub(super) fn get(
    context: &Context<'_>,
    options: &[&str],
    size: u64,
) -> Result<Observation, Failure> {
    get_with(context, context.globus_url_copy(options), size)
}

/// The same with a client that has all options except for the URLs.
pub(super) fn get_with(
    context: &Context<'_>,
    client: Client,
    size: u64,
) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", size)?;
    client
        .args([context.from("source"), context.local_url("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}

/// Uploads one file.
pub(super) fn put(
    context: &Context<'_>,
    options: &[&str],
    size: u64,
) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", size)?;
    context
        .globus_url_copy(options)
        .args([context.local_url("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

/// Copies one file from server to server.
pub(super) fn third_party(
    context: &Context<'_>,
    options: &[&str],
    size: u64,
) -> Result<Observation, Failure> {
    third_party_with(context, context.globus_url_copy(options), size)
}

/// The same with a client that has all options except for the URLs.
pub(super) fn third_party_with(
    context: &Context<'_>,
    client: Client,
    size: u64,
) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", size)?;
    client
        .args([context.from("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

/// The source gets PASV and the destination PORT, the reverse of the default. With TLS the destination is the TLS client.
pub(super) fn passive_source(
    context: &Context<'_>,
    options: &[&str],
    size: u64,
) -> Result<Observation, Failure> {
    let client = context
        .globus_url_copy(options)
        .env("GLOBUS_FTP_CLIENT_SOURCE_PASV", "1");
    third_party_with(context, client, size)
}
