//! How data connections are made: ports, addresses and drivers.

use std::net::IpAddr;

use gridhaul_stack::OptionRules;
use gridhaul_transfer::{AddressBlock, Admission};

use super::error::ConfigError;
use super::port_range;
use super::ranges::between;
use super::settings::Settings;
use super::values::{ClientOptions, DataHosts, PortRange};

/// The configuration of data connections.
#[derive(Debug, Clone, PartialEq)]
pub struct DataConnections {
    /// The ports of passive connections.
    pub port_range: Option<PortRange>,
    /// The local address of passive connections.
    pub address: Option<IpAddr>,
    /// The address in replies to PASV.
    pub advertise: Option<IpAddr>,
    /// The hosts that may open data connections besides the control connection's peer.
    pub hosts: Vec<DataHosts>,
    /// The number of addresses in the reply to `SPAS`.
    pub stripes: usize,
    /// The driver stack.
    pub stack: String,
    /// The drivers that authenticated users may name.
    pub allowed_drivers: Vec<String>,
    /// The drivers that anonymous users may name.
    pub anonymous_drivers: Vec<String>,
    /// Rules for the options of some drivers that clients may set. For other drivers, their documentation decides.
    pub client_options: Vec<OptionRules>,
}

impl DataConnections {
    /// Whether data channels may run over this transport: in the default stack, or by request of a client.
    pub(crate) fn may_use(&self, transport: &str) -> bool {
        let is_default = self.stack.split([':', ',']).next() == Some(transport);
        let mut asked_for = self.allowed_drivers.iter().chain(&self.anonymous_drivers);
        is_default || asked_for.any(|driver| driver == transport)
    }

    /// The hosts that may open data connections to a session whose control connection comes from `peer`.
    pub fn admission(&self, peer: IpAddr) -> Admission {
        let mut blocks = vec![AddressBlock::host(peer)];
        for hosts in &self.hosts {
            match hosts {
                DataHosts::Any => return Admission::Anyone,
                DataHosts::Block(block) => blocks.push(*block),
            }
        }
        Admission::Hosts(blocks)
    }

    /// The blocks in `data-hosts`, without `any`.
    pub fn named_hosts(&self) -> Vec<AddressBlock> {
        let named = self.hosts.iter().filter_map(|hosts| match hosts {
            DataHosts::Any => None,
            DataHosts::Block(block) => Some(*block),
        });
        named.collect()
    }

    /// Whether some users may name a driver.
    pub fn may_be_asked_for(&self, driver: &str) -> bool {
        let mut drivers = self.allowed_drivers.iter().chain(&self.anonymous_drivers);
        drivers.any(|name| name == driver)
    }
}

/// The data connections in settings, with defaults.
///
/// `nodes` is the number of data nodes: each is a stripe.
pub(super) fn resolve(
    errors: &mut Vec<ConfigError>,
    settings: &Settings,
    nodes: usize,
) -> DataConnections {
    let port_range = settings.port_range.or_else(|| {
        port_range::of_environment().unwrap_or_else(|error| {
            errors.push(ConfigError::PortRangeVariable(error));
            None
        })
    });
    let addresses = settings.data_address.as_deref().unwrap_or_default();
    if addresses.len() > 1 {
        errors.push(ConfigError::SeveralDataAddresses);
    }
    let allowed_drivers = settings.allowed_drivers.clone().unwrap_or_else(|| {
        ALLOWED_DRIVERS
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    });
    DataConnections {
        port_range,
        address: addresses.first().copied(),
        advertise: settings.advertise_address,
        hosts: settings.data_hosts.clone().unwrap_or_default(),
        stripes: between(
            errors,
            "stripes",
            settings.stripes,
            nodes.clamp(1, 64),
            1,
            64,
        ),
        stack: settings.stack.clone().unwrap_or_else(|| STACK.to_owned()),
        anonymous_drivers: settings
            .anonymous_drivers
            .clone()
            .unwrap_or_else(|| for_anonymous_users(&allowed_drivers)),
        allowed_drivers,
        client_options: settings
            .client_options
            .iter()
            .flatten()
            .map(|ClientOptions(rules)| rules.clone())
            .collect(),
    }
}

/// The default stack.
const STACK: &str = if cfg!(feature = "splice") {
    "auto"
} else {
    "tcp"
};

/// The default of `allowed-drivers`: the compiled-in drivers that need no configuration.
const ALLOWED_DRIVERS: &[&str] = match (cfg!(feature = "splice"), cfg!(feature = "rdma")) {
    (true, true) => &["auto", "tcp", "splice", "rdma"],
    (true, false) => &["auto", "tcp", "splice"],
    (false, true) => &["tcp", "rdma"],
    (false, false) => &["tcp"],
};

/// The default of `anonymous-drivers`. Channels of other drivers hold memory while they are open, and use processors or
/// adapters that an administrator may want to reserve.
fn for_anonymous_users(allowed: &[String]) -> Vec<String> {
    const PLAIN: [&str; 3] = ["auto", "tcp", "splice"];
    let plain = allowed.iter().filter(|name| PLAIN.contains(&name.as_str()));
    plain.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_peer_may_open_data_connections_until_others_are_named() {
        let peer: IpAddr = "192.0.2.1".parse().expect("an address");
        let other: IpAddr = "192.0.2.2".parse().expect("an address");
        let admission = |hosts: &[&str]| {
            let hosts = hosts
                .iter()
                .map(|host| host.parse().expect("hosts"))
                .collect();
            let settings = Settings {
                data_hosts: Some(hosts),
                ..Settings::default()
            };
            resolve(&mut Vec::new(), &settings, 0).admission(peer)
        };
        assert!(admission(&[]).admits(peer));
        assert!(!admission(&[]).admits(other));
        assert!(admission(&["192.0.2.2"]).admits(other));
        assert!(admission(&["192.0.2.2"]).admits(peer));
        assert!(admission(&["any"]).admits(other));
    }

    #[test]
    fn anonymous_users_have_rdma_only_where_it_is_named_for_them() {
        let drivers = |allowed: Option<&[&str]>, anonymous_drivers: Option<&[&str]>| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let settings = Settings {
                allowed_drivers: allowed.map(list),
                anonymous_drivers: anonymous_drivers.map(list),
                ..Settings::default()
            };
            let data = resolve(&mut Vec::new(), &settings, 0);
            (data.allowed_drivers, data.anonymous_drivers)
        };
        let (allowed, of_anonymous) = drivers(None, None);
        assert_eq!(allowed, ALLOWED_DRIVERS);
        assert_eq!(allowed.contains(&"rdma".to_owned()), cfg!(feature = "rdma"));
        assert!(!of_anonymous.contains(&"rdma".to_owned()));
        let (_, of_anonymous) = drivers(Some(&["tcp", "rdma"]), None);
        assert_eq!(of_anonymous, ["tcp"]);
        let (allowed, of_anonymous) = drivers(Some(&["tcp"]), Some(&["rdma"]));
        assert_eq!(allowed, ["tcp"]);
        assert_eq!(of_anonymous, ["rdma"]);
    }
}
