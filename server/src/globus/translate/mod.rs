//! From what globus-gridftp-server was given to settings of this server. Never more access than it would give, except for what
//! has the weight [`Weight::Guard`].

mod network;
mod paths;
mod single;
mod users;
mod variables;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::given::{Given, Place, Placed, Value};
use super::option::{Fate, GlobusOption, Kind};
use super::table;
use super::translation::{Entry, Translation, Weight};

/// What the translation depends on besides the options.
pub(crate) struct Facts<'a> {
    /// The server is started as root.
    pub(crate) is_root: bool,
    /// This machine has a host certificate and certificate authorities in the usual places.
    pub(crate) has_credential: bool,
    /// The port without an option.
    pub(crate) port: u16,
    /// The directory of relative paths, unless `config_base_path` names one.
    pub(crate) base: PathBuf,
    /// The address of a host.
    pub(crate) resolve: &'a dyn Fn(&str) -> Option<IpAddr>,
}

/// An option that cannot be translated, because globus-gridftp-server would refuse it or would not start.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {written}: {what}")]
pub struct TranslateError {
    place: Place,
    written: String,
    what: WhatIsWrong,
}

#[derive(Debug, thiserror::Error)]
enum WhatIsWrong {
    #[error("a port is a number from 0 to 65535")]
    Port,
    #[error("the host {0:?} has no address here; write the address")]
    Host(String),
    #[error("this is no range of ports, like 50000,51000")]
    PortRange,
    #[error("this is no octal mode, like 0644")]
    Mode,
}

/// Options that are translated together with others.
const TOGETHER: &[&str] = &[
    "port",
    "control_interface",
    "data_interface",
    "hostname",
    "auth_level",
    "allow_anonymous",
    "anonymous_names_allowed",
    "anonymous_user",
    "cas",
    "chroot_path",
    "restrict_paths",
    "log_level",
    "debug",
    "log_single",
    "log_unique",
    "banner",
    "banner_terse",
];

/// Settings that need users with certificates.
const FOR_CERTIFICATES: &[&str] = &[
    "trust",
    "gridmap",
    "gridmapdir",
    "vomsdir",
    "tls-versions",
    "allow-root",
    "allow-disabled-login",
    "ignore-gsi-authz",
];

/// Translates.
///
/// # Errors
///
/// When an option has a value with which globus-gridftp-server does not work either.
pub(crate) fn translate(given: &Given, facts: &Facts<'_>) -> Result<Translation, TranslateError> {
    let mut translator = Translator {
        given,
        facts,
        admits_certificates: true,
        done: Translation::default(),
    };
    translator.users();
    translator.listeners()?;
    translator.logs();
    translator.greeting();
    for option in table::options() {
        let Some(placed) = given.get(option.name()) else {
            continue;
        };
        if !TOGETHER.contains(&option.name()) {
            translator.option(option, placed)?;
        }
    }
    translator.variables()?;
    for aside in &given.asides {
        translator.done.entries.push(Entry {
            origins: vec![(aside.place.clone(), aside.written.clone())],
            keys: Vec::new(),
            remark: aside.reason.clone(),
            weight: Weight::Carried,
        });
    }
    Ok(translator.done)
}

struct Translator<'a> {
    given: &'a Given,
    facts: &'a Facts<'a>,
    admits_certificates: bool,
    done: Translation,
}

impl Translator<'_> {
    fn option(
        &mut self,
        option: &'static GlobusOption,
        placed: &Placed<Value>,
    ) -> Result<(), TranslateError> {
        let weight = match option.fate {
            Fate::Keys(_) => return self.single(option, placed),
            Fate::Needless | Fate::Mode => Weight::Carried,
            _ if is_default(option, &placed.value) => {
                self.note(&[option.name()], Vec::new(), "the default", Weight::Carried);
                return Ok(());
            }
            Fate::Missing => Weight::Missing,
            Fate::Guard => Weight::Guard,
        };
        let weight = self.weight_of_mode(option).unwrap_or(weight);
        let remark = table::remark(option);
        self.note(&[option.name()], Vec::new(), &remark, weight);
        Ok(())
    }

    /// A mode of the log that hides it from accounts to which this server shows it is a limit of access.
    fn weight_of_mode(&self, option: &GlobusOption) -> Option<Weight> {
        const OURS: u32 = 0o640;

        let mode = self.given.text("log_filemode")?;
        let mode = u32::from_str_radix(mode, 8).ok()?;
        (option.name() == "log_filemode" && mode & OURS != OURS).then_some(Weight::Guard)
    }

    /// Adds an entry about these options. Settings that have a value already, or that need users with certificates where there are
    /// none, are left out.
    fn note(
        &mut self,
        names: &[&str],
        keys: Vec<(&'static str, String)>,
        remark: &str,
        weight: Weight,
    ) {
        let placed = names.iter().filter_map(|name| self.given.get(name));
        let origins: Vec<_> = placed
            .map(|placed| (placed.place.clone(), placed.written.clone()))
            .collect();
        self.add(origins, keys, remark, weight);
    }

    fn add(
        &mut self,
        origins: Vec<(Place, String)>,
        keys: Vec<(&'static str, String)>,
        remark: &str,
        weight: Weight,
    ) {
        let mut remarks: Vec<String> = Vec::new();
        let mut kept = Vec::new();
        for (key, value) in keys {
            if FOR_CERTIFICATES.contains(&key) && !self.admits_certificates {
                remarks.push(format!(
                    "{key} is for users with certificates, who are not admitted"
                ));
            } else if self.done.has(key) {
                remarks.push(format!("{key} has its value from a line above"));
            } else {
                kept.push((key, value));
            }
        }
        if !remark.is_empty() {
            remarks.push(remark.to_owned());
        }
        self.done.entries.push(Entry {
            origins,
            keys: kept,
            remark: remarks.join("; "),
            weight,
        });
    }

    /// An absolute path.
    fn path(&self, text: &str) -> String {
        let base = self.given.text("config_base_path").map(Path::new);
        let base = base.unwrap_or(&self.facts.base);
        self.facts
            .base
            .join(base)
            .join(text)
            .to_string_lossy()
            .into_owned()
    }

    fn wrong(placed: &Placed<Value>, what: WhatIsWrong) -> TranslateError {
        TranslateError {
            place: placed.place.clone(),
            written: placed.written.clone(),
            what,
        }
    }
}

/// Whether the option says what globus-gridftp-server does without it.
fn is_default(option: &GlobusOption, value: &Value) -> bool {
    match (option.kind, value) {
        (Kind::Switch(default), Value::Switch(on)) => default == *on,
        (Kind::Text, Value::Text(text)) => option.name() == "load_dsi_module" && text == "file",
        _ => false,
    }
}

#[cfg(test)]
mod tests;
