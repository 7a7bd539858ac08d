//! The clock, and the host's certificate, which is valid at some times only.

use std::io::Read as _;
use std::path::Path;
use std::time::SystemTime;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::files::open_file;

use super::findings::Findings;
use crate::check::certificate::{check_names, lifetime, time};
use crate::check::report::Verdict;
use crate::config::Config;
use crate::machine::{ClockState, clock_state};

pub(super) fn check(report: &mut Findings, config: &Config, host: &str) {
    check_clock(report);
    if let Some(files) = &config.security.host {
        check_certificate(report, &files.certificates, host);
    }
}

fn check_clock(report: &mut Findings) {
    const ABOUT: &str = "clock";

    let now = time(SystemTime::now());
    match clock_state() {
        Ok(ClockState::Synchronized { error }) => report.ok(
            ABOUT,
            format!("it says {now}, and is synchronized to {:.1} ms", error.as_secs_f64() * 1000.0),
        ),
        Ok(ClockState::Unsynchronized) => report.warning(
            ABOUT,
            format!(
                "it says {now}, and nothing synchronizes it: proxies of clients are refused when it is wrong by minutes"
            ),
            "run chrony or systemd-timesyncd (in a container, on the machine)",
        ),
        Err(error) => report.warning(ABOUT, format!("it says {now}, and the kernel does not tell whether it is synchronized: {error}"), "compare it with another host"),
    }
}

fn check_certificate(report: &mut Findings, path: &Path, host: &str) {
    const ABOUT: &str = "certificate";
    const MOST: u64 = 1 << 20;
    const RENEW: &str =
        "renew it, and replace the files of cert and key: the server reads them within a second";
    const FILE: &str = "name the PEM file of the host certificate (cert), and run this as an account that may read it";

    let mut pem = Vec::new();
    let read = open_file(path).and_then(|file| file.take(MOST).read_to_end(&mut pem));
    let chain = match read {
        Ok(_) => Certificate::all_from_pem(&pem).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let path = path.display();
    match chain.as_deref() {
        Ok([leaf, ..]) => {
            let (verdict, text) = lifetime(leaf.validity(), SystemTime::now());
            let text = format!("{path} {text}");
            match verdict {
                Verdict::Ok | Verdict::Unknown => report.ok(ABOUT, text),
                Verdict::Warning => report.warning(ABOUT, text, RENEW),
                Verdict::Error => report.error(ABOUT, text, RENEW),
            }
            check_names(&mut report.report, leaf, host);
        }
        Ok([]) => report.error(ABOUT, format!("{path} has no certificate"), FILE),
        Err(error) => report.error(ABOUT, format!("{path} cannot be read: {error}"), FILE),
    }
}
