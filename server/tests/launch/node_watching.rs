//! What an administrator of a control server sees of its data nodes, and drains.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;

use crate::client::Client;
use crate::node::Nodes;
use crate::program::{Running, has_root, program, text, wait_for};

const LARGE: usize = 64 << 20;
const SMALL: usize = 1 << 20;

/// Two data nodes and their control server.
struct Site {
    files: Nodes,
    nodes: [Running; 2],
    names: [String; 2],
    server: Running,
    metrics: SocketAddr,
}

impl Site {
    fn new() -> Self {
        let files = Nodes::new();
        for (name, size) in [("large", LARGE), ("small", SMALL)] {
            fs::write(files.path("root").join(name), content(size)).expect("written");
        }
        fs::write(files.path("gridmap"), "").expect("written");
        let control = ["--control-servers", "ctl.example.org"];
        let nodes = [(); 2].map(|()| Running::of(&mut files.command(&control)));
        let names = [0, 1].map(|index: usize| format!("localhost:{}", nodes[index].address.port()));
        let mut command = program();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--gsi", "--anonymous"])
            .args(["--metrics-listen", "127.0.0.1:0", "--log-format", "json"])
            .args(["--nodes", &names.join(",")]);
        for (flag, file) in [
            ("--root", "root"),
            ("--cert", "control.pem"),
            ("--key", "control.key"),
            ("--trust", "certificates"),
            ("--gridmap", "gridmap"),
            ("--log-file", "log"),
            ("--transfer-log", "transfers"),
            ("--admin-socket", "admin.sock"),
        ] {
            command.arg(flag).arg(files.path(file));
        }
        let mut server = Running::of(&mut command);
        let mut line = String::new();
        server.stdout.read_line(&mut line).expect("a line");
        let metrics = line.strip_prefix("Metrics at http://");
        let metrics = metrics.and_then(|rest| rest.split('/').next());
        let metrics = metrics.unwrap_or_else(|| panic!("{line}"));
        let metrics = metrics.trim_end().parse().expect("an address");
        let site = Self {
            files,
            nodes,
            names,
            server,
            metrics,
        };
        site.wait_for("up", |nodes| states(nodes) == ["up", "up"]);
        site
    }

    /// Runs `nodes` with these arguments.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command: Command = program();
        command.arg("nodes").args(arguments);
        let socket = self.files.path("admin.sock");
        command.args(["--socket", text(&socket)]);
        command.output().expect("started")
    }

    fn told(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.run(arguments);
        let errors = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{arguments:?}: {errors}");
        String::from_utf8(stdout).expect("UTF-8")
    }

    fn list(&self) -> Value {
        serde_json::from_str(&self.told(&["--json"])).expect("JSON")
    }

    /// The list, once it is as wanted.
    fn wait_for(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || self.list(), is_wanted)
    }

    /// A metric of a node.
    fn metric(&self, name: &str, node: &str, rest: &str) -> u64 {
        let mut stream = TcpStream::connect(self.metrics).expect("connected");
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("UTF-8");
        let begin = format!("{name}{{node=\"{node}\"{rest}}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&begin));
        let value = value.unwrap_or_else(|| panic!("{begin}: {page}"));
        value.parse().expect("a number")
    }

    fn sent_by(&self, node: &str) -> u64 {
        let direction = ",direction=\"sent\"";
        self.metric("gridhaul_node_transfer_bytes_total", node, direction)
    }

    fn retrieve_small(&self) {
        let mut client = Client::log_in(&self.server);
        let mut data = client.retrieve("small");
        let mut received = Vec::new();
        data.read_to_end(&mut received).expect("received");
        assert!(received == content(SMALL));
        client.expect_reply("226");
    }

    /// The bytes that the log has for each node, of transfers on one node.
    fn logged(&self) -> BTreeMap<String, u64> {
        let log = fs::read_to_string(self.files.path("log")).expect("a log");
        let lines = log
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let mut logged = BTreeMap::new();
        for line in lines.filter(|line: &Value| line["message"] == "transfer finished") {
            let node = line["nodes"][0]
                .as_str()
                .unwrap_or_else(|| panic!("{line}"));
            let bytes = line["bytes"].as_u64().expect("a number");
            *logged.entry(node.to_owned()).or_default() += bytes;
        }
        logged
    }
}

