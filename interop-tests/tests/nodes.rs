//! A control server with data nodes: striped copies of globus-url-copy over GSI, and a node that is killed between copies.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use gridhaul_interop::{Client, NodeSite, UserKind, content};

const SIZE: u64 = 12_345_678;

/// Nodes, a control server, and a file that is not served.
fn site(nodes: usize) -> NodeSite {
    let site = NodeSite::start(nodes).unwrap();
    content::write(&site.local("source"), SIZE).unwrap();
    site
}

#[test]
fn striped_copies_over_several_nodes_are_exact() {
    for (nodes, channels) in [(1, "4"), (2, "1"), (4, "4")] {
        let site = site(nodes);
        let options = ["-stripe", "-p", channels];
        site.must_copy(&options, &site.file("source"), &site.server.url("put"))
            .unwrap();
        let stored = site.server.root().join("put");
        content::same(&site.local("source"), &stored).unwrap();
        site.must_copy(&options, &site.server.url("put"), &site.file("got"))
            .unwrap();
        content::same(&site.local("source"), &site.local("got")).unwrap();
        site.must_copy(&options, &site.server.url("put"), &site.server.url("copy"))
            .unwrap();
        content::same(&stored, &site.server.root().join("copy")).unwrap();
        // globus-url-copy -stripe sends to all stripes; when it receives, there is one.
        let stripes = format!("stripes={nodes} ");
        let log = site.server.log();
        let striped = log.lines().find(|line| line.contains(&stripes));
        let striped = striped.unwrap_or_else(|| panic!("{stripes}: {log}"));
        for node in &site.nodes {
            let address = node.address().to_string();
            assert!(striped.contains(&address), "{address}: {striped}");
        }
    }
}

#[test]
fn files_of_users_belong_to_their_accounts_also_with_private_channels() {
    let site = site(2);
    let (source, target) = (site.file("source"), site.server.url("private"));
    let stored = site.server.root().join("private");
    let finished = site
        .copy_as(UserKind::Second, &["-dcpriv"], &source, &target)
        .unwrap();
    let log = site.server.log();
    assert!(finished.status.success(), "{finished}\n{log}");
    content::same(&site.local("source"), &stored).unwrap();
    let account = site.pki().accounts().second.as_str();
    let id = Client::new("id").args(["-u", account]).run().unwrap();
    let owner = fs::metadata(&stored).unwrap().uid().to_string();
    assert_eq!(owner, id.output().trim_end(), "{account}");
    let listed = site.copy(&["-list"], &site.server.url(""), "").unwrap();
    assert!(listed.status.success(), "{listed}");
    assert!(listed.output().contains("private"), "{listed}");
}

#[test]
fn a_node_that_is_killed_does_not_stop_the_others() {
    let mut site = site(2);
    site.must_copy(&[], &site.file("source"), &site.server.url("before"))
        .unwrap();
    content::same(&site.local("source"), &site.server.root().join("before")).unwrap();
    drop(site.nodes.remove(0));
    site.wait_for("a data node cannot be used", 1).unwrap();
    for attempt in 0..3 {
        let name = format!("after-{attempt}");
        site.must_copy(&["-stripe"], &site.file("source"), &site.server.url(&name))
            .unwrap();
        content::same(&site.local("source"), &site.server.root().join(name)).unwrap();
    }
}
