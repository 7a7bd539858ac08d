//! The data nodes of a server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use gridhaul_security::host_name::HostName;

use super::error::ConfigError;
use super::settings::Settings;
use super::texts::deserialize_as_text;
use super::values::ValueError;

/// The port of data nodes.
pub const NODE_PORT: u16 = 7512;

/// The most data nodes of a server.
pub const MOST_NODES: usize = 256;

/// An entry of `nodes`: one node, or a name of DNS for several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeSource {
    /// One node.
    Node(NodeAddress),
    /// `dns:HOST`, `dns:HOST:PORT`: each address of the host is a node, and each of them has a certificate for the host. So are
    /// the headless services of Kubernetes.
    Addresses(NodeAddress),
    /// `dns+srv:_SERVICE._PROTOCOL.DOMAIN`: the targets of these records (RFC 2782) are nodes.
    Service(ServiceName),
}

/// The name of a service (RFC 2782), in lower case and without the last dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceName {
    /// The whole name.
    pub name: String,
    /// The part behind the service and its protocol.
    pub domain: String,
}

/// Where a data node is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// The host, as its certificate names it.
    pub host: HostName,
    /// Its port.
    pub port: u16,
}

impl FromStr for NodeAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = host_and_port(text, NODE_PORT).map(|(host, port)| Self { host, port });
        parsed.ok_or_else(|| {
            ValueError::new(
                text,
                "a data node, like dtn1.example.org, dtn1.example.org:7512 or [2001:db8::1]:7512",
            )
        })
    }
}

impl FromStr for NodeSource {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            ValueError::new(
                text,
                "a data node, like dtn1.example.org, dtn1.example.org:7512 or [2001:db8::1]:7512, or names of DNS, like \
                 dns:dtn.example.org:7512 or dns+srv:_gridhaul._tcp.example.org",
            )
        };
        if let Some(service) = text.strip_prefix("dns+srv:") {
            return service_name(service).map(Self::Service).ok_or_else(wrong);
        }
        if let Some(host) = text.strip_prefix("dns:") {
            let found =
                host_and_port(host, NODE_PORT).map(|(host, port)| NodeAddress { host, port });
            let named = found.filter(|node| matches!(node.host, HostName::Name(_)));
            return named.map(Self::Addresses).ok_or_else(wrong);
        }
        text.parse().map(Self::Node).map_err(|_| wrong())
    }
}

impl NodeAddress {
    /// A node at a port of a host.
    pub fn new(host: HostName, port: u16) -> Self {
        Self { host, port }
    }
}

/// `_SERVICE._PROTOCOL.DOMAIN`; the domain has two labels at least, because targets must lie within it.
fn service_name(text: &str) -> Option<ServiceName> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let (service, rest) = name.split_once('.')?;
    let (protocol, domain) = rest.split_once('.')?;
    let is_label = |label: &str| label.len() > 1 && label.starts_with('_');
    let is_domain = domain.contains('.') && domain.parse::<HostName>().is_ok();
    let fits = is_label(service) && is_label(protocol) && is_domain && name.len() <= 253;
    fits.then(|| ServiceName {
        domain: domain.to_owned(),
        name: name.clone(),
    })
}

/// `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.
pub(super) fn host_and_port(text: &str, default: u16) -> Option<(HostName, u16)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((HostName::Address(address.to_canonical()), default));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        let is_one = !address.ip().is_unspecified() && address.port() > 0;
        return is_one.then(|| {
            (
                HostName::Address(address.ip().to_canonical()),
                address.port(),
            )
        });
    }
    let Some((host, port)) = text.split_once(':') else {
        return Some((text.parse().ok()?, default));
    };
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| is_number && *port > 0)?;
    Some((host.parse().ok()?, port))
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostName::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            HostName::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl fmt::Display for NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Addresses(node) => write!(f, "dns:{node}"),
            Self::Service(service) => write!(f, "dns+srv:{}", service.name),
        }
    }
}

deserialize_as_text!(NodeSource);

