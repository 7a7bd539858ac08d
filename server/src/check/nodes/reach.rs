//! Whether each node can be reached, and what it is.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use gridhaul_nodes::cluster::StateHandle;
use gridhaul_nodes::{Dial, Instances, NodeDescription, RemoteConfig, RemoteNode, describe_node};
use gridhaul_security::node_authority::Role;
use gridhaul_security::tls::HostSettings;
use tokio::runtime::Handle;

use super::patience::Patience;
use super::{ABOUT, of};
use crate::check::report::{Report, Verdict};
use crate::config::{Config, MOST_NODES, NodeSource};
use crate::data_nodes::{Names, Refused, Target, look_up};
use crate::drivers;
use crate::security::ends_soon;
use crate::server::{Connected, dial_node};
use crate::version;

/// For the name, the connection, the handshake and the first answer.
const LIMIT: Duration = Duration::from_secs(20);

/// A node that has answered.
#[derive(Debug)]
pub(super) struct Node {
    /// As in `nodes`, with the port.
    pub(super) name: String,
    pub(super) remote: RemoteNode,
}

/// Dials all nodes. Returns those that answer, each once.
pub(super) fn check(
    report: &mut Report,
    config: &Config,
    settings: &HostSettings,
    patience: &Patience,
) -> Vec<Arc<Node>> {
    let (runtime, settings) = (patience.runtime(), settings.clone());
    let root = config.root.clone();
    let targets = named(report, config, patience);
    let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
    let dial = move |target: Target| {
        let name = target.name.clone();
        let (dial, described, expires) = describe(target, &settings, &runtime);
        let described = described?;
        let remote = RemoteNode::new(RemoteConfig {
            name: name.clone(),
            dial,
            runtime: runtime.clone(),
            root: root.clone(),
            state: StateHandle::unknown(),
            instances: Instances::default(),
            registry: drivers::registry(),
        });
        Ok::<_, String>((Node { name, remote }, described, expires))
    };
    let Ok(answers) = patience.each(LIMIT, targets, dial) else {
        return Vec::new();
    };
    let mut found: Vec<(Arc<Node>, NodeDescription)> = Vec::new();
    let mut lost = Vec::new();
    for (name, answer) in names.into_iter().zip(answers) {
        match answer {
            Some(Ok((node, described, expires))) => match same(&found, &described) {
                None => {
                    if config.node_authority.is_some() {
                        warn_of_end(report, &name, expires);
                    }
                    found.push((Arc::new(node), described));
                }
                Some(other) => report.error(ABOUT, twice(&name, &other.name, &described.host)),
            },
            Some(Err(reason)) => lost.push(of(&name, &reason)),
            None => lost.push(of(&name, "it has not answered in time")),
        }
    }
    report.problems(Verdict::Error, ABOUT, lost);
    for (node, described) in &found {
        tell(report, &node.name, described);
    }
    found.into_iter().map(|(node, _)| node).collect()
}

/// The nodes that the entries of the configuration stand for, each once.
fn named(report: &mut Report, config: &Config, patience: &Patience) -> Vec<Target> {
    let (runtime, names) = (patience.runtime(), Names::new(&config.nodes_resolver));
    let ask = move |source: NodeSource| runtime.block_on(look_up(&names, &source));
    let Ok(answers) = patience.each(LIMIT, config.nodes.clone(), ask) else {
        return Vec::new();
    };
    let mut targets: Vec<Target> = Vec::new();
    let (mut unknown, mut refused) = (Vec::new(), Vec::new());
    for (source, answer) in config.nodes.iter().zip(answers) {
        let source = source.to_string();
        match answer {
            Some(Ok(found)) => {
                let Refused { reasons, others } = found.refused;
                refused.extend(reasons.iter().map(|reason| of(&source, reason)));
                if others > 0 {
                    refused.push(of(
                        &source,
                        &format!("{others} further records are refused"),
                    ));
                }
                targets.extend(found.targets);
            }
            Some(Err(reason)) => {
                unknown.push(of(&source, &format!("it cannot be looked up: {reason}")))
            }
            None => unknown.push(of(&source, "DNS has not answered in time")),
        }
    }
    report.problems(Verdict::Error, ABOUT, unknown);
    report.problems(Verdict::Warning, ABOUT, refused);
    let mut seen = HashSet::new();
    targets.retain(|target| seen.insert(target.name.clone()));
    targets.truncate(MOST_NODES);
    targets
}

