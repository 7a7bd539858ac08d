//! Channels whose rings are longer than they need, beside others that wait for memory.

use std::thread;
use std::time::Instant;

use super::*;

/// If another channel waits for memory, it becomes shorter after some observations, and otherwise after half a minute.
#[test]
fn a_ring_that_is_not_used_becomes_shorter_at_once_where_others_wait() {
    for is_contended in [false, true] {
        let (mut grown, long) = long();
        let pool = Arc::clone(&grown.pools[1]);
        let cancel = Cancel::new();
        let take = &|deadline| {
            let operation = Operation {
                deadline,
                cancel: &cancel,
            };
            let holder = Holder {
                side: Side::Connector,
                pins: 0,
                party: None,
            };
            pool.take(holder, Lengths::both(bytes(64 << 30)), &operation)
        };
        thread::scope(|scope| {
            // Connecting ends take all that they may have, so that a further one waits. The receiver is an accepting end.
            let taken = || take(Some(Instant::now())).ok().filter(|_| is_contended);
            let held: Vec<_> = std::iter::from_fn(taken).collect();
            if is_contended {
                let until = Instant::now() + Duration::from_secs(600);
                scope.spawn(move || take(Some(until)).map(drop));
                while pool.load().waiting == 0 {
                    thread::yield_now();
                }
            }
            send_slowly(&mut grown, 5);
            cancel.cancel();
            drop(held);
        });
        let ring = grown.ring(0);
        assert_eq!(ring <= long / 2, is_contended, "{ring} of {long}");
    }
}
