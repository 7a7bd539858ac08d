//! What is told of a transfer over a device: to its client, in the log, and to whoever scrapes metrics.

use std::net::SocketAddr;
use std::path::Path;

use gridhaul_interop::guest::{LEFT, Network, RIGHT, inside};
use gridhaul_interop::raw::Control;
use gridhaul_interop::{Kind, Launch, Server, content, give_away};

use crate::path;

const STACK: &str = "rdma:provider=verbs;qps=2;rate=800m;message=64K;depth=32";

/// Of every server: in a guest nobody else has it.
const METRICS_PORT: u16 = 9100;

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn what_a_device_did_is_told() {
    inside(Network::Rxe, "told::what_a_device_did_is_told", || {
        let directory = tempfile::tempdir().unwrap();
        give_away(directory.path()).unwrap();
        content::write(&directory.path().join("file"), 20_000_003).unwrap();
        let [left, right] = [LEFT, RIGHT].map(|address| server(directory.path(), address));
        // Each server knows the other as its client, by the routes of the guest, and so lets it connect.
        let [mut source, mut destination] = [&left, &right].map(|server| {
            let mut control = Control::anonymous(server.address()).unwrap();
            control.must("TYPE I", 200).unwrap();
            let stack = format!("SITE SETNETSTACK {STACK}");
            control.must(&stack, 250).unwrap();
            control
        });
        let SocketAddr::V4(address) = destination.passive().unwrap() else {
            panic!("PASV tells addresses of IPv4");
        };
        source.port(address).unwrap();
        destination.send_line("STOR copy").unwrap();
        source.send_line("RETR file").unwrap();
        for (control, server, device) in [
            (&mut source, &left, "rxe_left"),
            (&mut destination, &right, "rxe_right"),
        ] {
            let dialogue = control.dialogue().unwrap();
            assert_eq!(dialogue.last.code, 226, "{dialogue}");
            let reply = control.must("SITE GETNETSTACK", 250).unwrap();
            let log = server.log();
            for told in settings(device) {
                let line = format!(" {told}");
                assert!(reply.lines.contains(&line), "{told}: {}", reply.text());
                assert!(
                    log.contains(&line) || log.contains(&format!("\"{told}")),
                    "{told}: {log}"
                );
            }
            for counted in ["credits=", "pinned-bytes=", "round-trip-microseconds="] {
                assert!(reply.text().contains(counted), "{}", reply.text());
            }
            let page = path::run("curl", &format!("-s {}", metrics_of(server.address())));
            let sample = format!(
                "gridhaul_transfer_choices_total{{choice=\"device\",value=\"{device}/1\"}} 1"
            );
            assert!(page.lines().any(|line| line == sample), "{page}");
        }
    });
}

/// What both have chosen, and what did not happen.
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

fn server(root: &Path, address: &str) -> Server {
    let address = address.parse().unwrap();
    let metrics = SocketAddr::new(address, METRICS_PORT);
    Launch::new(Kind::Gridhaul, root)
        .address(address)
        .arg("--allowed-drivers")
        .arg("tcp,rdma")
        .arg("--metrics-listen")
        .arg(metrics.to_string())
        .start()
        .unwrap()
}

fn metrics_of(server: SocketAddr) -> String {
    format!(
        "http://{}/metrics",
        SocketAddr::new(server.ip(), METRICS_PORT)
    )
}