/// Asks a node what it is; the error has the reason why it does not answer.
fn describe(
    target: Target,
    settings: &HostSettings,
    runtime: &Handle,
) -> (Dial, Result<NodeDescription, String>, Option<SystemTime>) {
    let (target, settings) = (Arc::new(target), settings.clone());
    let expires = Arc::new(OnceLock::new());
    let told = Arc::clone(&expires);
    let dial = Dial::new(move || {
        let (target, settings) = (Arc::clone(&target), settings.clone());
        let told = Arc::clone(&told);
        async move {
            let Connected { stream, node, .. } = dial_node(&target, &settings).await?;
            told.get_or_init(|| node.expires);
            Ok(stream)
        }
    });
    let described = runtime.block_on(describe_node(&dial));
    let described = described.map_err(|error| error.to_string());
    (dial, described, expires.get().copied())
}

/// The certificate of an enrolled node is renewed by hand.
fn warn_of_end(report: &mut Report, name: &str, expires: Option<SystemTime>) {
    let now = SystemTime::now();
    if let Some(text) = expires.and_then(|end| ends_soon(Role::Node, end, now)) {
        report.warning(ABOUT, of(name, &text));
    }
}

/// The node that is the same one, under another name.
fn same<'a>(
    found: &'a [(Arc<Node>, NodeDescription)],
    described: &NodeDescription,
) -> Option<&'a Node> {
    let mut found = found.iter().filter(|(_, other)| !other.instance.is_empty());
    let (node, _) = found.find(|(_, other)| other.instance == described.instance)?;
    Some(node)
}

fn twice(name: &str, other: &str, host: &str) -> String {
    format!("{name} and {other} are one data node, on {host}: list it once")
}

fn tell(report: &mut Report, name: &str, described: &NodeDescription) {
    let NodeDescription { host, program, .. } = described;
    report.ok(
        ABOUT,
        format!("{name} is a data node of version {program} on {host}, and accepts this server"),
    );
    if program != version::VERSION_NUMBER {
        let text = format!(
            "{name} has version {program}, and this machine {}: install the same version on all of them",
            version::VERSION_NUMBER
        );
        report.warning(ABOUT, text);
    }
    if let Some((verdict, text)) = clock(described.clock_ahead) {
        report.add(verdict, ABOUT, format!("{name}: {text}"));
    }
    if described.draining {
        let text =
            format!("{name} drains: it finishes its transfers and gets no new ones; restart it");
        report.warning(ABOUT, text);
    }
}

/// Certificates and modification times need clocks that agree. `ahead` is in milliseconds.
fn clock(ahead: i64) -> Option<(Verdict, String)> {
    /// Network file systems and logs show such a difference.
    const VISIBLE: u64 = 5;
    /// Certificates that are new, and revocation lists, are refused.
    const HARMFUL: u64 = 60;

    let seconds = ahead.unsigned_abs() / 1000;
    let verdict = match seconds {
        HARMFUL.. => Verdict::Error,
        VISIBLE.. => Verdict::Warning,
        _ => return None,
    };
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let text =
        format!("its clock is {seconds} s {direction} that of this machine: set both clocks");
    Some((verdict, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_a_little() {
        for (ahead, expected) in [
            (0, None),
            (-4_999, None),
            (5_000, Some((Verdict::Warning, "5 s ahead of"))),
            (-59_999, Some((Verdict::Warning, "59 s behind"))),
            (7_200_000, Some((Verdict::Error, "7200 s ahead of"))),
            (
                i64::MIN,
                Some((Verdict::Error, "9223372036854775 s behind")),
            ),
        ] {
            let found = clock(ahead);
            assert_eq!(found.is_some(), expected.is_some(), "{ahead}");
            if let (Some((verdict, text)), Some((wanted, words))) = (found, expected) {
                assert_eq!(verdict, wanted, "{text}");
                assert!(text.contains(words), "{text}");
            }
        }
    }

    #[test]
    fn nodes_that_tell_no_instance_are_not_the_same() {
        let described = |instance: &[u8]| NodeDescription {
            host: "dtn1".to_owned(),
            program: "1.0".to_owned(),
            instance: instance.to_vec(),
            clock_ahead: 0,
            draining: false,
        };
        let text = twice("a:1", "b:1", "dtn1");
        assert!(text.starts_with("a:1 and b:1 are one data node"), "{text}");
        assert!(same(&[], &described(&[1; 16])).is_none());
        assert!(same(&[], &described(&[])).is_none());
    }
}