fn states(nodes: &Value) -> Vec<&str> {
    let nodes = nodes.as_array().expect("a list").iter();
    nodes
        .map(|node| node["state"].as_str().expect("a word"))
        .collect()
}

/// Bytes in which a wrong offset shows.
fn content(length: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at ^ (at >> 12)) % 251).unwrap_or_default();
    (0..length).map(byte).collect()
}

#[test]
fn nodes_are_shown_drained_and_resumed() {
    let site = Site::new();
    let table = site.told(&[]);
    for name in &site.names {
        let line = table.lines().find(|line| line.starts_with(name.as_str()));
        assert!(line.is_some_and(|line| line.contains(" up ")), "{table}");
        assert_eq!(site.metric("gridhaul_node_up", name, ""), 1);
    }
    let told = &site.list()[0]["told"];
    assert_eq!(
        told["version"].as_str(),
        Some(env!("CARGO_PKG_VERSION")),
        "{told}"
    );
    // The sandbox lets a node see its network cards.
    site.wait_for("measured", |nodes| {
        nodes[0]["load"]["cards"][0]["name"] == "lo"
    });

    // A node with a transfer is drained: the transfer goes on.
    let mut client = Client::log_in(&site.server);
    let mut data = client.retrieve("large");
    let running = site.wait_for("running", |nodes| {
        let nodes = nodes.as_array().expect("a list").iter();
        nodes.filter(|node| node["transfers"] == 1).count() == 1
    });
    let drained = usize::from(running[1]["transfers"] == 1);
    let [drained, other] = [drained, 1 - drained].map(|index| site.names[index].clone());
    let order = site.told(&["drain", &drained]);
    assert!(
        order.starts_with(&format!("draining {drained}: ")),
        "{order}"
    );
    assert!(
        order.contains(", 1 transfer left there; new ones go to other nodes"),
        "{order}"
    );
    assert_eq!(site.metric("gridhaul_node_draining", &drained, ""), 1);
    for _ in 0..6 {
        site.retrieve_small();
    }
    assert_eq!(
        [&drained, &other].map(|name| site.sent_by(name)),
        [0, 6 * SMALL as u64]
    );
    let mut received = Vec::new();
    data.read_to_end(&mut received).expect("received");
    assert!(received == content(LARGE));
    client.expect_reply("226");
    assert_eq!(site.sent_by(&drained), LARGE as u64);
    drop(client);
    site.wait_for("nothing left", |nodes| {
        let nodes = nodes.as_array().expect("a list").iter();
        nodes
            .filter(|node| node["name"] == drained.as_str())
            .all(|node| {
                node["state"] == "draining" && node["transfers"] == 0 && node["sessions"] == 0
            })
    });
    let table = site.told(&[]);
    let line = table
        .lines()
        .find(|line| line.starts_with(&drained))
        .expect("a line");
    for words in [
        " drained ",
        "an administrator of this server has drained it",
    ] {
        assert!(line.contains(words), "{words}: {table}");
    }

    // It gets new ones after it was resumed.
    let order = site.told(&["resume", &drained]);
    assert_eq!(order, format!("resumed {drained}\n"));
    let count = || {
        site.retrieve_small();
        site.sent_by(&drained)
    };
    wait_for("used again", count, |sent| *sent > LARGE as u64);

    // The numbers are those of the log.
    for (node, bytes) in site.logged() {
        assert_eq!(site.sent_by(&node), bytes, "{node}");
    }
    let transfers = fs::read_to_string(site.files.path("transfers")).expect("a log");
    assert!(
        transfers
            .lines()
            .all(|line| line.contains(" STRIPES=1 DEST=[127.0.0.1] TYPE=RETR"))
    );

    // A node that is killed shows why.
    let killed = site
        .names
        .iter()
        .position(|name| *name == other)
        .expect("a name");
    site.nodes[killed].signal(Signal::KILL);
    let nodes = site.wait_for("down", |nodes| nodes[killed]["state"] == "down");
    let reason = nodes[killed]["reason"]
        .as_str()
        .expect("a reason")
        .to_owned();
    let last = &nodes[killed]["last_error"]["reason"];
    assert!(!reason.is_empty() && last.is_string(), "{nodes}");
    let [up, losses] = ["gridhaul_node_up", "gridhaul_node_losses_total"];
    assert_eq!(
        [up, losses].map(|name| site.metric(name, &other, "")),
        [0, 1]
    );
    let table = site.told(&[]);
    let line = table
        .lines()
        .find(|line| line.starts_with(&other))
        .expect("a line");
    assert!(line.contains(" down "), "{line}");
    site.wait_for("refused", |nodes| {
        let reason = nodes[killed]["reason"].as_str().expect("a reason");
        reason.contains("Connection refused")
    });
    site.retrieve_small();
    let status = program()
        .args(["status", "--socket", text(&site.files.path("admin.sock"))])
        .output()
        .expect("started");
    let status = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(status.contains(&format!("\n{other} down ")), "{status}");
    let mistake = site.run(&["drain", "dtn9"]);
    let errors = String::from_utf8_lossy(&mistake.stderr);
    assert!(!mistake.status.success(), "{errors}");
    assert!(errors.contains("there is no data node"), "{errors}");
    assert!(errors.contains(&other), "{errors}");
}

