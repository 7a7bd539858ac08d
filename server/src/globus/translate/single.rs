//! Options that one setting takes the place of.

use super::super::given::{Placed, Value};
use super::super::option::GlobusOption;
use super::super::table;
use super::super::translation::{Weight, quoted};
use super::{TranslateError, Translator, WhatIsWrong};
use crate::config::{FileMode, PortRange};

impl Translator<'_> {
    pub(super) fn single(
        &mut self,
        option: &'static GlobusOption,
        placed: &Placed<Value>,
    ) -> Result<(), TranslateError> {
        match (option.name(), &placed.value) {
            ("encrypt_data", value) => self.switch("encrypt_data", "encrypt-data", value),
            ("allow_root", value) => self.switch("allow_root", "allow-root", value),
            ("allow_disabled_login", value) => {
                self.switch("allow_disabled_login", "allow-disabled-login", value);
            }
            ("sync_writes", value) => {
                let keys = match value {
                    Value::Switch(true) => vec![("sync-files", quoted("data"))],
                    _ => Vec::new(),
                };
                self.note(
                    &["sync_writes"],
                    keys,
                    &table::remark(option),
                    Weight::Carried,
                );
            }
            ("connections_max", Value::Number(0)) => self.note(
                &["connections_max"],
                Vec::new(),
                "no connections: do not start the server",
                Weight::Guard,
            ),
            ("connections_max", Value::Number(most)) => {
                self.count("connections_max", "max-connections", *most, 1_000_000);
            }
            ("stripe_count", Value::Number(count)) => {
                self.count("stripe_count", "stripes", *count, 64);
            }
            ("control_preauth_timeout", value) => {
                self.time("control_preauth_timeout", "login-timeout", value);
            }
            ("control_idle_timeout", value) => {
                self.time("control_idle_timeout", "idle-timeout", value);
            }
            ("perms", Value::Text(text)) => {
                let mode: FileMode = text
                    .parse()
                    .map_err(|_| Self::wrong(placed, WhatIsWrong::Mode))?;
                let keys = vec![("perms", quoted(&mode.to_string()))];
                self.note(&["perms"], keys, "", Weight::Carried);
            }
            ("port_range", Value::Text(text)) => {
                let range: PortRange = text
                    .parse()
                    .map_err(|_| Self::wrong(placed, WhatIsWrong::PortRange))?;
                let keys = vec![("port-range", quoted(&range.to_string()))];
                self.note(&["port_range"], keys, "", Weight::Carried);
            }
            ("log_transfer", Value::Text(path)) => {
                let keys = vec![("transfer-log", quoted(&self.path(path)))];
                self.note(&["log_transfer"], keys, "", Weight::Carried);
            }
            ("dc_whitelist", _) => self.drivers("dc_whitelist", "allowed-drivers"),
            ("dc_default", _) => self.drivers("dc_default", "stack"),
            (name, _) => self.note(&[name], Vec::new(), &table::remark(option), Weight::Missing),
        }
        Ok(())
    }

    fn switch(&mut self, name: &'static str, key: &'static str, value: &Value) {
        let keys = match value {
            Value::Switch(true) => vec![(key, true.to_string())],
            _ => Vec::new(),
        };
        let remark = match keys.is_empty() {
            true => "the default",
            false => "",
        };
        self.note(&[name], keys, remark, Weight::Carried);
    }

    /// A number in the range of our setting. globus-gridftp-server takes negative numbers for the default.
    fn count(&mut self, name: &'static str, key: &'static str, count: i64, most: i64) {
        let (keys, remark) = match count {
            ..=0 => (Vec::new(), "the default"),
            count if count <= most => (vec![(key, count.to_string())], ""),
            _ => (
                vec![(key, most.to_string())],
                "the largest number of this server",
            ),
        };
        self.note(&[name], keys, remark, Weight::Carried);
    }

    /// A time in seconds.
    fn time(&mut self, name: &'static str, key: &'static str, value: &Value) {
        const LONGEST: i64 = 86_400;

        let (keys, remark) = match value {
            Value::Number(seconds @ 1..=LONGEST) => (vec![(key, seconds.to_string())], ""),
            Value::Number(1..) => (vec![(key, LONGEST.to_string())], "at most a day"),
            _ => (
                Vec::new(),
                "the default: sessions without an end are not possible",
            ),
        };
        self.note(&[name], keys, remark, Weight::Carried);
    }
}
