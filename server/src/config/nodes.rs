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
const MOST: usize = 256;

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
        let parsed = host_and_port(text).map(|(host, port)| Self { host, port });
        parsed.ok_or_else(|| {
            ValueError::new(
                text,
                "a data node, like dtn1.example.org, dtn1.example.org:7512 or [2001:db8::1]:7512",
            )
        })
    }
}

/// `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.
fn host_and_port(text: &str) -> Option<(HostName, u16)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((HostName::Address(address.to_canonical()), NODE_PORT));
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
        return Some((text.parse().ok()?, NODE_PORT));
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

deserialize_as_text!(NodeAddress);

/// The nodes in settings. Without certificates a node would not know the server.
pub(super) fn resolve(errors: &mut Vec<ConfigError>, settings: &mut Settings) -> Vec<NodeAddress> {
    let Some(nodes) = settings.nodes.take() else {
        return Vec::new();
    };
    if nodes.is_empty() {
        errors.push(ConfigError::Empty("nodes"));
    }
    if settings.gsi != Some(true) {
        errors.push(ConfigError::Needs("nodes", "--gsi"));
    }
    if nodes.len() > MOST {
        errors.push(ConfigError::TooManyNodes {
            count: nodes.len(),
            most: MOST,
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

    fn parsed(text: &str) -> NodeAddress {
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
            "dns:dtn1",
            "dtn1/x",
        ] {
            let error = text.parse::<NodeAddress>().expect_err(text).to_string();
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
