//! `AUTH TLS` (RFC 4217): ordinary FTP clients and users with passwords.

use std::fs;
use std::path::PathBuf;

use crate::cases::{Case, Context, Observation, Role};
use crate::support::{Client, Failure, Finished, PASSWORD, PASSWORD_USER, check, content};

/// Several TLS records, and not a multiple of any block size.
const SIZE: u64 = 3_000_001;

/// Options of curl that must not change the result. In active mode curl 7.88 does not use TLS on data
/// channels (curl issue 10666); lftp and ftplib do.
const CURL: [&[&str]; 5] = [
    &[],
    &["--tls-max", "1.2"],
    &["--tlsv1.3"],
    &["--disable-epsv"],
    &["--ftp-ssl-control"],
];

/// Settings of lftp: data channels encrypted and not, passive and active.
const LFTP: [&str; 3] = [
    "set ftp:ssl-protect-data yes;",
    "set ftp:ssl-protect-data no;",
    "set ftp:ssl-protect-data yes; set ftp:passive-mode no;",
];

/// Functions of `ftps_cases.py`.
const FTPLIB: [&str; 9] = [
    "private_data",
    "clear_data",
    "changing_protection",
    "active_mode",
    "listings",
    "anonymous_users",
    "wrong_password",
    "the_channel_stays_encrypted",
    "twice",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for options in CURL {
        let name = |what: &str| format!("tls/curl {what} --ssl-reqd {}", options.join(" "));
        cases.extend([
            Case::new(name("get"), |context| curl_get(context, options)),
            Case::new(name("put"), |context| curl_put(context, options)),
            Case::new(name("list"), |context| curl_list(context, options)),
        ]);
    }
    cases.extend([
        Case::new("tls/curl with a wrong password", curl_wrong_password),
        Case::new(
            "tls/curl verifies the server's certificate",
            curl_untrusted_server,
        ),
    ]);
    for settings in LFTP {
        let name = |what: &str| format!("tls/lftp {what}, {settings}");
        cases.extend([
            Case::new(name("put and get"), |context| lftp_files(context, settings)),
            Case::new(name("mirror"), |context| lftp_mirror(context, settings)),
        ]);
    }
    for function in FTPLIB {
        let name = format!("tls/ftplib {function}");
        cases.push(Case::new(name, |context| ftplib(context, function)));
    }
    cases
        .into_iter()
        .map(|case| case.deviation("it has no AUTH TLS"))
        .collect()
}

/// The name in the server's certificate, and its port.
fn base(context: &Context<'_>) -> Result<String, Failure> {
    let port = context.server(Role::Tls)?.address().port();
    Ok(format!("ftp://localhost:{port}"))
}

fn curl(context: &Context<'_>, password: &str, options: &[&str]) -> Result<Client, Failure> {
    Ok(Client::new("curl")
        .args(["--silent", "--show-error", "--ssl-reqd", "--cacert"])
        .arg(context.pki()?.authority())
        .args(["--user", &format!("{PASSWORD_USER}:{password}")])
        .args(options)
        .directory(context.local("")))
}

fn url(context: &Context<'_>, name: &str) -> Result<String, Failure> {
    Ok(format!("{}/{}", base(context)?, context.name(name)))
}

fn curl_get(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    for size in [0, 1, SIZE] {
        let expected = context.remote_sample("source", size)?;
        curl(context, PASSWORD, options)?
            .args(["--output", "copy", &url(context, "source")?])
            .run()?
            .succeeded()?;
        // curl makes no file when it receives no byte.
        if size > 0 {
            content::same(&expected, &context.local("copy"))?;
        }
    }
    Ok(Observation::none())
}

fn curl_put(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    for size in [0, 1, SIZE] {
        let expected = context.local_sample("source", size)?;
        curl(context, PASSWORD, options)?
            .args(["--upload-file", "source", &url(context, "copy")?])
            .run()?
            .succeeded()?;
        content::same(&expected, &context.remote("copy"))?;
    }
    Ok(Observation::none())
}

