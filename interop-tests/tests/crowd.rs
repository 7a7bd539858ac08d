//! A small crowd of sessions: all of them are served within the limits of the server.

use std::time::Duration;

use gridhaul_interop::bench::crowd::{Crowd, TransferKind, concurrent};
use gridhaul_interop::support::scratch::Scratch;
use gridhaul_interop::{Kind, Launch, chown_to_nobody};

/// The number of buffers of 256 KiB: the server's buffer memory.
const BUFFERS: u64 = 32;

#[test]
fn a_crowd_is_served_with_few_workers_and_little_memory() {
    let scratch = Scratch::beneath(&std::env::temp_dir()).unwrap();
    chown_to_nobody(scratch.path()).unwrap();
    let server = Launch::new(Kind::Gridhaul, scratch.path())
        .arg("--movers=8")
        .arg(format!("--buffer-memory={}K", BUFFERS * 256))
        .start()
        .unwrap();
    let crowd = Crowd {
        sessions: 60,
        file: 300_000,
        duration: Duration::from_secs(2),
    };
    for kind in TransferKind::ALL {
        let result = concurrent(crowd, &server, kind).unwrap();
        assert!(result.errors.is_empty(), "{kind:?}: {:?}", result.errors);
        // Every session completes a file, though only a few are served at a time.
        assert!(
            result.files >= crowd.sessions as u64,
            "{kind:?}: {result:?}"
        );
    }
}
