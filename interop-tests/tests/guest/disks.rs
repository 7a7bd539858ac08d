//! Files past the page cache, into and out of rings that a device has registered.

use std::path::Path;

use gridhaul_interop::guest::{DISK, LEFT, Network, RIGHT, inside_with_disk};

use crate::sessions::Sessions;

/// More than the rings, so that these are registered with io_uring as well, and no multiple of a block.
const BYTES: u64 = (40 << 20) + 12_345;

/// In MiB: the file and its copy.
const DISK_MIB: u32 = 160;

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn files_go_past_the_page_cache_over_roce() {
    let name = "disks::files_go_past_the_page_cache_over_roce";
    inside_with_disk(DISK_MIB, Network::Rxe, name, || {
        for options in ["", ";mode=get;qps=2"] {
            let stack = format!("rdma:provider=verbs;direct=1{options}");
            let arguments = ["--stack", &stack];
            let mut sessions = Sessions::started([LEFT, RIGHT], BYTES, Path::new(DISK), &arguments);
            sessions.copy_whole();
            for reply in sessions.details() {
                for words in [
                    "provider=verbs",
                    "files=direct (io_uring, registered memory)",
                ] {
                    assert!(reply.contains(words), "{words}: {reply}");
                }
            }
        }
    });
}
