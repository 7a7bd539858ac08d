//! Reports of a transfer over a device: in the reply, in the log, and in metrics.

use std::net::SocketAddr;
use std::path::Path;

use gridhaul_interop::guest::{LEFT, Network, RIGHT, inside};
use gridhaul_interop::raw::Control;
use gridhaul_interop::{Kind, Launch, Server, chown_to_nobody, content};

use crate::path;
use crate::sites::number;

const STACK: &str = "rdma:provider=verbs;slab=4M;qps=2;rate=800m;message=64K;depth=32";

/// The port of every server: in a guest no other program uses it.
const METRICS_PORT: u16 = 9100;

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn device_counters_are_reported() {
    inside(Network::Rxe, "told::device_counters_are_reported", || {
        let directory = tempfile::tempdir().unwrap();
        chown_to_nobody(directory.path()).unwrap();
        content::write(&directory.path().join("file"), 20_000_003).unwrap();
        let [left, right] = [LEFT, RIGHT].map(|address| server(directory.path(), address));
        // By the routes of the guest each server has the other's address as that of its client, and accepts its connection.
        let [mut source, mut destination] = [&left, &right].map(|server| {
            let mut control = Control::anonymous(server.address()).unwrap();
            control.must("TYPE I", 200).unwrap();
            let stack = format!("SITE SETNETSTACK {STACK}");
            control.must(&stack, 250).unwrap();
            control
        });
        copy(&mut source, &mut destination);
        for (control, server, device) in [
            (&mut source, &left, "rxe_left"),
            (&mut destination, &right, "rxe_right"),
        ] {
            let reply = control.must("SITE GETNETSTACK", 250).unwrap();
            let log = server.log();
            for detail in settings(device) {
                let line = format!(" {detail}");
                assert!(reply.lines.contains(&line), "{detail}: {}", reply.text());
                // The log has them as a list.
                let listed = [format!("[{detail}"), format!(", {detail}")];
                assert!(
                    listed.iter().any(|item| log.contains(item)),
                    "{detail}: {log}"
                );
            }
            for counted in ["credits=", "pinned-bytes=", "round-trip-microseconds="] {
                assert!(reply.text().contains(counted), "{}", reply.text());
            }
            let page = metrics(server);
            let sample = format!(
                "gridhaul_transfer_choices_total{{choice=\"device\",value=\"{device}/1\"}} 1"
            );
            assert!(page.lines().any(|line| line == sample), "{page}");
        }

        path::lose();
        copy(&mut source, &mut destination);
        let reply = source.must("SITE GETNETSTACK", 250).unwrap();
        let retries = number(&reply.text(), "retries");
        assert!(retries > 0, "{}", reply.text());
        assert!(left.log().contains(&format!(" retries={retries}")));
        let page = metrics(&left);
        let sample = "gridhaul_device_counts_total{count=\"retries\"} ";
        let counted = page.lines().find_map(|line| line.strip_prefix(sample));
        let counted: u64 = counted.expect(sample).parse().unwrap();
        assert!(counted >= retries, "{page}");
    });
}

/// Copies from server to server.
fn copy(source: &mut Control, destination: &mut Control) {
    let SocketAddr::V4(address) = destination.passive().unwrap() else {
        panic!("PASV has an IPv4 address");
    };
    source.port(address).unwrap();
    destination.send_line("STOR copy").unwrap();
    source.send_line("RETR file").unwrap();
    for control in [source, destination] {
        let dialogue = control.dialogue().unwrap();
        assert_eq!(dialogue.last.code, 226, "{dialogue}");
    }
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

fn server(root: &Path, address: &str) -> Server {
    let address = address.parse().unwrap();
    let metrics = SocketAddr::new(address, METRICS_PORT);
    Launch::new(Kind::Gridhaul, root)
        .address(address)
        .arg("--anonymous-drivers")
        .arg("tcp,rdma")
        .arg("--metrics-listen")
        .arg(metrics.to_string())
        .start()
        .unwrap()
}

fn metrics(server: &Server) -> String {
    let address = SocketAddr::new(server.address().ip(), METRICS_PORT);
    path::run("curl", &format!("-s http://{address}/metrics"))
}
