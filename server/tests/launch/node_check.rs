//! What `check` says of data nodes.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::network::Network;
use crate::node::Nodes;
use crate::program::{Running, clean, has_root, program, text, wait_for};

/// Control servers that the nodes of these tests obey.
const CONTROL: [&str; 2] = ["--control-servers", "ctl.example.org"];

/// The lines of a report.
struct Said {
    status: Option<i32>,
    lines: Vec<String>,
}

fn name(node: &Running) -> String {
    format!("localhost:{}", node.address.port())
}

/// Runs `check` with this certificate and these nodes.
fn check(site: &Nodes, certificate: &str, nodes: &[String], flags: &[&str]) -> Said {
    let done = checking(site, certificate, nodes, flags).output();
    Said::of(&done.expect("started"))
}

fn checking(site: &Nodes, certificate: &str, nodes: &[String], flags: &[&str]) -> Command {
    let mut command = program();
    command
        .args(["check", "--gsi", "--listen", "127.0.0.1:0"])
        .args(["--nodes", &nodes.join(",")])
        .arg("--root")
        .arg(site.path("root"))
        .arg("--cert")
        .arg(site.path(&format!("{certificate}.pem")))
        .arg("--key")
        .arg(site.path(&format!("{certificate}.key")))
        .arg("--trust")
        .arg(site.path("certificates"))
        .arg("--gridmap")
        .arg(gridmap(site))
        .args(flags);
    command
}

/// A map that a test may have written.
fn gridmap(site: &Nodes) -> PathBuf {
    let path = site.path("gridmap");
    if !path.exists() {
        fs::write(&path, "").expect("written");
    }
    path
}

impl Said {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
        Self {
            status: output.status.code(),
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// The lines about nodes, with single spaces.
    fn nodes(&self) -> Vec<String> {
        let lines = self.lines.iter();
        let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| line.contains(" nodes: ")).collect()
    }

    #[track_caller]
    fn says(&self, verdict: &str, words: &[&str]) -> &Self {
        let lines = self.nodes();
        let mut found = lines.iter().filter(|line| line.starts_with(verdict));
        let found = found.any(|line| words.iter().all(|words| line.contains(words)));
        assert!(found, "{verdict} {words:?} is not in {lines:#?}");
        self
    }
}

/// A node with a root and a certificate of its own.
fn other_node(site: &Nodes, root: &str, certificate: &str, flags: &[&str]) -> Running {
    let root = site.path(root);
    fs::create_dir_all(&root).expect("made");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).expect("set");
    let mut command = program();
    command
        .args(["node", "--listen", "127.0.0.1:0", "--root", text(&root)])
        .args(["--cert", text(&site.path(&format!("{certificate}.pem")))])
        .args(["--key", text(&site.path(&format!("{certificate}.key")))])
        .args(["--trust", text(&site.path("certificates"))])
        .args(CONTROL)
        .args(flags);
    Running::of(&mut command)
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).expect("listed").next().is_none()
}

#[test]
fn nodes_without_a_fault_pass_and_nothing_is_left_there() {
    let site = Nodes::new();
    let nodes = [(); 3].map(|()| Running::of(&mut site.command(&CONTROL)));
    let names: Vec<_> = nodes.iter().map(name).collect();
    let said = check(&site, "control", &names, &["--anonymous"]);
    for name in &names {
        said.says(
            "ok",
            &[name, "is a data node of version", "accepts this server"],
        );
    }
    said.says("ok", &["all nodes see a directory"])
        .says("ok", &["data channels from this machine reach 3 nodes"])
        .says("ok", &["comes unchanged from another one (3 tried)"])
        .says("ok", &["data channels between nodes work (6 tried)"]);
    let wrong = said
        .nodes()
        .into_iter()
        .filter(|line| !line.starts_with("ok"));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
    assert!(is_empty(&site.path("root")));
}