fn curl_list(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    for name in ["one", "two words"] {
        context.remote_sample(name, 10)?;
    }
    let listing = curl(context, PASSWORD, options)?
        .args(["--list-only", &url(context, "")?])
        .run()?
        .succeeded()?;
    let mut names: Vec<_> = listing.output().lines().map(str::to_owned).collect();
    names.sort();
    check(names == ["one", "two words"], || listing.to_string())?;
    Ok(Observation::none())
}

/// curl exits with status 67 when the login is refused.
fn curl_wrong_password(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    curl(context, "wrong", &[])?
        .args(["--output", "copy", &url(context, "source")?])
        .run()?
        .failed_with(67, &["530"])?;
    Ok(Observation::none())
}

/// curl exits with status 60 when it does not accept the certificate.
fn curl_untrusted_server(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    Client::new("curl")
        .args(["--silent", "--show-error", "--ssl-reqd"])
        .arg(url(context, "source")?)
        .run()?
        .failed_with(60, &["certificate"])?;
    Ok(Observation::none())
}

/// Runs a script of lftp in a session that starts in the case's directory.
fn lftp(context: &Context<'_>, settings: &str, script: &str) -> Result<Finished, Failure> {
    let authority = context.pki()?.authority();
    let strict = "set cmd:fail-exit yes; set net:max-retries 1; set net:timeout 20; \
                  set net:persist-retries 0; set net:reconnect-interval-base 1;";
    let script = format!(
        "{strict} set ftp:ssl-force yes; set ssl:ca-file {}; {settings}\n\
         open -u \"{PASSWORD_USER},{PASSWORD}\" {}\n{script}\n",
        authority.display(),
        url(context, "")?
    );
    let finished = Client::new("lftp")
        .args(["--norc", "-f", "/dev/stdin"])
        .env("HOME", context.local("").into_os_string())
        .directory(context.local(""))
        .input(script)
        .run()?
        .succeeded()?;
    Ok(finished)
}

fn lftp_files(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    for size in [0, 1, SIZE] {
        let expected = context.local_sample("source", size)?;
        let script = "put source -o there\nget -c there -o back\nls\nrm there";
        lftp(context, settings, script)?;
        content::same(&expected, &context.local("back"))?;
        fs::remove_file(context.local("back"))?;
    }
    Ok(Observation::none())
}

fn lftp_mirror(context: &Context<'_>, settings: &str) -> Result<Observation, Failure> {
    fs::create_dir(context.local("tree"))?;
    for number in 0..10 {
        context.local_sample(&format!("tree/file{number}"), number * 50_000)?;
    }
    let script = "mirror --reverse --parallel=4 tree there\nmirror --parallel=4 there back";
    lftp(context, settings, script)?;
    content::same_tree(&context.local("tree"), &context.remote("there"))?;
    content::same_tree(&context.local("tree"), &context.local("back"))?;
    Ok(Observation::none())
}

fn ftplib(context: &Context<'_>, function: &str) -> Result<Observation, Failure> {
    let server = context.server(Role::Tls)?;
    Client::new("python3")
        .arg("-B")
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/ftps_cases.py"))
        .args([function, "localhost", &server.address().port().to_string()])
        .arg(context.pki()?.authority())
        .args([PASSWORD_USER, PASSWORD])
        .arg(server.path(&context.name("")))
        .arg(context.remote(""))
        .run()?
        .succeeded()?;
    Ok(Observation::none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_script_is_in_the_table() {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/ftps_cases.py");
        let listed = Client::new("python3").arg("-B").arg(script).arg("--list");
        let output = listed.run().unwrap().succeeded().unwrap().output();
        let found: Vec<_> = output.lines().collect();
        assert_eq!(found, FTPLIB);
    }
}