/// The nodes in settings. Without certificates a node would not know the server.
pub(super) fn resolve(errors: &mut Vec<ConfigError>, settings: &mut Settings) -> Vec<NodeSource> {
    let Some(nodes) = settings.nodes.take() else {
        if settings.node_authority.is_some() {
            errors.push(ConfigError::Needs("node-authority", "--nodes"));
        }
        return Vec::new();
    };
    if nodes.is_empty() {
        errors.push(ConfigError::Empty("nodes"));
    }
    if settings.gsi != Some(true) && settings.node_authority.is_none() {
        errors.push(ConfigError::Needs("nodes", "--gsi or --node-authority"));
    }
    if nodes.len() > MOST_NODES {
        errors.push(ConfigError::TooManyNodes {
            count: nodes.len(),
            most: MOST_NODES,
        });
        return Vec::new();
    }
    for (index, node) in nodes.iter().enumerate() {
        if nodes[..index].contains(node) {
            errors.push(ConfigError::NodeTwice(node.to_string()));
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> NodeSource {
        text.parse().expect(text)
    }

    #[test]
    fn nodes_are_hosts_with_a_port() {
        for (text, shown) in [
            ("DTN1.example.org", "dtn1.example.org:7512"),
            ("dtn1:7000", "dtn1:7000"),
            ("192.0.2.1", "192.0.2.1:7512"),
            ("192.0.2.1:7000", "192.0.2.1:7000"),
            ("2001:db8::1", "[2001:db8::1]:7512"),
            ("[2001:db8::1]:7000", "[2001:db8::1]:7000"),
            ("dns:DTN.example.org", "dns:dtn.example.org:7512"),
            ("dns:dtn:7000", "dns:dtn:7000"),
            (
                "dns+srv:_GridHaul._tcp.Example.org.",
                "dns+srv:_gridhaul._tcp.example.org",
            ),
        ] {
            assert_eq!(parsed(text).to_string(), shown);
            assert_eq!(parsed(shown), parsed(text));
        }
        for text in [
            "",
            ":7512",
            "dtn1:",
            "dtn1:0",
            "dtn1:+1",
            "dtn1:65536",
            "dtn1:7512:1",
            "0.0.0.0:7512",
            "192.0.2.1:0",
            "dtn1/x",
            "dns:",
            "dns:192.0.2.1",
            "dns:dtn:0",
            "dns+srv:dtn.example.org",
            "dns+srv:_gridhaul.example.org",
            "dns+srv:_gridhaul._tcp.",
            "dns+srv:_gridhaul._tcp.org",
            "dns+srv:_._tcp.example.org",
            "dns+srv:_gridhaul._tcp.example.org:7512",
            "srv:_gridhaul._tcp.example.org",
        ] {
            let error = text.parse::<NodeSource>().expect_err(text).to_string();
            assert!(error.contains("dtn1.example.org:7512"), "{error}");
        }
    }

    #[test]
    fn a_node_is_named_once_and_there_are_not_too_many() {
        let errors = |nodes: &[&str], gsi| {
            let mut settings = Settings {
                nodes: Some(nodes.iter().map(|node| parsed(node)).collect()),
                gsi,
                ..Settings::default()
            };
            let mut errors = Vec::new();
            let found = resolve(&mut errors, &mut settings);
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            (found.len(), errors.join("\n"))
        };
        let gsi = Some(true);
        assert_eq!(errors(&["dtn1", "dtn1:7513"], gsi), (2, String::new()));
        let (_, twice) = errors(&["dtn1", "dtn2", "DTN1:7512"], gsi);
        assert!(twice.contains("dtn1:7512"), "{twice}");
        let (_, alone) = errors(&["dtn1"], None);
        assert!(alone.starts_with("nodes needs --gsi"), "{alone}");
        let many: Vec<_> = (0..257).map(|number| format!("dtn{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(errors(&many[..256], gsi), (256, String::new()));
        assert!(errors(&many, gsi).1.contains("257"));
        assert!(errors(&[], gsi).1.contains("nodes is empty"));
    }
}
