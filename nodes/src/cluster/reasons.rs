//! Why the members of a cluster cannot be used, in a text of bounded length.

use std::fmt::Display;
use std::sync::Arc;

use super::member::{MemberState, Record};

/// How many members a text names.
const TOLD: usize = 8;

/// How much of a reason a text has, in characters.
const REASON: usize = 160;

/// Why no member can be used.
pub(super) fn unavailable(members: &[Arc<Record>]) -> String {
    if members.is_empty() {
        return "no data node is available: the cluster has none".to_owned();
    }
    let told = members.iter().map(|member| {
        let state = match member.state.get() {
            MemberState::Up if member.drained().is_some() => {
                "drained by an administrator of this server".to_owned()
            }
            MemberState::Up => "just came back; try again".to_owned(),
            MemberState::Draining => "draining".to_owned(),
            MemberState::Same { name } => format!("the same node as {name}"),
            MemberState::Down { since, reason } => {
                let passed = since.elapsed().map_or(0, |passed| passed.as_secs());
                format!("down for {passed} s, {reason}")
            }
        };
        (member.name.clone(), state)
    });
    format!("no data node is available: {}", list(told))
}

/// Names with their reasons: `dtn1: no free port; dtn2: connection refused`.
pub(super) fn list(reasons: impl ExactSizeIterator<Item = (String, impl Display)>) -> String {
    let count = reasons.len();
    let mut told: Vec<_> = reasons
        .take(TOLD)
        .map(|(name, reason)| cut(&format!("{name}: {reason}")))
        .collect();
    if count > TOLD {
        told.push(format!("and {} more", count - TOLD));
    }
    told.join("; ")
}

/// The names of members.
pub(super) fn names<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = all.len();
    let mut told: Vec<_> = all.take(TOLD).map(cut).collect();
    if count > TOLD {
        told.push(format!("and {} more", count - TOLD));
    }
    told.join(", ")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(REASON) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_bounded() {
        let many = (0..1000).map(|number| (format!("dtn{number}"), "x".repeat(10_000)));
        let text = list(many.collect::<Vec<_>>().into_iter());
        assert!(text.len() < (TOLD + 1) * (REASON + 10), "{}", text.len());
        assert!(text.ends_with("; and 992 more"), "{text}");
        let two = [("dtn1", "no port"), ("dtn2", "down")].map(|(name, why)| (name.to_owned(), why));
        assert_eq!(list(two.into_iter()), "dtn1: no port; dtn2: down");
    }
}
