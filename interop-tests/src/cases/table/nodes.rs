//! Servers with data nodes: striped copies of `globus-url-copy` between any numbers of nodes, of ours and of the real server.

use std::collections::BTreeSet;

use super::gfal::{self, Direction};
use super::restart::{self, End};
use super::transfers::{get, put, third_party};
use super::{arc, gsi};
use crate::cases::{Case, Context, Observation, Partners, Role};
use crate::support::{Failure, Kind, UserKind, check, content};

/// Several stripe blocks for each of eight nodes, and not a multiple of any block size.
const SIZE: u64 = 20_000_003;

/// All numbers of nodes.
const CLUSTERS: [Role; 4] = [
    Role::OneNode,
    Role::TwoNodes,
    Role::FourNodes,
    Role::EightNodes,
];

/// The nodes of source and destination.
const PAIRS: [[Role; 2]; 6] = [
    [Role::TwoNodes, Role::ThreeNodes],
    [Role::ThreeNodes, Role::TwoNodes],
    [Role::FourNodes, Role::OneNode],
    [Role::OneNode, Role::FourNodes],
    [Role::FourNodes, Role::TwoNodes],
    [Role::EightNodes, Role::SecondEightNodes],
];

/// Layouts: that of the servers, partitioned, and blocks of other sizes.
const LAYOUTS: [&[&str]; 4] = [
    &[],
    &["-sbs", "0"],
    &["-sbs", "100000"],
    &["-sbs", "4194304"],
];

/// The protection of data channels; authenticated and clear is the default.
const PROTECTIONS: [&str; 3] = ["-nodcau", "-dcsafe", "-dcpriv"];

/// A transport that the client names.
#[derive(Clone, Copy)]
struct Stack {
    options: &'static [&'static str],
    /// How our source and destination moved the bytes, if it differs from `read` and `write`.
    ways: Option<[&'static str; 2]>,
    /// Whether the real server has the driver.
    is_known: bool,
}

const STACKS: [Stack; 6] = [
    Stack::known(&["-dcstack", "tcp", "-p", "1"]),
    Stack::known(&["-dcstack", "tcp", "-p", "4", "-dcpriv"]),
    Stack::ours(
        &["-dcstack", "splice", "-p", "1"],
        Some(["sendfile", "splice"]),
    ),
    // TLS is in the program.
    Stack::ours(&["-dcstack", "splice", "-p", "4", "-dcpriv"], None),
    Stack::ours(
        &["-dcstack", "rdma:slab=1M", "-p", "1"],
        Some(["rdma", "rdma"]),
    ),
    Stack::ours(
        &["-dcstack", "rdma:slab=1M", "-p", "4", "-dcpriv"],
        Some(["rdma", "rdma"]),
    ),
];

impl Stack {
    const fn known(options: &'static [&'static str]) -> Self {
        Self {
            options,
            ways: None,
            is_known: true,
        }
    }

    const fn ours(options: &'static [&'static str], ways: Option<[&'static str; 2]>) -> Self {
        Self {
            options,
            ways,
            is_known: false,
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    [
        every_number(),
        pairs_of_clusters(),
        stacks(),
        restarts(),
        other_clients(),
    ]
    .concat()
}

/// Copies of one cluster of each size.
fn every_number() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in CLUSTERS {
        for options in [["-stripe", "-p", "1"], ["-stripe", "-p", "4"]] {
            let name = |direction: &str| {
                let nodes = role.nodes();
                let options = options.join(" ");
                format!("nodes/globus-url-copy {direction} {options}, {nodes} nodes")
            };
            let alone = [
                Case::new(name("get"), move |context| get(context, &options, SIZE)),
                Case::new(name("put"), move |context| put(context, &options, SIZE)),
                Case::new(name("third-party"), move |context| {
                    third_party(context, &options, SIZE)
                }),
                Case::new(name("addresses of"), move |context| {
                    addresses(context, &options, role.nodes())
                }),
            ];
            cases.extend(alone.map(|case| of(case, [role, Role::TwoNodes])));
        }
    }
    cases
}

/// Copies from cluster to cluster, with each layout and each protection.
fn pairs_of_clusters() -> Vec<Case> {
    let mut cases = Vec::new();
    for pair in PAIRS {
        for channels in [["-p", "1"], ["-p", "4"]] {
            for layout in LAYOUTS {
                cases.extend(between(pair, [&channels, layout].concat()));
            }
        }
        for protection in PROTECTIONS {
            cases.extend(between(pair, vec!["-p", "4", protection]));
        }
    }
    cases
}

/// Copies from cluster to cluster with a transport of the client's choice.
fn stacks() -> Vec<Case> {
    let mut cases = Vec::new();
    for roles in [
        [Role::TwoNodes, Role::ThreeNodes],
        [Role::FourNodes, Role::TwoNodes],
    ] {
        let [source, destination] = roles.map(Role::nodes);
        for stack in STACKS {
            let words = stack.options.join(" ");
            let name = format!("nodes/stacks {words}, {source} to {destination} nodes");
            let copied = Case::third_party(name, move |context| over(context, stack));
            let copied = copied.into_iter().map(|case| of(case, roles));
            if stack.is_known {
                cases.extend(copied);
            } else {
                let alike = copied.filter(|case| case.setup.partners == Partners::Alike);
                cases.extend(alike.map(|case| case.deviation("it has no such driver")));
            }
        }
    }
    cases
}

