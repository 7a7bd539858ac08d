//! The flags with which memory is registered.

use crate::channel::{detail, transfer};
use crate::fabric::{Adapter, recorded, with_adapters};

const BYTES: usize = 1 << 20;

/// IBV_ACCESS_REMOTE_WRITE
const REMOTE_WRITE: u64 = 1 << 1;

/// IBV_ACCESS_RELAXED_ORDERING
const RELAXED_ORDERING: u64 = 1 << 20;

/// The flags of all memory of a channel between two ends with this adapter.
fn flags_of_a_channel() -> Vec<u64> {
    let stack = "rdma:provider=verbs";
    let [sender, _] = transfer(stack, stack, BYTES);
    assert_eq!(detail(&sender, "provider"), "verbs");
    recorded("mlx5_0", "access")
}

#[test]
fn writes_may_reach_memory_in_any_order() {
    with_adapters(&[Adapter::roce("mlx5_0", 1)], || {
        let flags = flags_of_a_channel();
        let rings = flags.iter().filter(|flags| *flags & REMOTE_WRITE != 0);
        assert!(rings.count() >= 2, "one at each end: {flags:x?}");
        let are_relaxed = flags.iter().all(|flags| flags & RELAXED_ORDERING != 0);
        assert!(are_relaxed, "{flags:x?}");
    });
}

#[test]
fn a_device_that_refuses_relaxed_ordering_does_without() {
    let adapter = Adapter::roce("mlx5_0", 1).with("optional_errno", libc::EOPNOTSUPP);
    with_adapters(&[adapter], || {
        let flags = flags_of_a_channel();
        let rings = flags.iter().filter(|flags| *flags & REMOTE_WRITE != 0);
        assert!(rings.count() >= 2, "one at each end: {flags:x?}");
        // Each end has its own protection domain.
        let refused = recorded("mlx5_0", "refused_access");
        assert_eq!(refused.len(), 2, "a domain is asked once: {refused:x?}");
    });
}
