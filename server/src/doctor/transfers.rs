//! Explains what limited the last transfers in the server's log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::bottleneck::{Bottleneck, Limits};
use super::diagnosis::diagnose;
use super::findings::Findings;
use super::log::{Finished, parse};
use super::speed::rate;
use crate::check::report::counted;
use crate::config::Config;

const ABOUT: &str = "transfers";

/// The part of the log that is read.
const TAIL: u64 = 4 << 20;

/// The transfers that are explained.
const MOST: usize = 100;

pub(super) fn check(report: &mut Findings, config: &Config, log: Option<&Path>, limits: &Limits) {
    let (audit, file) = (config.log.audit.as_deref(), config.log.file.as_deref());
    let Some(path) = log.or(audit).or(file) else {
        report.ok(
            ABOUT,
            "the log is on standard error: give --log FILE with lines of it to explain transfers",
        );
        return;
    };
    let text = match tail(path) {
        Ok(text) => text,
        Err(error) => {
            report.warning(
                ABOUT,
                format!("the log {} cannot be read: {error}", path.display()),
                "run this as root, or give a copy that you may read: --log FILE",
            );
            return;
        }
    };
    let recent: Vec<_> = text.lines().rev().filter_map(parse).take(MOST).collect();
    explain(report, &recent, limits, &limited(config));
}

/// The names of the limits that have a bandwidth.
fn limited(config: &Config) -> String {
    let limits = config.group_limits.iter();
    let names = limits.filter(|limit| limit.bandwidth.is_some());
    let names: Vec<_> = names.map(|limit| limit.name.as_str()).collect();
    names.join(", ")
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A line for each bottleneck, with the newest transfer that had it.
fn explain(report: &mut Findings, recent: &[Finished], limits: &Limits, limited: &str) {
    if recent.is_empty() {
        report.ok(ABOUT, "no successful transfer in the last lines of the log");
        return;
    }
    let mut found: BTreeMap<Bottleneck, (usize, &Finished, String)> = BTreeMap::new();
    for transfer in recent {
        let diagnosis = diagnose(&transfer.facts, limits);
        let newest = || (0, transfer, diagnosis.evidence.clone());
        found.entry(diagnosis.bottleneck).or_insert_with(newest).0 += 1;
    }
    for (bottleneck, (count, newest, evidence)) in found {
        let facts = &newest.facts;
        let speed = facts.bytes as f64 / facts.took.as_secs_f64().max(1e-6);
        let names = match bottleneck {
            Bottleneck::GroupLimit => format!(" (those with a bandwidth: {limited})"),
            _ => String::new(),
        };
        let text = format!(
            "{count} of the last {}: {} {} at {}: {evidence}{names}",
            counted(recent.len(), "transfer"),
            newest.verb,
            newest.path,
            rate(speed)
        );
        let remedy = bottleneck.remedy();
        if bottleneck.is_problem() {
            report.warning(ABOUT, text, remedy);
        } else {
            report.ok(ABOUT, format!("{text}; {remedy}"));
        }
    }
}
