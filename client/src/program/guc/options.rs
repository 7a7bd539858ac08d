//! The options of globus-url-copy that hold for all ends.

use super::values::{Values, next_text};
use super::{GucError, Request, Shown};

impl Request {
    /// Reads an option without a value; whether it is one.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        match name {
            // Without effect there, too, or always on here.
            "a"
            | "ascii"
            | "b"
            | "binary"
            | "c"
            | "continue-on-error"
            | "no-g2"
            | "nogridftp2"
            | "gridftp2"
            | "cache-aa"
            | "cache-authz-assert"
            | "cache-saa"
            | "cache-src-authz-assert"
            | "cache-daa"
            | "cache-dst-authz-assert"
            | "pp"
            | "pipeline"
            | "ipv6"
            | "dp"
            | "delayed-pasv" => {}
            "help" | "usage" => self.shown = Some(Shown::Help),
            "version" | "versions" => self.shown = Some(Shown::Version),
            "stripe" | "striped" => self.wants_stripes = true,
            "dbg" | "debugftp" => self.wants_dialogue = true,
            "udt" => self.wants_udt = true,
            "rp" | "relative-paths" => self.are_paths_relative = true,
            "cd" | "create-dest" => self.add(&["--create-dirs"]),
            "fast" => self.add(&["--mode", "extended"]),
            "q" | "quiet" => self.is_quiet = true,
            "v" | "verbose" | "vb" | "verbose-perf" => self.is_verbose = true,
            "r" | "recurse" => self.add(&["--recursive"]),
            "rst" | "restart" => self.restarts = true,
            "nodcau" | "no-data-channel-authentication" => {
                self.is_unprotected = true;
                self.add(&["--dcau", "none"]);
            }
            "dcsafe" | "data-channel-safe" | "dcpriv" | "data-channel-private" => {
                self.add(&["--protect"]);
            }
            "notpt" | "no-third-party-transfers" => self.add(&["--relay"]),
            "sync" => self.syncs = true,
            "verify-checksum" => self.verifies = true,
            _ => return false,
        }
        true
    }

    /// Reads an option with a value; whether it is one.
    pub(super) fn option(&mut self, name: &str, value: &mut Values<'_>) -> Result<bool, GucError> {
        match name {
            "f" | "filename" => self.list_file = Some(value()?.into()),
            "df" | "dumpfile" => self.dump_file = Some(value()?.into()),
            "list" => self.listed = Some(next_text(value)?),
            "p" | "parallel" => self.add(&["--mode", "extended", "--parallel", &next_text(value)?]),
            "cc" | "concurrency" => self.add(&["--concurrency", &next_text(value)?]),
            // The kernel and the drivers choose buffers and blocks.
            "bs" | "block-size" | "tcp-bs" | "tcp-buffer-size" | "sbs" | "striped-block-size"
            | "rst-interval" | "restart-interval" | "rst-timeout" | "restart-timeout" => {
                value()?;
            }
            "rst-retries" | "restart-retries" => {
                self.restarts = true;
                self.retries = Some(next_text(value)?);
            }
            "st" | "stall-timeout" => self.add(&["--stall-timeout", &next_text(value)?]),
            "t" => self.add(&["--timeout", &next_text(value)?]),
            "do" | "dump-only" => self.plan = Some(value()?.into()),
            "off" | "partial-offset" => self.add(&["--offset", &next_text(value)?]),
            "len" | "partial-length" => self.add(&["--length", &next_text(value)?]),
            "dcstack" | "data-channel-stack" => self.add(&["--stack", &next_text(value)?]),
            "sync-level" => {
                self.syncs = true;
                self.sync_level = Some(next_text(value)?);
            }
            "checksum-alg" => self.checksum = Some(next_text(value)?),
            "data-cred" => self.data_credential = Some(value()?.into()),
            _ => {
                return Ok(self.end_option(name, value)? || self.site_option(name, value)?);
            }
        }
        Ok(true)
    }
}
