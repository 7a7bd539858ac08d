//! From settings to the configuration of a data node.

use std::net::IpAddr;

use super::accounts;
use super::admin::Administration;
use super::as_node::{AsNode, ControlServer};
use super::configuration::Config;
use super::error::ConfigError;
use super::listen::ListenAddress;
use super::nodes::NODE_PORT;
use super::places::Found;
use super::ranges::not_empty;
use super::security;
use super::settings::Settings;

impl Config {
    /// The configuration of a data node, as [`Config::resolve`]; settings that a node does not have are not given.
    pub(super) fn resolve_node(mut settings: Settings) -> (Self, Vec<ConfigError>) {
        let mut found = Vec::new();
        let errors = &mut found;
        if settings.root.is_none() {
            errors.push(ConfigError::NoNodeRoot);
        }
        let identity = settings.node_identity.take();
        let identity = identity.or_else(|| Found::once().node_identity.clone());
        let security = security::resolve_node(errors, &mut settings, identity.is_some());
        let mut accounts = accounts::resolve(errors, &settings);
        // Control servers lease the accounts of pools.
        accounts.monitor.gridmapdir = None;
        let everywhere = || vec![ListenAddress::Port(NODE_PORT)];
        settings.listen.get_or_insert_with(everywhere);
        let listed = not_empty(errors, "control-servers", settings.control_servers.take());
        if let (Some(identity), Some(_)) = (&identity, &listed) {
            errors.push(ConfigError::ListedAndEnrolled(identity.clone()));
        }
        let data_addresses = settings.data_address.take();
        let data_addresses = not_empty(errors, "data-address", data_addresses).unwrap_or_default();
        if data_addresses.iter().any(IpAddr::is_ipv4) && data_addresses.iter().any(IpAddr::is_ipv6)
        {
            errors.push(ConfigError::DataAddressesOfTwoFamilies);
        }
        if data_addresses.len() > 1 && settings.advertise_address.is_some() {
            errors.push(ConfigError::OneAdvertisedForSeveral);
        }
        // Without `gsi`, these would be mistakes.
        let (config, more) = Self::resolve(Settings {
            tls_versions: None,
            allow_root: None,
            allow_disabled_login: None,
            least_uid: None,
            pam_service: None,
            umask: None,
            max_brokers: None,
            broker_idle_timeout: None,
            ..settings
        });
        let control_servers =
            listed.map(|listed| listed.into_iter().map(|ControlServer(one)| one).collect());
        let config = Self {
            security,
            accounts,
            admin: Administration::none(),
            node: Some(AsNode {
                control_servers,
                identity,
                data_addresses,
            }),
            ..config
        };
        found.extend(more);
        (config, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::as_node::KEYS;

    #[test]
    fn the_settings_of_a_node_exist() {
        let all: Vec<_> = Settings::keys().collect();
        assert!(KEYS.len() > 30);
        for key in KEYS {
            assert!(all.iter().any(|known| known == key), "{key}");
        }
    }

    #[test]
    fn a_node_may_have_several_data_addresses_of_one_family() {
        let settings = |addresses: &[&str]| {
            let addresses = addresses
                .iter()
                .map(|text| text.parse().expect("an address"));
            Settings {
                root: Some("/srv/data".into()),
                data_address: Some(addresses.collect()),
                ..Settings::default()
            }
        };
        let of_two = ["192.0.2.1", "192.0.2.2"];
        let (config, _) = Config::resolve_node(settings(&of_two));
        let node = config.node.expect("a node");
        assert_eq!(node.data_addresses.len(), 2);
        for (addresses, words) in [
            (
                &["192.0.2.1", "2001:db8::1"][..],
                "name those of one family",
            ),
            (&[], "data-address"),
        ] {
            let (_, found) = Config::resolve_node(settings(addresses));
            let found = found.iter().map(ToString::to_string);
            let found: Vec<_> = found.filter(|text| text.contains(words)).collect();
            assert_eq!(found.len(), 1, "{addresses:?}");
        }
        let (_, found) = Config::resolve_node(Settings {
            advertise_address: Some("198.51.100.7".parse().expect("an address")),
            ..settings(&of_two)
        });
        let mut found = found.iter().map(ToString::to_string);
        assert!(found.any(|text| text.starts_with("advertise-address stands for one")));
        let (_, found) = Config::resolve(settings(&of_two));
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let is_told = found.iter().any(|text| text.contains("name one, or none"));
        assert!(is_told, "{found:?}");
    }

    #[test]
    fn a_node_listens_at_all_addresses_and_obeys_the_control_servers_that_are_named() {
        let settings = Settings {
            root: Some("/srv".into()),
            cert: Some("/host".into()),
            trust: Some("/ca".into()),
            max_brokers: Some(7),
            control_servers: Some(vec!["ctl.example.org".parse().expect("a host")]),
            ..Settings::default()
        };
        let (config, errors) = Config::resolve_node(settings.clone());
        assert!(errors.is_empty(), "{errors:?}");
        assert!(config.listen.iter().all(|address| address.port() == 7512));
        assert!(config.listen[0].ip().is_unspecified());
        let named = config.node.expect("a node").control_servers;
        assert_eq!(named.map(|named| named.len()), Some(1));
        assert_eq!(config.accounts.brokers.brokers, 7);
        let gsi = config.security.gsi.expect("trust");
        assert_eq!(gsi.trust, std::path::Path::new("/ca"));
        assert!(gsi.rules.is_empty() && gsi.gridmap.is_none());

        let wrong = Settings {
            root: None,
            control_servers: Some(Vec::new()),
            ..settings
        };
        let (_, errors) = Config::resolve_node(wrong);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].contains("--root DIR"), "{texts:?}");
        assert!(texts[1].contains("control-servers is empty"), "{texts:?}");
    }
}
