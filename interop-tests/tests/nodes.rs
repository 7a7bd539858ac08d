//! A control server with data nodes: striped copies of globus-url-copy over GSI, and a node that is killed between copies.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gridhaul_interop::{
    Client, Finished, Kind, Launch, Pki, Server, UserKind, chown_to_nobody, content,
    gridhaul_program,
};
use tempfile::TempDir;

const SIZE: u64 = 12_345_678;

/// A data node.
struct Node {
    child: Child,
    address: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Data nodes with one root, and their control server.
struct Site {
    place: TempDir,
    pki: &'static Pki,
    nodes: Vec<Node>,
    server: Server,
}

impl Site {
    fn new(nodes: usize) -> Self {
        let pki = Pki::shared().unwrap();
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("served");
        fs::create_dir(&root).unwrap();
        for path in [place.path(), &root] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(path, open).unwrap();
        }
        chown_to_nobody(&root).unwrap();
        content::write(&place.path().join("source"), SIZE).unwrap();
        let nodes: Vec<_> = (0..nodes).map(|_| node(pki, &root)).collect();
        let names: Vec<_> = nodes.iter().map(|node| node.address.as_str()).collect();
        let launch = Launch::new(Kind::Gridhaul, &root).gsi(pki);
        let server = launch.arg("--nodes").arg(names.join(",")).start().unwrap();
        let site = Self {
            place,
            pki,
            nodes,
            server,
        };
        let count = site.nodes.len();
        site.wait_for("a data node can be used", count);
        site
    }

    /// Waits until the log of the server has so many lines with these words.
    fn wait_for(&self, words: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.server.log().matches(words).count() < count {
            assert!(Instant::now() < deadline, "{}", self.server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn copy(&self, options: &[&str], from: &str, to: &str) -> Finished {
        self.copy_as(UserKind::Plain, options, from, to)
    }

    fn copy_as(&self, user: UserKind, options: &[&str], from: &str, to: &str) -> Finished {
        let client = Client::new("globus-url-copy")
            .args(options)
            .args([from, to]);
        let environment = self.pki.environment(user);
        client.envs(environment).run().unwrap()
    }

    fn file(&self, name: &str) -> String {
        format!("file://{}", self.local(name).display())
    }

    fn must(&self, options: &[&str], from: &str, to: &str) {
        let finished = self.copy(options, from, to);
        let log = self.server.log();
        assert!(finished.status.success(), "{options:?}: {finished}\n{log}");
    }
}

fn node(pki: &Pki, root: &std::path::Path) -> Node {
    let mut child = Command::new(gridhaul_program().unwrap())
        .args(["node", "--listen", "127.0.0.1:0", "--least-uid", "1"])
        .args(["--allow-disabled-login", "--root"])
        .arg(root)
        .arg("--cert")
        .arg(pki.host_certificate())
        .arg("--key")
        .arg(pki.host_key())
        .arg("--trust")
        .arg(pki.trust())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("Node listening at ");
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    Node { child, address }
}

#[test]
fn striped_copies_over_several_nodes_are_exact() {
    for (nodes, channels) in [(1, "4"), (2, "1"), (4, "4")] {
        let site = Site::new(nodes);
        let options = ["-stripe", "-p", channels];
        site.must(&options, &site.file("source"), &site.server.url("put"));
        let stored = site.server.root().join("put");
        content::same(&site.local("source"), &stored).unwrap();
        site.must(&options, &site.server.url("put"), &site.file("got"));
        content::same(&site.local("source"), &site.local("got")).unwrap();
        site.must(&options, &site.server.url("put"), &site.server.url("copy"));
        content::same(&stored, &site.server.root().join("copy")).unwrap();
        // globus-url-copy -stripe sends to all stripes; when it receives, there is one.
        let stripes = format!("stripes={nodes} ");
        let log = site.server.log();
        let striped = log.lines().find(|line| line.contains(&stripes));
        let striped = striped.unwrap_or_else(|| panic!("{stripes}: {log}"));
        for node in &site.nodes {
            assert!(
                striped.contains(&node.address),
                "{}: {striped}",
                node.address
            );
        }
    }
}

#[test]
fn files_of_users_belong_to_their_accounts_also_with_private_channels() {
    let site = Site::new(2);
    let (source, target) = (site.file("source"), site.server.url("private"));
    let stored = site.server.root().join("private");
    let finished = site.copy_as(UserKind::Second, &["-dcpriv"], &source, &target);
    let log = site.server.log();
    assert!(finished.status.success(), "{finished}\n{log}");
    content::same(&site.local("source"), &stored).unwrap();
    let account = site.pki.accounts().second.as_str();
    let id = Client::new("id").args(["-u", account]).run().unwrap();
    let owner = fs::metadata(&stored).unwrap().uid().to_string();
    assert_eq!(owner, id.output().trim_end(), "{account}");
    let listed = site.copy(&["-list"], &site.server.url(""), "");
    assert!(listed.status.success(), "{listed}");
    assert!(listed.output().contains("private"), "{listed}");
}

#[test]
fn a_node_that_is_killed_does_not_stop_the_others() {
    let mut site = Site::new(2);
    site.must(&[], &site.file("source"), &site.server.url("before"));
    content::same(&site.local("source"), &site.server.root().join("before")).unwrap();
    drop(site.nodes.remove(0));
    site.wait_for("a data node cannot be used", 1);
    for attempt in 0..3 {
        let name = format!("after-{attempt}");
        site.must(&["-stripe"], &site.file("source"), &site.server.url(&name));
        content::same(&site.local("source"), &site.server.root().join(name)).unwrap();
    }
}
