//! `gridhaul-server check`: examines everything that serving depends on, and starts nothing.
//!
//! It takes the flags and the configuration file of `serve`, finds files in the same places, and reads them with the same
//! code. Each finding is one line: the problem, and how to fix it.

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
use report::{Report, Verdict};

/// Checks the arguments of `serve`. Returns whether there is no error.
///
/// # Errors
///
/// When the report cannot be written.
pub fn check(arguments: &CheckArguments, output: &mut impl Write) -> io::Result<bool> {
    let mut report = Report::default();
    match Config::load(&arguments.serve) {
        Ok(config) if arguments.rdma => check_rdma(&mut report, &config),
        Ok(config) => check_all(&mut report, &config, arguments.serve.config.as_deref()),
        Err(error) => report.error("configuration", error),
    }
    report.write(output)?;
    Ok(report.count(Verdict::Error) == 0)
}

fn check_all(report: &mut Report, config: &Config, file: Option<&Path>) {
    let now = SystemTime::now();
    let security = &config.security;
    let trust = security
        .gsi
        .as_ref()
        .and_then(|gsi| trust::check(report, &gsi.trust, &config.user, now));
    if let Some(host) = &security.host {
        certificate::check(
            report,
            host,
            trust.as_deref(),
            &crate::machine::host_name(),
            now,
        );
    }
    if let Some(gsi) = &security.gsi {
        identities::check(report, config, gsi);
    }
    sandbox::check(report, config);
    files::check(report, config);
    if let Some(file) = file {
        files::check_read_again(report, "configuration", file, &config.user);
    }
    network::check(report, config);
    let registry = drivers::registry();
    machine::check(report, config, &registry);
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
