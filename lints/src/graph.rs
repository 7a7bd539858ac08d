//! Strongly connected components of a small graph.

use std::collections::{BTreeMap, BTreeSet};

/// For each node, the nodes that it depends on.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// The sets of two or more nodes in which each node reaches each other one, sorted.
///
/// The graphs here have some dozens of nodes, so two searches per node are fast enough.
pub(crate) fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|node| (node, reachable(graph, node)))
        .collect();
    let mut seen: BTreeSet<&String> = BTreeSet::new();
    let mut circles = Vec::new();
    for (node, targets) in &reached {
        if seen.contains(node) || !targets.contains(node) {
            continue;
        }
        let mut circle = targets.clone();
        circle.retain(|other| reached.get(other).is_some_and(|back| back.contains(node)));
        seen.extend(circle.iter().copied());
        circles.push(circle.into_iter().cloned().collect());
    }
    circles
}

/// The nodes that a path of at least one edge leads to.
fn reachable<'a>(graph: &'a Graph, from: &'a String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph
                .entry((*from).into())
                .or_default()
                .insert((*to).into());
            graph.entry((*to).into()).or_default();
        }
        graph
    }

    #[test]
    fn chains_have_no_circle() {
        assert!(circles(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    }

    #[test]
    fn each_circle_is_found_once() {
        let graph = graph(&[
            ("a", "b"),
            ("b", "a"),
            ("b", "c"),
            ("c", "d"),
            ("d", "e"),
            ("e", "c"),
        ]);
        assert_eq!(circles(&graph), [vec!["a", "b"], vec!["c", "d", "e"]]);
    }
}
