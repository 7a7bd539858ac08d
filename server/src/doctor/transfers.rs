//! Explains what limited the last transfers in the server's log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::bottleneck::{Bottleneck, Limits, diagnose};
use super::log::{Finished, parse};
use super::speed::rate;
use crate::check::report::{Report, counted};
use crate::config::Config;

const ABOUT: &str = "transfers";

/// The part of the log that is read.
const TAIL: u64 = 4 << 20;

/// The transfers that are explained.
const MOST: usize = 100;

pub(super) fn check(report: &mut Report, config: &Config, log: Option<&Path>, limits: &Limits) {
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
            );
            return;
        }
    };
    let recent: Vec<_> = text.lines().rev().filter_map(parse).take(MOST).collect();
    explain(report, &recent, limits);
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
fn explain(report: &mut Report, recent: &[Finished], limits: &Limits) {
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
        let text = format!(
            "{} of the last {}: {}; {} {} at {}: {evidence}",
            count,
            counted(recent.len(), "transfer"),
            bottleneck.remedy(),
            newest.verb,
            newest.path,
            rate(speed)
        );
        match bottleneck {
            Bottleneck::Loss | Bottleneck::SendBuffer | Bottleneck::ReceiveBuffer => {
                report.warning(ABOUT, text);
            }
            _ => report.ok(ABOUT, text),
        }
    }
}