#[test]
fn nodes_that_cannot_be_used_are_named_with_the_reason() {
    let site = Nodes::new();
    let mut node = Running::of(&mut site.command(&CONTROL));
    // Another service is at this port.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other_port = other.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = other.accept() {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
        }
    });
    // This port accepts connections, and sends no bytes.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_port = silent.local_addr().expect("an address").port();
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let free_port = free.local_addr().expect("an address").port();
    drop(free);
    let names = [
        name(&node),
        node.address.to_string(),
        format!("localhost:{other_port}"),
        format!("localhost:{silent_port}"),
        format!("localhost:{free_port}"),
        "dtn1.invalid:7512".to_owned(),
    ];
    let said = check(&site, "control", &names, &["--anonymous"]);
    assert_eq!(said.status, Some(1));
    said.says("ok", &[&names[0], "accepts this server"])
        .says(
            "error",
            &[
                &names[1],
                "presents the certificate of localhost, not of 127.0.0.1",
            ],
        )
        .says("error", &[&names[2], "does not speak TLS"])
        .says(
            "error",
            &[&names[3], "has not completed the TLS handshake within 5 s"],
        )
        .says("error", &[&names[4], "refused"])
        .says(
            "error",
            &[&names[5], "its name cannot be looked up", "/etc/hosts"],
        );

    // The node refuses this one, and says why in its log.
    let said = check(&site, "node", &names[..1], &["--anonymous"]);
    assert_eq!(said.status, Some(1));
    let words = "it refuses the certificate /DC=test/CN=localhost of this host (access denied)";
    said.says("error", &[&names[0], words, "its log has the reason"]);
    node.log_until("name it in control-servers");
    assert!(is_empty(&site.path("root")));
}

#[test]
fn a_node_that_is_listed_under_two_names_is_found() {
    let site = Nodes::new();
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    let by = ["-CA", "certificates/ca.pem", "-CAkey", "ca.key"];
    site.issue("both", "/DC=test/CN=both", names, &by);
    let node = other_node(&site, "root", "both", &[]);
    let names = [name(&node), node.address.to_string()];
    let said = check(&site, "control", &names, &["--anonymous"]);
    assert_eq!(said.status, Some(1));
    said.says(
        "error",
        &[&names[0], &names[1], "are one data node", "list it once"],
    );
}

#[test]
fn a_node_with_other_files_is_found() {
    let site = Nodes::new();
    let first = Running::of(&mut site.command(&CONTROL));
    let odd = other_node(&site, "another", "node", &[]);
    let names = [&first, &odd].map(name);
    let said = check(&site, "control", &names, &["--anonymous"]);
    assert_eq!(said.status, Some(1));
    let (odd, maker) = (&names[1], &names[0]);
    said.says(
        "error",
        &[odd, "it does not see", maker, "nodes need the same files"],
    );
    let sees = said
        .nodes()
        .iter()
        .any(|line| line.contains("all nodes see"));
    assert!(!sees, "{:#?}", said.lines);
    assert!(is_empty(&site.path("root")) && is_empty(&site.path("another")));
}

/// Below the ports that the kernel gives to the other node and to connections, whose replies must not be dropped.
const CLOSED: &str = "20000-20010";

#[test]
fn data_ports_behind_a_firewall_are_found() {
    if !has_root() {
        return;
    }
    let site = Nodes::new();
    let network = Network::new(
        "check",
        &["iptables -A INPUT -p tcp --dport 20000:20010 -j DROP"],
    );
    let ports: [&[&str]; 2] = [&[], &["--port-range", CLOSED]];
    let nodes = ports.map(|ports| {
        let flags = [&CONTROL[..], ports].concat();
        Running::of(&mut network.command(&site.command(&flags)))
    });
    let names = nodes.each_ref().map(name);
    let closed = &names[1];
    let command = checking(&site, "control", &names, &["--anonymous"]);
    let said = Said::of(&network.command(&command).output().expect("started"));
    assert_eq!(said.status, Some(1));
    let remedy = "have firewalls let in the port-range of the node";
    said.says("ok", &["all nodes see a directory"])
        .says(
            "error",
            &[&format!("{closed}: 127.0.0.1:200"), "timed out", remedy],
        )
        .says("ok", &["data channels between nodes work (1 tried)"]);
    assert!(is_empty(&site.path("root")));
}

