//! The events of a copy for programs.

use serde::Serialize;

/// An event, as an object of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event<'a> {
    Start {
        files: usize,
    },
    Progress {
        source: &'a str,
        destination: &'a str,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        channels: Option<&'a [u64]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stripes: Option<&'a [u64]>,
    },
    File {
        source: &'a str,
        destination: &'a str,
        bytes: u64,
        seconds: f64,
        channels: usize,
        checksum: Option<&'a str>,
    },
    Skipped {
        source: &'a str,
        reason: &'a str,
    },
    Remove {
        destination: &'a str,
    },
    Would {
        source: &'a str,
        destination: &'a str,
    },
    Retry {
        source: &'a str,
        destination: &'a str,
        message: &'a str,
        seconds: u64,
    },
    Note {
        message: &'a str,
    },
    Error {
        source: Option<&'a str>,
        destination: Option<&'a str>,
        message: &'a str,
    },
    Done {
        #[serde(flatten)]
        totals: Totals,
        seconds: f64,
    },
}

/// The numbers of a copy so far.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    pub(super) unchanged: u64,
    pub(super) removed: u64,
    pub(super) bytes: u64,
}
