//! The data nodes: each is dialled with the code of a server, and tried.
//!
//! ```text
//! reach        a connection to each node: certificates, version, clock, nodes that are listed twice
//!   └─ accounts     the accounts of users there
//!        ├─ roots        the roots of rules
//!        ├─ files        a directory that one node makes, and the others must see
//!        └─ ports        data channels from this machine, and from each node to others
//!  patience    the time for all of it, and work on several nodes at once
//!  tried       a transfer that a node carries out for this check
//! ```

mod accounts;
mod files;
mod patience;
mod ports;
mod reach;
mod roots;
mod tried;

use std::sync::Arc;

use gridhaul_security::credential::Credential;
use gridhaul_security::tls::{HostCertificate, HostSettings, TlsVersions};
use gridhaul_security::trust::TrustStore;

use super::report::Report;
use crate::config::Config;
use crate::validate::{Validated, read_identity};
use accounts::People;
use patience::Patience;

const ABOUT: &str = "nodes";

/// What the server shows to nodes, and whom it trusts, as far as other checks could read it.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) credential: Option<Credential>,
    pub(super) trust: Option<Arc<TrustStore>>,
}

impl Own {
    fn settings(self) -> Option<HostSettings> {
        let credential = self.credential?;
        let key = credential.key().signing_key();
        Some(HostSettings {
            certificate: HostCertificate::new(credential.chain(), key).ok()?,
            trust: self.trust?,
            versions: TlsVersions::Only13,
        })
    }
}

/// With the authority of enrolled nodes.
fn enrolled(config: &Config) -> Option<HostSettings> {
    let (credential, identity) = read_identity(config)?.ok()?;
    identity.settings(credential.key().signing_key()).ok()
}

/// Tries each node. What is made there is removed again.
pub(super) fn check(report: &mut Report, validated: &Validated, own: Own) {
    let config = &validated.config;
    if config.nodes.is_empty() || validated.is_wrong(ABOUT) {
        return;
    }
    let settings = match config.node_authority {
        Some(_) => enrolled(config),
        None => own.settings(),
    };
    let Some(settings) = settings else {
        let text = "they were not tried, because this server has no certificate or trusts no authority: see above";
        return report.error(ABOUT, text);
    };
    let patience = match Patience::new() {
        Ok(patience) => patience,
        Err(error) => return report.error(ABOUT, format!("they were not tried: {error}")),
    };
    try_all(report, validated, &settings, &patience);
    patience.tell(report);
}

fn try_all(
    report: &mut Report,
    validated: &Validated,
    settings: &HostSettings,
    patience: &Patience,
) {
    let config = &validated.config;
    let nodes = reach::check(report, config, settings, patience);
    if nodes.is_empty() || patience.is_over() {
        return;
    }
    let people = People::of(config);
    let attached = accounts::check(report, &people, &nodes, patience);
    if patience.is_over() {
        return;
    }
    roots::check(report, config, (&people, &nodes), patience);
    if patience.is_over() {
        return;
    }
    let shared = files::check(report, &attached, patience);
    if !patience.is_over() {
        ports::check(report, config, &attached, shared.as_ref(), patience);
    }
    if let Some(shared) = shared {
        shared.remove(report, patience);
    }
}

/// A text of a node or about it, which says of whom it is.
fn of(node: &str, text: &str) -> String {
    /// A reason that a node gives, in characters.
    const MOST: usize = 600;
    let text: String = text.chars().take(MOST).collect();
    match text.strip_prefix(node) {
        Some(_) => text,
        None => format!("{node}: {text}"),
    }
}
