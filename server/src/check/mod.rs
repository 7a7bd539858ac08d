//! `gridhaul-server check`: examines everything that serving depends on, and starts nothing.
//!
//! It takes the flags and the configuration file of `serve`, finds files in the same places, and reads them with the same
//! code. Each finding is one line: the problem, and how to fix it.

mod authorization;
pub(crate) mod certificate;
mod files;
mod identities;
mod kernel;
mod machine;
mod network;
mod rdma;
pub(crate) mod report;
mod sandbox;
mod trust;

use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use crate::config::{CheckArguments, Config};
use crate::drivers;
use crate::server::addresses_of;
use crate::service::Environment;
use crate::validate::Validated;
use report::{Report, Verdict};

/// Checks the arguments of `serve`. Returns whether there is no error.
///
/// # Errors
///
/// When the report cannot be written.
pub fn check(arguments: &CheckArguments, output: &mut impl Write) -> io::Result<bool> {
    let mut report = Report::default();
    // The new version is asked to check with the sockets that it would get.
    let environment = Environment::take().map_err(io::Error::other)?;
    let passed = addresses_of(&environment.passed);
    let validated = Validated::for_start(&arguments.serve, &passed);
    report.settings(Verdict::Error, &validated.problems);
    if validated.is_unusable() {
        // All other findings would be about the defaults.
    } else if arguments.rdma {
        check_rdma(&mut report, &validated.config);
    } else {
        report.settings(Verdict::Warning, &validated.warnings);
        check_all(&mut report, &validated, arguments.serve.config.as_deref());
    }
    report.write(output)?;
    Ok(report.count(Verdict::Error) == 0)
}

/// Examines what the settings name, except for settings with an error, which was reported.
fn check_all(report: &mut Report, validated: &Validated, file: Option<&Path>) {
    let config = &validated.config;
    let now = SystemTime::now();
    let security = &config.security;
    let trust = security
        .gsi
        .as_ref()
        .filter(|_| !validated.is_wrong("trust"))
        .and_then(|gsi| trust::check(report, &gsi.trust, &config.user, now));
    if let Some(host) = &security.host
        && !validated.is_wrong("cert")
        && !validated.is_wrong("key")
    {
        certificate::check(
            report,
            host,
            trust.as_deref(),
            (&crate::machine::host_name(), &config.user),
            now,
        );
    }
    if let Some(gsi) = &security.gsi {
        identities::check(report, validated, gsi);
        authorization::check(report, validated, gsi);
    }
    sandbox::check(report, config);
    files::check(report, validated);
    if let Some(file) = file.filter(|file| file.exists()) {
        files::check_read_again(report, "configuration", file, &config.user);
    }
    network::check(report, validated);
    let registry = drivers::registry();
    machine::check(report, validated, &registry);
    kernel::check(report, &registry);
    if let Some(driver) = rdma::driver(&registry)
        && rdma::is_asked_for(config, driver)
    {
        rdma::check(report, config, driver);
    }
}

fn check_rdma(report: &mut Report, config: &Config) {
    match rdma::driver(&drivers::registry()) {
        Some(driver) => rdma::check(report, config, driver),
        None => report.error("rdma", "this program was built without it"),
    }
}