/// A server asks the next version whether it could take over its sockets.
#[test]
fn the_check_before_an_upgrade_leaves_the_nodes_out() {
    let site = Nodes::new();
    let nodes = ["dtn1.invalid:7512".to_owned()];
    let said = check(&site, "control", &nodes, &["--anonymous"]);
    said.says("error", &["its name cannot be looked up"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let script =
        "LISTEN_PID=$$; LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$@\" 3<&0 </dev/null";
    let command = checking(&site, "control", &nodes, &["--anonymous"]);
    let mut passed = clean(Command::new("sh"));
    passed
        .args(["-c", script, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .env("LISTEN_FDNAMES", "listen")
        .stdin(Stdio::from(OwnedFd::from(listener)));
    let said = Said::of(&passed.output().expect("started"));
    assert_eq!(said.status, Some(0), "{:#?}", said.lines);
    assert_eq!(said.nodes(), Vec::<String>::new());
}

#[test]
fn the_log_of_a_server_says_that_a_node_refuses_its_certificate() {
    let site = Nodes::new();
    let node = Running::of(&mut site.command(&CONTROL));
    let mut command = program();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--gsi", "--anonymous"])
        .args(["--nodes", &name(&node)])
        .args(["--root", text(&site.path("root"))])
        .args(["--cert", text(&site.path("node.pem"))])
        .args(["--key", text(&site.path("node.key"))])
        .args(["--trust", text(&site.path("certificates"))])
        .args(["--gridmap", text(&gridmap(&site))]);
    let mut server = Running::of(&mut command);
    let log = server.log_until("a data node cannot be used");
    let words = "it refuses the certificate /DC=test/CN=localhost of this host (access denied)";
    assert!(log.contains(words), "{log}");
}

#[test]
fn accounts_that_nodes_do_not_have_are_named() {
    if !has_root() {
        return;
    }
    let site = Nodes::new();
    let node = Running::of(&mut site.command(&CONTROL));
    let strict = ["--least-uid", "4000000000"];
    let strict = Running::of(&mut site.command(&[&CONTROL[..], &strict].concat()));
    let map = "\"/DC=test/CN=a\" nobody\n\"/DC=test/CN=b\" no-such-account\n";
    fs::write(site.path("gridmap"), map).expect("written");
    let names = [name(&node), name(&strict)];
    let said = check(&site, "control", &names, &[]);
    said.says(
        "warning",
        &[
            &names[0],
            "1 of 2 accounts cannot be used there",
            "no-such-account",
        ],
    )
    .says(
        "error",
        &[&names[1], "2 of 2 accounts cannot be used there"],
    );
}

#[test]
fn roots_of_rules_that_nodes_do_not_serve_are_named() {
    if !has_root() {
        return;
    }
    let site = Nodes::new();
    let node = Running::of(&mut site.command(&CONTROL));
    let other = other_node(&site, "another", "node", &[]);
    let root = site.path("root/of-nobody");
    fs::create_dir(&root).expect("made");
    let (root, config) = (text(&root), site.path("rules.toml"));
    let rule =
        |account: &str| format!("[[authorize]]\nidentity = \"*\"\n{account}\nroot = \"{root}\"\n");
    fs::write(site.path("gridmap"), "\"/DC=test/CN=a\" nobody\n").expect("written");
    for account in ["account = \"nobody\"", "map = true"] {
        fs::write(&config, rule(account)).expect("written");
        let flags = ["--config", text(&config)];
        let said = check(&site, "control", &[name(&node)], &flags);
        said.says("ok", &["1 root of [[authorize]] can be used on all nodes"]);
        let names = [name(&node), name(&other)];
        let said = check(&site, "control", &names, &flags);
        assert_eq!(said.status, Some(1));
        said.says(
            "error",
            &[&names[1], "refuses the root", root, "table 1 to nobody"],
        );
        let others = said.nodes();
        let mut of_first = others.iter().filter(|line| line.contains(&names[0]));
        assert!(
            !of_first.any(|line| line.contains("refuses the root")),
            "{others:#?}"
        );
    }
}

/// Whether a node has the directory is not known then.
#[test]
fn roots_of_accounts_that_a_node_does_not_have_are_not_called_usable() {
    if !has_root() {
        return;
    }
    let site = Nodes::new();
    let node = Running::of(&mut site.command(&CONTROL));
    let root = site.path("root/of-users");
    fs::create_dir(&root).expect("made");
    let (root, config) = (text(&root), site.path("rules.toml"));
    let map = "\"/DC=test/CN=a\" no-such-account\n\"/DC=test/CN=b\" nobody\n";
    fs::write(site.path("gridmap"), map).expect("written");
    for (account, is_usable) in [
        ("account = \"no-such-account\"", false),
        ("map = true", true),
    ] {
        let rule = format!("[[authorize]]\nidentity = \"*\"\n{account}\nroot = \"{root}\"\n");
        fs::write(&config, rule).expect("written");
        let said = check(
            &site,
            "control",
            &[name(&node)],
            &["--config", text(&config)],
        );
        let lines = said.nodes();
        let mut lines = lines.iter();
        let is_called = lines.any(|line| line.contains("1 root of [[authorize]] can be used"));
        assert_eq!(is_called, is_usable, "{:#?}", said.lines);
        if !is_usable {
            let words = "was not tried, because no-such-account cannot be used there";
            said.says("warning", &[&name(&node), root, words]);
        }
    }
}

/// A library that puts the clock of a program this many seconds ahead.
fn other_clock(site: &Nodes, ahead: i32) -> PathBuf {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <time.h>
        static int (*real)(clockid_t, struct timespec *);
        int clock_gettime(clockid_t clock, struct timespec *now) {
            if (!real)
                *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
            int failed = real(clock, now);
            if (!failed && clock == CLOCK_REALTIME)
                now->tv_sec += AHEAD;
            return failed;
        }"#;

    let (source, library) = (site.path("clock.c"), site.path(&format!("clock{ahead}.so")));
    fs::write(&source, SOURCE).expect("written");
    // The linker of Rust programs.
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", &format!("-DAHEAD={ahead}"), "-o"]);
    let done = compiler.arg(&library).arg(&source).arg("-ldl").output();
    let done = done.expect("a compiler");
    assert!(done.status.success(), "{done:?}");
    library
}

#[test]
fn a_node_with_another_clock_is_told() {
    let site = Nodes::new();
    for (ahead, verdict, words) in [
        (30, "warning", " s ahead of that of this machine"),
        (7200, "error", "its clock is 7"),
    ] {
        let mut node = site.command(&CONTROL);
        node.env("LD_PRELOAD", other_clock(&site, ahead));
        let node = Running::of(&mut node);
        let said = check(&site, "control", &[name(&node)], &["--anonymous"]);
        said.says(
            verdict,
            &[&name(&node), "its clock is ", words, "set both clocks"],
        );
        assert_eq!(
            said.status,
            Some(i32::from(verdict == "error")),
            "{:#?}",
            said.lines
        );
    }
}

#[test]
fn without_a_place_for_files_the_rest_is_tried() {
    let site = Nodes::new();
    let nodes = [(); 2].map(|()| other_node(&site, "closed", "node", &[]));
    let closed = fs::Permissions::from_mode(0o555);
    fs::set_permissions(site.path("closed"), closed).expect("set");
    let names = nodes.each_ref().map(name);
    let said = check(&site, "control", &names, &["--anonymous"]);
    assert_eq!(said.status, Some(0), "{:#?}", said.lines);
    said.says("warning", &["no account can make a directory", &names[0]])
        .says("ok", &["data channels from this machine reach 2 nodes"]);
}

#[test]
fn what_was_made_is_removed_when_a_signal_ends_the_check() {
    let site = Nodes::new();
    let nodes = [(); 2].map(|()| Running::of(&mut site.command(&CONTROL)));
    let names = nodes.each_ref().map(name);
    let mut command = checking(&site, "control", &names, &["--anonymous"]);
    let check = command.stdout(Stdio::piped()).spawn().expect("started");
    let root = site.path("root");
    wait_for("made", || is_empty(&root), |is_empty| !is_empty);
    // The check waits for this node now, unless it has ended already.
    nodes[1].signal(Signal::STOP);
    let id = Pid::from_raw(check.id().cast_signed()).expect("a process");
    kill_process(id, Signal::TERM).expect("sent");
    let said = Said::of(&check.wait_with_output().expect("it ends"));
    nodes[1].signal(Signal::CONT);
    if said.status != Some(0) {
        said.says("error", &["a signal has ended this check"]);
        let lines = said.nodes();
        let errors = lines.iter().filter(|line| line.starts_with("error"));
        assert_eq!(errors.count(), 1, "nodes are not to blame: {lines:#?}");
    }
    assert!(is_empty(&root), "{:#?}", said.lines);
}
