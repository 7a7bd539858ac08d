//! Names of DNS for data nodes: nodes come and go while the server runs.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use rustix::process::Signal;

use crate::name_server::{NameServer, Record};
use crate::node::Nodes;
use crate::program::{Running, program, text, wait_for};

const SERVICE: &str = "_gridhaul._tcp.nodes.test";

/// A control server whose nodes DNS names.
struct Site {
    files: Nodes,
    dns: NameServer,
    server: Running,
}

/// The certificate of all nodes.
fn files() -> Nodes {
    let files = Nodes::new();
    let names = "subjectAltName=DNS:dtn.nodes.test,DNS:dtn1.nodes.test,DNS:dtn2.nodes.test";
    let by = ["-CA", "certificates/ca.pem", "-CAkey", "ca.key"];
    files.issue("grid", "/DC=test/CN=dtn.nodes.test", names, &by);
    fs::write(files.path("gridmap"), "").expect("written");
    files
}

fn node(files: &Nodes, flags: &[&str]) -> Running {
    let flags = [&["--control-servers", "ctl.example.org"], flags].concat();
    Running::of(&mut files.with_certificate("grid", &flags))
}

impl Site {
    fn new(files: Nodes, dns: NameServer, nodes: &str) -> Self {
        let configuration = format!("nodes = [{nodes}]\n");
        fs::write(files.path("config.toml"), configuration).expect("written");
        let mut command = program();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--gsi", "--anonymous"])
            .args(["--nodes-resolver", &dns.address.to_string()]);
        for (flag, file) in [
            ("--config", "config.toml"),
            ("--root", "root"),
            ("--cert", "control.pem"),
            ("--key", "control.key"),
            ("--trust", "certificates"),
            ("--gridmap", "gridmap"),
            ("--log-file", "log"),
            ("--admin-socket", "admin.sock"),
        ] {
            command.arg(flag).arg(files.path(file));
        }
        let server = Running::of(&mut command);
        Self { files, dns, server }
    }

    /// The nodes that can be used, in order.
    fn up(&self) -> Vec<String> {
        let socket = self.files.path("admin.sock");
        let mut command = program();
        command.args(["nodes", "--json", "--socket", text(&socket)]);
        let output = command.output().expect("started");
        let nodes: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let nodes = nodes.as_array().or_else(|| nodes["nodes"].as_array());
        let up = nodes.into_iter().flatten();
        let up = up.filter(|node| node["state"] == "up");
        let mut names: Vec<_> = up.filter_map(|node| node["name"].as_str()).collect();
        names.sort_unstable();
        names.into_iter().map(str::to_owned).collect()
    }

    fn wait_for_up(&self, expected: &[&str]) {
        let mut expected: Vec<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        expected.sort();
        wait_for(
            &format!("{expected:?}"),
            || format!("{:?}\n{}", self.up(), self.log()),
            |_| self.up() == expected,
        );
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path("log")).unwrap_or_default()
    }

    fn wait_for_log(&self, words: &str) {
        wait_for(words, || self.log(), |log| log.contains(words));
    }
}

fn service(target: &str, port: u16) -> Record {
    Record::Service {
        port,
        target: target.to_owned(),
    }
}

fn loopback() -> Vec<Record> {
    vec![Record::Address(Ipv4Addr::LOCALHOST)]
}

#[test]
fn targets_of_a_service_come_and_go() {
    let (files, dns) = (files(), NameServer::start());
    let (one, other) = (node(&files, &[]), node(&files, &[]));
    let [first, second] = [one.address.port(), other.address.port()];
    for host in ["dtn1.nodes.test", "dtn2.nodes.test", "dtn1.other.test"] {
        dns.set(host, loopback());
    }
    dns.set(SERVICE, vec![service("dtn1.nodes.test", first)]);
    let site = Site::new(files, dns, &format!("'dns+srv:{SERVICE}'"));
    let names = [
        format!("dtn1.nodes.test:{first}"),
        format!("dtn2.nodes.test:{second}"),
    ];
    site.wait_for_up(&[&names[0]]);

    // A target elsewhere is refused, and costs the others nothing.
    let both = vec![
        service("dtn1.other.test", first),
        service("dtn1.nodes.test", first),
        service("dtn2.nodes.test", second),
    ];
    site.dns.set(SERVICE, both);
    site.wait_for_up(&[&names[0], &names[1]]);
    site.wait_for_log("'dtn1.other.test' is not within nodes.test");
    assert!(
        !site.log().contains("node=\"dtn1.other.test"),
        "{}",
        site.log()
    );

    // Without an answer, and with an empty one, the nodes stay.
    site.dns.silence(true);
    site.wait_for_log("those that are known stay");
    site.dns.silence(false);
    site.wait_for_log("can be looked up again");
    site.dns.set(SERVICE, Vec::new());
    site.wait_for_log("DNS has no such records");
    assert_eq!(site.up(), names);

    site.dns
        .set(SERVICE, vec![service("dtn2.nodes.test", second)]);
    site.wait_for_up(&[&names[1]]);

    // A reload applies another list.
    let file = site.files.path("config.toml");
    fs::write(&file, format!("nodes = ['{}']\n", names[0])).expect("written");
    site.server.signal(Signal::HUP);
    site.wait_for_up(&[&names[0]]);
}

#[test]
fn each_address_of_a_host_is_a_node() {
    let (files, dns) = (files(), NameServer::start());
    // The same port at two addresses.
    let addresses = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let port = (0..100)
        .find_map(|_| {
            let one = TcpListener::bind((addresses[0], 0)).ok()?;
            let port = one.local_addr().ok()?.port();
            TcpListener::bind((addresses[1], port)).ok().map(|_| port)
        })
        .expect("a port");
    let names = addresses.map(|address| format!("{address}:{port}"));
    let _nodes = [0, 1].map(|index: usize| node(&files, &["--listen", &names[index]]));
    dns.set(
        "alias.nodes.test",
        vec![Record::Alias("dtn.nodes.test".to_owned())],
    );
    dns.set("dtn.nodes.test", addresses.map(Record::Address).to_vec());
    let entries = format!("'dns:dtn.nodes.test:{port}', 'dns:loop.nodes.test'");
    dns.set(
        "loop.nodes.test",
        vec![Record::Alias("loop.nodes.test".to_owned())],
    );
    let site = Site::new(files, dns, &entries);
    site.wait_for_up(&[&names[0], &names[1]]);
    site.wait_for_log("dns:loop.nodes.test:7512");
    site.dns
        .set("dtn.nodes.test", vec![Record::Address(addresses[1])]);
    site.wait_for_up(&[&names[1]]);
}

#[test]
fn a_service_with_a_thousand_targets_is_bounded() {
    let (files, dns) = (files(), NameServer::start());
    let node = node(&files, &[]);
    let port = node.address.port();
    let many = (0..1000).map(|number| service(&format!("n{number:04}.nodes.test"), port));
    dns.set(SERVICE, many.collect());
    dns.set("dtn1.nodes.test", loopback());
    let entries = format!("'dtn1.nodes.test:{port}', 'dns+srv:{SERVICE}'");
    let site = Site::new(files, dns, &entries);
    site.wait_for_up(&[&format!("dtn1.nodes.test:{port}")]);
    site.wait_for_log("there are 1000, and a server has at most 256");
}