/// Copies of which one control connection breaks.
fn restarts() -> Vec<Case> {
    let mut cases = Vec::new();
    for end in End::ALL {
        for reply in end.breaks() {
            let name = format!("nodes/restart -p 4 -stripe -rst, broken at {reply} of the {end}");
            let restarted = Case::third_party(name, move |context| {
                restart::third_party(context, &["-stripe", "-p", "4"], end, reply)
            });
            let roles = [Role::TwoOpenNodes, Role::ThreeOpenNodes];
            cases.extend(restarted.into_iter().map(|case| case.roles(roles)));
        }
    }
    cases
}

/// Copies of clients without stripes.
fn other_clients() -> Vec<Case> {
    let roles = [Role::TwoNodes, Role::ThreeNodes];
    let gfal = |direction| {
        move |context: &Context<'_>| {
            gfal::copy(context, direction, &["-n", "4"], "source", "copy", SIZE)
        }
    };
    let mut cases = vec![
        Case::new("nodes/gfal-copy get -n 4", gfal(Direction::Get)),
        Case::new("nodes/gfal-copy put -n 4", gfal(Direction::Put)),
        Case::new("nodes/arccp get", arc::get),
        Case::new("nodes/arccp put", arc::put),
    ];
    let name = "nodes/gfal-copy third-party -n 4";
    cases.extend(Case::third_party(name, gfal(Direction::ThirdParty)));
    let mut java = vec![
        Case::new("nodes/jglobus get", gsi::jglobus_get),
        Case::new("nodes/jglobus put", gsi::jglobus_put),
    ];
    java.extend(Case::third_party("nodes/jglobus copy", gsi::jglobus_copy));
    let listed = Case::new("nodes/errors list of a missing directory", |context| {
        context
            .globus_url_copy(["-list".into(), context.from("nosuch/")])
            .run()?
            .failed_with(1, &["550", "No such file or directory"])?;
        Ok(Observation::none())
    });
    cases.push(listed.deviation("with data nodes it answers 500"));
    let rsa = [Role::TwoNodesRsa, Role::ThreeNodesRsa];
    let cases = cases.into_iter();
    let cases = cases.map(|case| of(case, roles).crashing(gsi::CRASHING_ATTEMPTS));
    cases
        .chain(java.into_iter().map(|case| of(case, rsa)))
        .collect()
}

/// The case for a user with a certificate, with these servers.
fn of(case: Case, roles: [Role; 2]) -> Case {
    case.gsi(UserKind::Spaces).roles(roles)
}

/// A third-party copy between these clusters, for each pair of servers.
fn between(roles: [Role; 2], options: Vec<&'static str>) -> impl Iterator<Item = Case> {
    let [source, destination] = roles.map(Role::nodes);
    let name = format!(
        "nodes/third-party {}, {source} to {destination} nodes",
        options.join(" ")
    );
    let options = [&["-stripe"], options.as_slice()].concat();
    let copied = Case::third_party(name, move |context| third_party(context, &options, SIZE));
    copied.into_iter().map(move |case| of(case, roles))
}

/// Copies with a stack; the log of our servers has the way of the bytes.
fn over(context: &Context<'_>, stack: Stack) -> Result<Observation, Failure> {
    let options = [&["-stripe"], stack.options].concat();
    third_party(context, &options, SIZE)?;
    let ends = [
        (context.source(), "source"),
        (context.destination(), "copy"),
    ];
    for ((server, name), way) in ends.into_iter().zip(stack.ways.into_iter().flatten()) {
        let (log, path) = (server.log(), context.name(name));
        let mut lines = log.lines();
        let line = lines.rfind(|line| line.contains("transfer finished") && line.contains(&path));
        let words = format!(" way=\"{way}\"");
        check(line.is_some_and(|line| line.contains(&words)), || {
            format!("no{words} in {line:?}")
        })?;
    }
    Ok(Observation::none())
}

/// The server tells the client an address of each node. Those of our nodes are on different hosts.
fn addresses(context: &Context<'_>, options: &[&str], nodes: u8) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", SIZE)?;
    let copied = context
        .globus_url_copy(options)
        .arg("-dbg")
        .args([context.local_url("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote("copy"))?;
    let output = copied.output();
    let lines = output.lines().skip_while(|line| !line.contains("229-"));
    let addresses: Vec<_> = lines
        .skip(1)
        .take_while(|line| !line.contains("229 "))
        .map(str::trim)
        .collect();
    check(addresses.len() == usize::from(nodes), || {
        format!("{nodes} addresses expected: {addresses:?}\n{output}")
    })?;
    if context.subject() == Kind::Gridhaul {
        let hosts: BTreeSet<_> = addresses
            .iter()
            .map(|it| it.splitn(5, ',').take(4).collect::<Vec<_>>())
            .collect();
        check(hosts.len() == addresses.len(), || {
            format!("hosts of their own expected: {addresses:?}")
        })?;
    }
    Ok(Observation::none())
}
