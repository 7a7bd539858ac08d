//! The certificates of an authority of data nodes: what the server or the node would refuse, and those that end soon.

use std::path::PathBuf;
use std::time::SystemTime;

use gridhaul_security::credential::Credential;
use gridhaul_security::files::read_credential;
use gridhaul_security::node_authority::{NodeIdentity, Role};

use super::Validated;
use crate::config::Config;
use crate::security::ends_soon;

/// The setting with the identity, its role and its file.
fn of(config: &Config) -> Option<(&'static str, Role, PathBuf)> {
    if let Some(identity) = config.node.as_ref().and_then(|node| node.identity.clone()) {
        return Some(("node-identity", Role::Node, identity));
    }
    let control = config.node_authority.clone()?;
    Some(("node-authority", Role::ControlServer, control))
}

/// Reads the identity, unless the configuration has none.
///
/// # Errors
///
/// The reason in words, with the remedy.
pub(crate) fn read(config: &Config) -> Option<Result<(Credential, NodeIdentity), String>> {
    let (_, role, path) = of(config)?;
    let remedy = match role {
        Role::Node => "enrol the node again: `gridhaul-server node --enroll` with --again",
        Role::ControlServer => {
            "`gridhaul-server nodes invite` makes it; name the directory that it has printed"
        }
    };
    let wrong = |error: String| match error.contains("chmod") {
        true => error,
        false => format!("{error}; {remedy}"),
    };
    let read = read_credential(&path, &path);
    let read = read.map_err(|error| wrong(error.to_string()));
    Some(read.and_then(|credential| {
        let identity = NodeIdentity::new(role, credential.chain());
        let identity = identity.and_then(|identity| {
            identity.verify(SystemTime::now())?;
            Ok(identity)
        });
        match identity {
            Ok(identity) => Ok((credential, identity)),
            Err(error) => Err(wrong(format!("{}: {error}", path.display()))),
        }
    }))
}

/// An identity that cannot be used is an error, and one that ends soon a warning.
pub(super) fn check(validated: &mut Validated, config: &Config) {
    let Some((key, role, path)) = of(config) else {
        return;
    };
    if validated.is_wrong(key) {
        return;
    }
    match read(config) {
        None => {}
        Some(Err(error)) => validated.error(key, format!("{key}: {error}")),
        Some(Ok((credential, _))) => {
            if let Some(text) = ends_soon(role, credential.expires(), SystemTime::now()) {
                validated.warning(key, format!("{key}: {}: {text}", path.display()));
            }
        }
    }
}
