//! `gridhaul-server check`: examines everything that serving depends on, and starts nothing.
//!
//! It takes the flags and the configuration file of `serve`, finds files in the same places, and reads them with the same
//! code. Each finding is one line: the problem, and how to fix it.

mod authorization;
pub(crate) mod certificate;
mod files;
mod identities;
mod in_use;
mod kernel;
mod machine;
mod network;
mod nodes;
mod rdma;
pub(crate) mod report;
mod sandbox;
mod trust;

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::config::{CheckArguments, Problem};
use crate::drivers;
use crate::server::passed_places;
use crate::service::Environment;
use crate::validate::{Validated, in_child};
use nodes::Own;
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
    let passed = passed_places(&environment.passed);
    let validated = Validated::for_start(&arguments.serve, &passed);
    report.settings(Verdict::Error, &validated.problems);
    if validated.is_unusable() {
        // All other findings would be about the defaults.
    } else if arguments.rdma {
        check_rdma(&mut report, &validated);
    } else {
        report.settings(Verdict::Warning, &validated.warnings);
        let own = check_all(&mut report, &validated, arguments.serve.config.as_deref());
        // A server that upgrades itself has passed its sockets. Nodes that it cannot use either must not keep it from that.
        if environment.passed.is_empty() {
            nodes::check(&mut report, &validated, own);
        }
    }
    report.find_places(|key| validated.place(key));
    report.write(output)?;
    Ok(report.count(Verdict::Error) == 0)
}

/// How thoroughly files are examined.
#[derive(Debug, Clone, Copy)]
struct Depth {
    /// The passphrase of the host key may be asked for at the terminal.
    may_ask: bool,
    /// More accounts are not looked up: each may be a round trip to a directory service.
    accounts: usize,
    /// Lines and files that are not used are named. A server that starts logs them when it reads them.
    names_unused: bool,
}

impl Depth {
    const CHECK: Self = Self {
        may_ask: true,
        accounts: 10_000,
        names_unused: true,
    };
    const START: Self = Self {
        may_ask: false,
        accounts: 20,
        names_unused: false,
    };
}

/// What `check` calls an error in files that may change while a server runs, and that a server which starts does not refuse:
/// maps, lists, certificates of authorities. For its log. Must be called while the process has one thread.
pub(crate) fn defects(validated: &Validated, file: Option<&Path>) -> Vec<Problem> {
    /// Trust directories have thousands of files, and network file systems may hang.
    const LIMIT: Duration = Duration::from_secs(10);

    if !validated.is_right() {
        return Vec::new();
    }
    let found = in_child(Some(LIMIT), || {
        let mut report = Report::default();
        check_files(&mut report, validated, file, Depth::START);
        report.find_places(|key| validated.place(key));
        report.errors().collect::<Vec<_>>()
    });
    found.unwrap_or_else(|error| {
        let text = format!("the files were not examined ({error}): run `gridhaul-server check`");
        vec![validated.problem("configuration", text)]
    })
}

/// Examines what the settings name on this machine, except for settings with an error, which was reported.
fn check_all(report: &mut Report, validated: &Validated, file: Option<&Path>) -> Own {
    let config = &validated.config;
    let own = check_files(report, validated, file, Depth::CHECK);
    sandbox::check(report, config);
    network::check(report, validated);
    let registry = drivers::registry();
    machine::check(report, validated, &registry);
    kernel::check(report, &registry);
    if let Some(driver) = rdma::driver(&registry)
        && rdma::is_asked_for(config, driver)
    {
        rdma::check(report, validated, driver);
    }
    own
}

fn check_files(
    report: &mut Report,
    validated: &Validated,
    file: Option<&Path>,
    depth: Depth,
) -> Own {
    let config = &validated.config;
    let now = SystemTime::now();
    let security = &config.security;
    let trust = security
        .gsi
        .as_ref()
        .filter(|_| !validated.is_wrong("trust"))
        .and_then(|gsi| trust::check(report, &gsi.trust, &config.user, now, depth));
    let host = security.host.as_ref();
    let host = host.filter(|_| !validated.is_wrong("cert") && !validated.is_wrong("key"));
    let credential = host.and_then(|host| {
        certificate::check(
            report,
            (host, depth.may_ask),
            trust.as_deref(),
            (&crate::machine::host_name(), &config.user),
            now,
        )
    });
    if let Some(gsi) = &security.gsi {
        identities::check(report, validated, gsi, depth);
        authorization::check(report, validated, gsi);
    }
    files::check(report, validated);
    if let Some(file) = file.filter(|file| file.exists()) {
        files::check_exposed(report, "configuration", file, "change every setting");
        files::check_read_again(report, "configuration", file, &config.user);
    }
    Own { credential, trust }
}

fn check_rdma(report: &mut Report, validated: &Validated) {
    match rdma::driver(&drivers::registry()) {
        Some(driver) => {
            rdma::check(report, validated, driver);
            rdma::examine(report, driver);
        }
        None => report.error("rdma", "this program was built without it"),
    }
}
