//! Reports of a transfer over a device: in the reply, in the log, and in metrics.

use gridhaul_interop::guest::{Network, inside};

use crate::path;
use crate::sessions::{Sessions, metrics};
use crate::sites::number;

const STACK: &str = "rdma:provider=verbs;slab=4M;qps=2;rate=800m;message=64K;depth=32";

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn device_counters_are_reported() {
    inside(Network::Rxe, "told::device_counters_are_reported", || {
        let mut sessions = Sessions::new(20_000_003);
        sessions.set_stack(STACK);
        sessions.copy_whole();
        let replies = sessions.details();
        for ((reply, server), device) in replies
            .iter()
            .zip(&sessions.servers)
            .zip(["rxe_left", "rxe_right"])
        {
            let log = server.log();
            for detail in settings(device) {
                let line = format!(" {detail}");
                assert!(
                    reply.lines().any(|found| found == line),
                    "{detail}: {reply}"
                );
                // The log has them as a list.
                let listed = [format!("[{detail}"), format!(", {detail}")];
                assert!(
                    listed.iter().any(|item| log.contains(item)),
                    "{detail}: {log}"
                );
            }
            for counted in ["credits=", "pinned-bytes=", "round-trip-microseconds="] {
                assert!(reply.contains(counted), "{reply}");
            }
            let page = metrics(server);
            let sample = format!(
                "gridhaul_transfer_choices_total{{choice=\"device\",value=\"{device}/1\"}} 1"
            );
            assert!(page.lines().any(|line| line == sample), "{page}");
        }

        path::lose();
        sessions.copy_whole();
        let [reply, _] = sessions.details();
        let retries = number(&reply, "retries");
        assert!(retries > 0, "{reply}");
        let [left, _] = &sessions.servers;
        assert!(left.log().contains(&format!(" retries={retries}")));
        let page = metrics(left);
        let sample = "gridhaul_device_counts_total{count=\"retries\"} ";
        let counted = page.lines().find_map(|line| line.strip_prefix(sample));
        let counted: u64 = counted.expect(sample).parse().unwrap();
        assert!(counted >= retries, "{page}");
    });
}

/// The settings that both report, and counters that are zero.
fn settings(device: &str) -> Vec<String> {
    let device = format!("device={device}/1");
    let others = [
        "provider=verbs",
        "protocol=RoCE",
        "gid=1",
        "mtu-bytes=4096",
        "queue-pairs=2",
        "ring-bytes=16777216",
        "message-bytes=65536",
        "depth=32",
        "rate=100000000",
        "stalls=0",
        "restored=0",
    ];
    others
        .map(str::to_owned)
        .into_iter()
        .chain([device])
        .collect()
}
