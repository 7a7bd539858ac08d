//! Whether a node can serve its share of a transfer.

use std::collections::HashSet;

use gridhaul_protocol::command::TransferMode;

use crate::error::ShareError;
use crate::node::{Placement, Plan, Task};

/// Checks the share in a plan for a session whose data port has `peers` stripes.
pub(super) fn check(plan: &Plan, peers: usize) -> Result<(), ShareError> {
    let Some(share) = &plan.share else {
        return Ok(());
    };
    if plan.mode != TransferMode::Extended || matches!(plan.task, Task::SendLines(_)) {
        return Err(ShareError::NotBlocks);
    }
    let (stripes, total) = (share.stripes.len(), share.total);
    let different: HashSet<_> = share.stripes.iter().collect();
    let are_different = different.len() == stripes && different.iter().all(|&&one| one < total);
    if stripes == 0 || stripes != peers || !are_different {
        return Err(ShareError::Stripes {
            stripes,
            total,
            peers,
        });
    }
    if let Task::ReceiveFile { placement, .. } = &plan.task
        && plan.is_divided()
    {
        if plan.handling.ordered {
            return Err(ShareError::Ordered);
        }
        if *placement == Placement::Append {
            return Err(ShareError::Append);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gridhaul_protocol::command::{Representation, StripeLayout};
    use gridhaul_protocol::ranges::RangeSet;

    use super::*;
    use crate::node::{Handling, LineSource, Role, Share};

    fn plan(task: Task, stripes: &[usize], total: usize) -> Plan {
        Plan {
            task,
            mode: TransferMode::Extended,
            representation: Representation::Image,
            parallelism: 1,
            layout: StripeLayout::Partitioned,
            handling: Handling::default(),
            share: Some(Share {
                stripes: stripes.to_vec(),
                total,
                role: Role::Member,
            }),
        }
    }

    fn receive(placement: Placement) -> Task {
        Task::ReceiveFile {
            path: "b".into(),
            placement,
            restart: RangeSet::new(),
            promised: None,
        }
    }

    #[test]
    fn the_stripes_are_those_of_the_data_port() {
        let replace = || receive(Placement::Replace);
        for (stripes, peers) in [(&[2][..], 1), (&[2, 0], 2), (&[0, 1, 2], 3)] {
            assert_eq!(check(&plan(replace(), stripes, 3), peers), Ok(()));
        }
        for stripes in [&[][..], &[0], &[0, 1, 2], &[1, 1], &[1, 3]] {
            let refused = Err(ShareError::Stripes {
                stripes: stripes.len(),
                total: 3,
                peers: 2,
            });
            assert_eq!(
                check(&plan(replace(), stripes, 3), 2),
                refused,
                "{stripes:?}"
            );
        }
        check(&plan(replace(), &[], 0), 0).expect_err("no stripes");
    }

    #[test]
    fn what_needs_one_node_is_not_divided() {
        let lines = LineSource {
            open: Arc::new(|_| Ok(Box::new(std::iter::empty()))),
        };
        let lines = plan(Task::SendLines(lines), &[1], 2);
        assert_eq!(check(&lines, 1), Err(ShareError::NotBlocks));
        let mut stream = plan(receive(Placement::Replace), &[1], 2);
        stream.mode = TransferMode::Stream;
        assert_eq!(check(&stream, 1), Err(ShareError::NotBlocks));
        let mut ordered = plan(receive(Placement::At(7)), &[1], 2);
        ordered.handling.ordered = true;
        assert_eq!(check(&ordered, 1), Err(ShareError::Ordered));
        let append = plan(receive(Placement::Append), &[1], 2);
        assert_eq!(check(&append, 1), Err(ShareError::Append));
        // All stripes are on one node.
        ordered.share = plan(receive(Placement::Append), &[0], 1).share;
        assert_eq!(check(&ordered, 1), Ok(()));
    }
}
