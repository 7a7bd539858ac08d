//! The end of a certificate of an authority of data nodes, which an administrator renews by hand.

use std::time::{Duration, SystemTime};

use gridhaul_security::node_authority::Role;

use crate::status::utc;

/// How long before its end a certificate gets a warning.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// What to do about a certificate that ends soon; `None` if it does not.
pub(crate) fn ends_soon(role: Role, end: SystemTime, now: SystemTime) -> Option<String> {
    if end >= now + SOON {
        return None;
    }
    let remedy = match role {
        Role::Node => {
            "invite the node again with `gridhaul-server nodes invite`, and run `gridhaul-server node --enroll` with --again"
        }
        Role::ControlServer => {
            "move the directory of node-authority away, invite all nodes again, and enrol them with --again"
        }
    };
    Some(format!("the certificate ends at {}: {remedy}", utc(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_comes_a_month_before_the_end_and_says_what_to_do() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_764_021_600);
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(ends_soon(Role::Node, now + day * 31, now), None);
        let text = ends_soon(Role::Node, now + day * 29, now).expect("soon");
        assert!(text.starts_with("the certificate ends at 2025-12-23T22:00:00Z: invite"));
        let text = ends_soon(Role::ControlServer, now, now).expect("soon");
        assert!(text.contains("all nodes"), "{text}");
    }
}
