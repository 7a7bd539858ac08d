//! Certificates that are revoked while a control server and a data node are connected.

use std::fs;

use crate::node::Nodes;
use crate::program::{Running, program};

/// A data node and its control server, which are connected.
struct Site {
    files: Nodes,
    node: Running,
    server: Running,
}

impl Site {
    fn new() -> Self {
        let files = Nodes::new();
        fs::write(files.path("gridmap"), "").expect("written");
        let control = ["--control-servers", "ctl.example.org"];
        let mut node = Running::of(&mut files.command(&control));
        let name = format!("localhost:{}", node.address.port());
        let mut command = program();
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--gsi",
            "--nodes",
            &name,
        ]);
        for (flag, file) in [
            ("--root", "root"),
            ("--cert", "control.pem"),
            ("--key", "control.key"),
            ("--trust", "certificates"),
            ("--gridmap", "gridmap"),
            ("--admin-socket", "admin.sock"),
        ] {
            command.arg(flag).arg(files.path(file));
        }
        let mut server = Running::of(&mut command);
        node.log_until("a control server has connected");
        server.log_until("a data node can be used");
        Self {
            files,
            node,
            server,
        }
    }
}

#[test]
fn a_revoked_control_server_loses_its_connection() {
    let mut site = Site::new();
    site.files.revoke("control");
    let log = site
        .node
        .log_until("a control server is not accepted any more: it presents");
    assert!(log.contains("was revoked by its issuer"), "{log}");
    site.server.log_until("a data node cannot be used");
}

#[test]
fn a_revoked_data_node_loses_its_connection() {
    let mut site = Site::new();
    site.files.revoke("node");
    let log = site.server.log_until("a data node cannot be used");
    let ends = "the connection to a data node ends, which presents";
    assert!(log.contains(ends), "{log}");
}