#[test]
fn another_account_of_the_machine_neither_sees_nor_drains_nodes() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let socket = site.files.path("admin.sock");
    let body = format!("{{\"node\":\"{}\"}}", site.names[0]);
    let as_nobody = |program: &str, arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"])
            .arg(program)
            .args(arguments)
            .output()
            .expect("started")
    };
    let own = env!("CARGO_BIN_EXE_gridhaul-server");
    for words in [&["nodes"][..], &["nodes", "drain", &site.names[0]]] {
        let refused = as_nobody(own, &[words, &["--socket", text(&socket)]].concat());
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{words:?}");
        assert!(errors.contains("Permission denied"), "{errors}");
    }
    // The rights of the file are not the only barrier.
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&socket, all).expect("set");
    let json = "Content-Type: application/json";
    let url = "http://localhost/api/nodes/drain";
    let curl = ["-s", "-w", "%{http_code}", "--unix-socket", text(&socket)];
    let refused = as_nobody(
        "curl",
        &[&curl[..], &["-H", json, "-d", &body, url]].concat(),
    );
    let answer = String::from_utf8_lossy(&refused.stdout);
    assert!(answer.ends_with("403"), "{answer}");
    assert_eq!(states(&site.list()), ["up", "up"]);
}

/// What a supervisor asks that has a certificate of a control server.
#[test]
fn the_health_service_of_grpc_answers_over_mutual_tls() {
    let site = Nodes::new();
    let node = Running::of(&mut site.command(&["--control-servers", "ctl.example.org"]));
    // The message HealthCheckRequest without a service: its prefix only.
    fs::write(site.path("request"), [0; 5]).expect("written");
    let port = node.address.port();
    let ask = |name: &str| {
        Command::new("curl")
            .args(["-s", "--http2", "-H", "Content-Type: application/grpc"])
            .args(["-H", "TE: trailers", "--data-binary"])
            .arg(format!("@{}", text(&site.path("request"))))
            .arg("--cacert")
            .arg(site.path("certificates/ca.pem"))
            .arg("--cert")
            .arg(site.path(&format!("{name}.pem")))
            .arg("--key")
            .arg(site.path(&format!("{name}.key")))
            .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
            .arg(format!(
                "https://localhost:{port}/grpc.health.v1.Health/Check"
            ))
            .output()
            .expect("started")
    };
    // SERVING.
    let answer = ask("control");
    assert_eq!(answer.stdout, [0, 0, 0, 0, 2, 8, 1], "{answer:?}");
    let refused = ask("node");
    assert!(!refused.status.success() && refused.stdout.is_empty());
}
