//! `globus-url-copy`: every option that changes the commands to the server, with one file at a time.

use std::fs;

use super::transfers::{get, get_with, passive_source, put, third_party};
use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Failure, check, content, url};

/// Several blocks of every block size in use, and not a multiple of any.
const SIZE: u64 = 3_000_001;

/// Options that must not change the copy.
const OPTIONS: [&[&str]; 18] = [
    &["-tcp-bs", "65536"],
    &["-p", "2", "-tcp-bs", "262144"],
    &["-bs", "65536"],
    &["-p", "2", "-bs", "4000"],
    &["-stripe"],
    &["-stripe", "-p", "4"],
    &["-p", "2", "-sbs", "100000"],
    &["-fast", "-p", "4"],
    &["-dp"],
    &["-dp", "-p", "4"],
    &["-fsstack", "file"],
    &["-udt"],
    &["-dcstack", "tcp"],
    &["-nodcau"],
    &["-no-g2"],
    &["-ascii"],
    &["-rst"],
    &["-rst", "-p", "4", "-st", "60"],
];

/// Layouts that the client itself cannot send: it fails or hangs with `-stripe` in a put.
const LAYOUTS: [&[&str]; 2] = [
    &["-stripe", "-sbs", "0"],
    &["-stripe", "-p", "2", "-sbs", "100000"],
];

/// Every checksum that the client can compute itself.
const CHECKSUMS: [&str; 4] = ["MD5", "SHA1", "SHA256", "SHA512"];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for options in OPTIONS {
        cases.extend(every_direction(&options.join(" "), options));
    }
    for algorithm in CHECKSUMS {
        let options = vec!["-verify-checksum", "-checksum-alg", algorithm];
        cases.extend(every_direction(&options.join(" "), &options));
    }
    cases.extend(LAYOUTS.into_iter().flat_map(layout));
    cases.extend(third_party_only());
    for options in [&[][..], &["-p", "4"]] {
        cases.extend(connections(options));
        cases.extend(over_longer_file(options));
    }
    cases.extend(single());
    cases
}

fn layout(options: &'static [&'static str]) -> Vec<Case> {
    let name =
        |direction: &str| format!("globus-url-copy/options {direction} {}", options.join(" "));
    let get = Case::new(name("get"), move |context| get(context, options, SIZE));
    let mut cases = Case::third_party(name("third-party"), move |context| {
        third_party(context, options, SIZE)
    });
    cases.insert(0, get);
    cases
}

/// Options that the client only supports between servers.
fn third_party_only() -> Vec<Case> {
    [
        Case::third_party(
            "globus-url-copy/options third-party -verify-checksum -checksum-alg ADLER32",
            |context| {
                let options = ["-verify-checksum", "-checksum-alg", "ADLER32"];
                third_party(context, &options, SIZE)
            },
        ),
        Case::third_party("globus-url-copy/options third-party -notpt", |context| {
            third_party(context, &["-notpt"], SIZE)
        }),
        Case::third_party(
            "globus-url-copy/options third-party, passive source",
            |context| passive_source(context, &[], SIZE),
        ),
    ]
    .concat()
}

fn mode_name(what: &str, options: &[&str]) -> String {
    format!("globus-url-copy/options {what} {}", options.join(" "))
}

/// Active and IPv6 data connections, and a server of the whole machine.
fn connections(options: &'static [&'static str]) -> Vec<Case> {
    let case = |what: &str, run: fn(&Context<'_>, &[&str]) -> Result<Observation, Failure>| {
        Case::new(mode_name(what, options), move |context| {
            run(context, options)
        })
    };
    vec![
        case("get, active server", server_connects),
        case("-ipv6 get and -list", ipv6_get),
        case("-ipv6 put", ipv6_put),
        case("-ipv6 third-party", ipv6_third_party),
        case("whole machine served, get and put", whole_machine),
    ]
}

fn over_longer_file(options: &'static [&'static str]) -> Vec<Case> {
    let put = Case::new(
        mode_name("put over a longer file", options),
        move |context| {
            context.remote_sample("copy", SIZE + 1000)?;
            put(context, options, SIZE)
        },
    );
    let mut cases = Case::third_party(
        mode_name("third-party over a longer file", options),
        move |context| {
            context.remote_sample("copy", SIZE + 1000)?;
            third_party(context, options, SIZE)
        },
    );
    cases.insert(0, put);
    cases
}

