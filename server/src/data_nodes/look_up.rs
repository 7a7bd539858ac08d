//! The nodes that an entry of `nodes` stands for.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use gridhaul_security::host_name::HostName;
use tokio::task::JoinSet;

use super::Target;
use super::names::{Names, ServiceTarget};
use crate::config::{MOST_NODES, NodeAddress, NodeSource, ServiceName};

/// How long a failure counts.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// How long an address counts, which is not looked up.
const OF_ADDRESS: Duration = Duration::from_secs(3600);

/// The targets of a service that are looked up at a time. Two questions about each leave room for those of other entries
/// (`names.rs`), also when no answer comes.
const HOSTS_AT_A_TIME: usize = 4;

/// What an entry stands for.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) targets: Vec<Target>,
    /// When to ask again.
    pub(crate) again: Duration,
    /// Records that are not used.
    pub(crate) refused: Refused,
}

/// Records that are not used. An answer of DNS may have thousands.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The reasons for the first ones.
    pub(crate) reasons: Vec<String>,
    /// How many there are besides.
    pub(crate) others: usize,
}

impl Refused {
    fn add(&mut self, reason: String) {
        const MOST_REASONS: usize = 16;
        if self.reasons.len() < MOST_REASONS {
            self.reasons.push(reason);
        } else {
            self.others += 1;
        }
    }
}

/// Looks up what an entry stands for. A host is a node also if its name has no address at present.
///
/// # Errors
///
/// When it is not known which nodes there are, with the reason.
pub(crate) async fn look_up(names: &Names, source: &NodeSource) -> Result<Found, String> {
    match source {
        NodeSource::Node(node) => {
            let (target, again) = host(names, node).await;
            Ok(Found {
                targets: vec![target],
                again,
                refused: Refused::default(),
            })
        }
        NodeSource::Addresses(node) => addresses(names, node).await,
        NodeSource::Service(service) => targets(names, service).await,
    }
}

async fn host(names: &Names, node: &NodeAddress) -> (Target, Duration) {
    let name = match &node.host {
        HostName::Name(name) => name,
        HostName::Address(address) => {
            let address = SocketAddr::new(*address, node.port);
            return (Target::new(node, Ok(vec![address])), OF_ADDRESS);
        }
    };
    match names.addresses(name).await {
        Ok(answer) => {
            let addresses = answer.values.into_iter();
            let addresses = addresses.map(|address| SocketAddr::new(address, node.port));
            (Target::new(node, Ok(addresses.collect())), answer.counts)
        }
        Err(error) => (Target::new(node, Err(error)), AFTER_FAILURE),
    }
}

/// Each address of a host is a node. All of them have a certificate for the host, so a forged answer of DNS brings no node that
/// is not trusted.
async fn addresses(names: &Names, node: &NodeAddress) -> Result<Found, String> {
    let HostName::Name(name) = &node.host else {
        return Err("an address is no name of DNS".to_owned());
    };
    let mut answer = names.addresses(name).await?;
    answer.values.sort();
    answer.values.dedup();
    let mut refused = Refused::default();
    bound(&mut answer.values, &mut refused);
    let target = |address: IpAddr| {
        let address = SocketAddr::new(address, node.port);
        Target {
            name: address.to_string(),
            host: node.host.clone(),
            addresses: Ok(vec![address]),
        }
    };
    Ok(Found {
        targets: answer.values.into_iter().map(target).collect(),
        again: answer.counts,
        refused,
    })
}

/// The targets of a service. Their certificates name the targets, which are in the answer of DNS, so the domain of the service
/// bounds what a forged answer may name.
async fn targets(names: &Names, service: &ServiceName) -> Result<Found, String> {
    let answer = names.service(&service.name).await?;
    let read = answer.values.iter().map(|target| node_of(target, service));
    let (nodes, wrong): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
    let mut nodes: Vec<_> = nodes.into_iter().flatten().collect();
    let mut refused = Refused::default();
    bound(&mut nodes, &mut refused);
    let wrong = wrong.into_iter().filter_map(Result::err);
    wrong.for_each(|reason| refused.add(reason));
    let mut found = Found {
        targets: Vec::new(),
        again: answer.counts,
        refused,
    };
    let mut asked = JoinSet::new();
    let mut nodes = nodes.into_iter();
    loop {
        while asked.len() < HOSTS_AT_A_TIME
            && let Some(node) = nodes.next()
        {
            let names = names.clone();
            asked.spawn(async move { host(&names, &node).await });
        }
        let Some(answer) = asked.join_next().await else {
            break;
        };
        let (target, again) = answer.map_err(|error| error.to_string())?;
        found.again = found.again.min(again);
        found.targets.push(target);
    }
    found
        .targets
        .sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn node_of(target: &ServiceTarget, service: &ServiceName) -> Result<NodeAddress, String> {
    let ServiceTarget { host, port } = target;
    let is_within = host
        .strip_suffix(service.domain.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !is_within {
        return Err(format!(
            "the target '{}' is not within {}: name it with an entry of its own",
            host.escape_default(),
            service.domain
        ));
    }
    match (host.parse::<HostName>(), *port) {
        (Ok(host @ HostName::Name(_)), port @ 1..) => Ok(NodeAddress::new(host, port)),
        _ => Err(format!(
            "the target '{}' with port {port} is no host with a port",
            host.escape_default()
        )),
    }
}

fn bound<T>(values: &mut Vec<T>, refused: &mut Refused) {
    if values.len() > MOST_NODES {
        refused.add(format!(
            "there are {}, and a server has at most {MOST_NODES} nodes: those behind them in the order of names",
            values.len()
        ));
        values.truncate(MOST_NODES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_hosts_within_the_domain_of_the_service() {
        let service = ServiceName {
            name: "_gridhaul._tcp.example.org".to_owned(),
            domain: "example.org".to_owned(),
        };
        let node = |host: &str, port| {
            let target = ServiceTarget {
                host: host.to_owned(),
                port,
            };
            node_of(&target, &service).map(|node| node.to_string())
        };
        assert_eq!(
            node("dtn1.example.org", 7000).expect("within"),
            "dtn1.example.org:7000"
        );
        assert_eq!(
            node("example.org", 7512).expect("the same"),
            "example.org:7512"
        );
        for host in ["dtn1.example.com", "evilexample.org", "", "."] {
            let error = node(host, 7512).expect_err(host);
            assert!(error.contains("not within example.org"), "{error}");
        }
        node("dtn1.example.org", 0).expect_err("no port");
        node("a b.example.org", 7512).expect_err("no host");
    }

    #[test]
    fn there_are_not_too_many() {
        let (mut values, mut refused) = ((0..1000).collect::<Vec<_>>(), Refused::default());
        bound(&mut values, &mut refused);
        assert_eq!((values.len(), refused.reasons.len()), (MOST_NODES, 1));
    }

    #[test]
    fn a_thousand_refused_records_have_sixteen_reasons_and_a_number() {
        let mut refused = Refused::default();
        (0..1000).for_each(|number| refused.add(format!("record {number}")));
        assert_eq!((refused.reasons.len(), refused.others), (16, 984));
    }
}
