//! Settings of a server that its data nodes have instead.

use super::Validated;

/// What concerns files and data channels, which a server with data nodes does not have.
const OF_NODES: [&str; 16] = [
    "movers",
    "buffer-memory",
    "rdma-memory",
    "checksum-threads",
    "remembered-checksums",
    "checksum-key",
    "data-timeout",
    "perms",
    "umask",
    "least-uid",
    "allow-root",
    "allow-disabled-login",
    "max-brokers",
    "broker-idle-timeout",
    "data-address",
    "advertise-address",
];

/// Warns of settings without effect.
pub(super) fn check(validated: &mut Validated) {
    if validated.config.nodes.is_empty() {
        return;
    }
    for key in OF_NODES {
        if validated.sources.is_given(key) {
            let text = format!(
                "{key} is without effect in a server with nodes: delete it here, and set it on the nodes"
            );
            validated.warning(key, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServeArguments, Settings};
    use crate::server::PassedPlaces;

    #[test]
    fn settings_of_data_nodes_are_without_effect_in_a_server_with_nodes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.toml");
        let lines: Vec<_> = ["umask = '022'", "perms = '640'", "idle-timeout = 7"].into();
        for (nodes, expected) in [
            ("", &[][..]),
            ("nodes = ['dtn1']\n", &["perms", "umask"][..]),
        ] {
            std::fs::write(&path, format!("{nodes}{}", lines.join("\n"))).expect("written");
            let arguments = ServeArguments {
                config: Some(path.clone()),
                settings: Settings::default(),
                ..ServeArguments::default()
            };
            let validated = Validated::for_start(&arguments, &PassedPlaces::default());
            let mut keys: Vec<_> = validated
                .warnings
                .iter()
                .filter(|problem| problem.to_string().contains("set it on the nodes"))
                .filter_map(|problem| problem.key.as_deref())
                .collect();
            keys.sort_unstable();
            assert_eq!(keys, expected);
        }
    }
}