/// Options with one case each.
fn single() -> Vec<Case> {
    vec![
        Case::new(
            "globus-url-copy/options -rp, a path relative to the home",
            |context| relative(context, &["-rp"], ""),
        ),
        Case::new(
            "globus-url-copy/options /~/, a path relative to the home",
            |context| relative(context, &[], "~/"),
        ),
        Case::new(
            "globus-url-copy/options -aa, an assertion is taken",
            assertion,
        ),
        Case::new("globus-url-copy/options -src-pipe is refused", |context| {
            refused(context, &["-src-pipe", "#cat#/etc/passwd"])
        }),
        Case::new(
            "globus-url-copy/options -fsstack with an unknown driver is refused",
            |context| refused(context, &["-fsstack", "nosuchdriver"]),
        ),
        Case::new(
            "globus-url-copy/options -mn with an unknown module is refused",
            |context| refused(context, &["-mn", "nosuchmodule", "-mp", "a=1"]),
        ),
        Case::new(
            "globus-url-copy/options -checksum-alg with an unknown name is refused",
            |context| refused(context, &["-verify-checksum", "-checksum-alg", "NOSUCHSUM"]),
        ),
    ]
}

/// The options in a get, a put and a third-party copy.
fn every_direction(name: &str, options: &[&'static str]) -> Vec<Case> {
    let options = options.to_vec();
    let (to_get, to_put) = (options.clone(), options.clone());
    let mut cases = vec![
        Case::new(
            format!("globus-url-copy/options get {name}"),
            move |context| get(context, &to_get, SIZE),
        ),
        Case::new(
            format!("globus-url-copy/options put {name}"),
            move |context| put(context, &to_put, SIZE),
        ),
    ];
    cases.extend(Case::third_party(
        format!("globus-url-copy/options third-party {name}"),
        move |context| third_party(context, &options, SIZE),
    ));
    cases
}

/// The server's root is `/`, and its paths are those of the host.
fn whole_machine(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let server = context.server(Role::WholeMachine)?;
    let url = |name: &str| {
        let path = context.remote(name).display().to_string();
        server.url(path.trim_start_matches('/'))
    };
    let expected = context.remote_sample("source", SIZE)?;
    let downloaded = context.local_url("copy");
    context
        .globus_url_copy(options)
        .args([url("source"), downloaded.clone()])
        .run()?
        .succeeded()?;
    context
        .globus_url_copy(options)
        .args(["-cd", &downloaded, &url("new/copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("new/copy"))?;
    Ok(Observation::none())
}

/// The server gets PORT in a plain get.
fn server_connects(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let client = context
        .globus_url_copy(options)
        .env("GLOBUS_FTP_CLIENT_NO_SERVER_PASV", "1");
    get_with(context, client, SIZE)
}

fn ipv6_get(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let server = context.server(Role::Ipv6)?;
    let expected = context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(["-ipv6"])
        .args(options)
        .args([
            server.url(&context.name("source")),
            context.local_url("copy"),
        ])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    context
        .globus_url_copy(["-ipv6", "-list", &server.url(&context.name(""))])
        .args(options)
        .run()?
        .succeeded()?
        .prints(&["    source "])?;
    Ok(Observation::none())
}

fn ipv6_put(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let server = context.server(Role::Ipv6)?;
    let expected = context.local_sample("source", SIZE)?;
    context
        .globus_url_copy(["-ipv6"])
        .args(options)
        .args([
            context.local_url("source"),
            server.url(&context.name("copy")),
        ])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn ipv6_third_party(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    let server = context.server(Role::Ipv6)?;
    let expected = context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(["-ipv6"])
        .args(options)
        .args([
            server.url(&context.name("source")),
            server.url(&context.name("copy")),
        ])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

/// Gets and puts a file by its path below the home directory, which is the served root.
fn relative(context: &Context<'_>, options: &[&str], prefix: &str) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", SIZE)?;
    let home = |name: &str| {
        format!(
            "{}/{prefix}{}",
            context.source().base(),
            url::escape(&context.name(name))
        )
    };
    let downloaded = context.local_url("copy");
    context
        .globus_url_copy(options)
        .args([home("source"), downloaded.clone()])
        .run()?
        .succeeded()?;
    context
        .globus_url_copy(options)
        .args([downloaded, home("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn assertion(context: &Context<'_>) -> Result<Observation, Failure> {
    fs::write(context.local("assertion"), "some assertion\n")?;
    get(context, &["-aa", "assertion"], SIZE)
}

/// A get that must fail before any byte of the file arrives.
fn refused(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(options)
        .args([context.from("source"), context.local_url("copy")])
        .run()?
        .failed_with(1, &["the server responded with an error"])?;
    let received = fs::metadata(context.local("copy")).map_or(0, |metadata| metadata.len());
    check(received == 0, || {
        format!("{received} bytes arrived nevertheless")
    })?;
    Ok(Observation::none())
}
