//! Channels that are opened by one thread and used by others.

use gridhaul_stack::{Body, Channel as _};

use super::*;
use crate::channel::{RdmaChannel, State};
use crate::numa::tests::elsewhere;

/// A worker opens the channel of a transfer, and a kept channel serves the threads of several transfers.
#[test]
fn every_thread_that_uses_a_channel_is_moved_to_the_node_of_its_adapter() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let [mut one, mut other] = pair(local, [[("qps", "1"), ("provider", "soft")]; 2], &operation);
    one.opened.locality = Some(Arc::new(elsewhere(904)));
    let mut channel = RdmaChannel {
        peer: (local, 0).into(),
        state: State::Open(Box::new(one)),
    };
    for _ in 0..2 {
        thread::scope(|scope| {
            let user = scope.spawn(|| {
                let bytes = Body::Memory(b"bytes");
                channel.send(b"some ", bytes, &operation).unwrap();
                let State::Open(streams) = &mut channel.state else {
                    panic!("{channel:?}");
                };
                !streams.enter()
            });
            assert!(user.join().unwrap(), "the call has moved its thread");
        });
    }
    channel.finish(&operation).unwrap();
    assert_eq!(receive_all(&mut other, &operation), b"some bytes".repeat(2));
}
