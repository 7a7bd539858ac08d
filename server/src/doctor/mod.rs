//! `gridhaul-server doctor`: examines a running server as its clients see it, and explains what limits its transfers.
//!
//! It takes the flags and the configuration file of `serve`. Where `check` examines what a server needs to start, this asks
//! the server itself: it connects to its ports under the names and addresses that clients use, and to its administration socket.
//! Each finding is one line: the problem, and how to fix it. With `--rdma` or `--rdma-listen` it only measures RDMA between two machines.

mod administration;
mod bottleneck;
mod buffers;
mod clock;
mod control;
mod data;
mod diagnosis;
mod dialogue;
mod findings;
mod log;
mod names;
mod path;
mod peer_clock;
mod rdma;
mod speed;
mod transfers;

use std::io::{self, Write};

use findings::Findings;

use crate::check::report::Verdict;
use crate::config::{Config, DoctorArguments};

/// Examines the server that runs with the arguments of `serve`. Returns whether there is no error.
///
/// # Errors
///
/// When the report cannot be written.
pub fn doctor(arguments: &DoctorArguments, output: &mut impl Write) -> io::Result<bool> {
    let mut findings = Findings::default();
    let mut serve = arguments.serve.clone();
    if arguments.is_about_rdma() {
        // No user logs in for a measurement between two machines, so the server needs no way to log in.
        serve.settings.anonymous.get_or_insert(true);
    }
    match Config::load(&serve) {
        Ok(config) if arguments.is_about_rdma() => {
            rdma::examine(&mut findings, output, &config, arguments)?;
        }
        Ok(config) => examine(&mut findings, &config, arguments),
        Err(error) => findings.report.error("configuration", error),
    }
    findings.report.write(output)?;
    Ok(findings.report.count(Verdict::Error) == 0)
}

fn examine(report: &mut Findings, config: &Config, arguments: &DoctorArguments) {
    let host = crate::machine::host_name();
    let targets = names::check(report, config, &host);
    let user = data::User::of(report, config, arguments);
    for target in &targets {
        if let Some(dialogue) = control::check(report, *target) {
            data::check(report, user.as_ref(), dialogue);
        }
    }
    data::check_range(report, config, &targets, user.is_some());
    administration::check(report, config);
    clock::check(report, config, &host);
    let link = speed::link(report);
    let path = arguments
        .peer
        .as_deref()
        .and_then(|peer| path::check(report, peer));
    let given = arguments.rtt.filter(|rtt| rtt.is_finite() && *rtt >= 0.0);
    let rtt = given.map(|rtt| std::time::Duration::from_secs_f64(rtt.min(1e6) / 1000.0));
    let limits = buffers::check(report, rtt.or_else(|| path.map(|facts| facts.rtt)), link);
    speed::loopback(report);
    if let Some(directory) = &arguments.disk {
        speed::disk(report, directory, link);
    }
    transfers::check(report, config, arguments.log.as_deref(), &limits);
}
