//! The targets of log lines, for rules of `log-level`: a rule for another one would have no effect.

use super::similar::similar;

/// The modules that write to the log, with their crates, and the target of audit records.
const TARGETS: &[&str] = &[
    "audit",
    "gridhaul_accounts",
    "gridhaul_accounts::client",
    "gridhaul_accounts::client::broker",
    "gridhaul_accounts::client::broker::calls",
    "gridhaul_accounts::client::pool",
    "gridhaul_nodes",
    "gridhaul_nodes::cluster::joint",
    "gridhaul_nodes::cluster::node",
    "gridhaul_nodes::cluster::ports",
    "gridhaul_nodes::cluster::shared",
    "gridhaul_nodes::cluster::storage",
    "gridhaul_nodes::cluster::storage::verify",
    "gridhaul_nodes::remote::node",
    "gridhaul_nodes::service::session",
    "gridhaul_server",
    "gridhaul_server::admin::actions",
    "gridhaul_server::admin::doors",
    "gridhaul_server::admin::nodes",
    "gridhaul_server::admin::site",
    "gridhaul_server::admission::workers",
    "gridhaul_server::front",
    "gridhaul_server::handover::guests",
    "gridhaul_server::handover::outbox",
    "gridhaul_server::helpers",
    "gridhaul_server::http::connections",
    "gridhaul_server::login::readable",
    "gridhaul_server::login::service",
    "gridhaul_server::login::sockets",
    "gridhaul_server::login::watch",
    "gridhaul_server::node::accept",
    "gridhaul_server::node::connection",
    "gridhaul_server::node::expiry",
    "gridhaul_server::node::start",
    "gridhaul_server::reload",
    "gridhaul_server::running",
    "gridhaul_server::sandbox",
    "gridhaul_server::security::files",
    "gridhaul_server::security::host",
    "gridhaul_server::security::identities",
    "gridhaul_server::security::pools",
    "gridhaul_server::serve",
    "gridhaul_server::server::accept",
    "gridhaul_server::server::listeners",
    "gridhaul_server::server::membership",
    "gridhaul_server::server::membership::entries",
    "gridhaul_server::server::nodes",
    "gridhaul_server::server::takeover",
    "gridhaul_server::service::notify",
    "gridhaul_server::shared",
    "gridhaul_server::storages",
    "gridhaul_server::telemetry::journal",
];

/// The only library of this program that writes to the log.
const LIBRARY: &str = "rustls";

/// Whether lines have this target, or one that begins with it, as rules of `EnvFilter` match targets.
pub(super) fn is_target(name: &str) -> bool {
    let of_library = name == LIBRARY || name.starts_with("rustls::");
    let is_ours = TARGETS.iter().any(|target| target.starts_with(name));
    !name.is_empty() && (is_ours || of_library)
}

/// The target that was probably meant.
pub(super) fn similar_target(name: &str) -> String {
    similar(name, TARGETS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Whether the code of a file, without its tests, has a macro that writes to the log.
    fn writes(source: &str) -> bool {
        const MACROS: [&str; 6] = [
            "error!(", "warn!(", "info!(", "debug!(", "trace!(", "event!(",
        ];

        let code = source.split("#[cfg(test)]\nmod tests").next();
        let mut lines = code.unwrap_or_default().lines().map(str::trim_start);
        lines.any(|line| {
            let is_code = !line.starts_with("//");
            let words: Vec<_> = line.split([' ', '{', ';', ':']).collect();
            is_code
                && words
                    .iter()
                    .any(|word| MACROS.iter().any(|name| word.starts_with(name)))
        })
    }

    fn modules(directory: &Path, module: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .expect("UTF-8");
            let below = format!("{module}::{name}");
            if path.is_dir() {
                modules(&path, &below, found);
            } else if path.extension().is_some_and(|kind| kind == "rs")
                && writes(&fs::read_to_string(&path).expect("readable"))
            {
                let is_top = ["mod", "lib", "main"].contains(&name);
                found.insert(if is_top { module.to_owned() } else { below });
            }
        }
    }

    #[test]
    fn every_module_that_writes_to_the_log_is_a_target() {
        let server = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = BTreeSet::new();
        modules(&server.join("src"), "gridhaul_server", &mut found);
        modules(
            &server.join("../accounts/src"),
            "gridhaul_accounts",
            &mut found,
        );
        modules(&server.join("../nodes/src"), "gridhaul_nodes", &mut found);
        assert!(found.len() > 20, "{found:?}");
        for target in &found {
            assert!(TARGETS.contains(&target.as_str()), "TARGETS lacks {target}");
        }
        for target in TARGETS.iter().filter(|target| target.contains("::")) {
            assert!(found.contains(*target), "{target} writes nothing");
        }
    }

    #[test]
    fn beginnings_of_targets_count() {
        for name in [
            "gridhaul",
            "gridhaul_server::session",
            "gridhaul_server::serve",
            "audit",
            "rustls::conn",
        ] {
            let expected = name != "gridhaul_server::session";
            assert_eq!(is_target(name), expected, "{name}");
        }
        for name in [
            "",
            "gridhaul_sevrer",
            "gridhaul_server::loginn",
            "tokio",
            "session",
        ] {
            assert!(!is_target(name), "{name}");
        }
    }
}
