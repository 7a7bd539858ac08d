//! Sessions of an anonymous user with two servers, one at each end of the path. Nothing is encrypted, so no packet of the
//! sessions themselves is long.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use gridhaul_interop::guest::{LEFT, RIGHT};
use gridhaul_interop::raw::{Control, Reply};
use gridhaul_interop::{Kind, Launch, Server, chown_to_nobody, content};
use tempfile::TempDir;

use crate::path;

/// The port of every server: in a guest no other program uses it.
const METRICS_PORT: u16 = 9100;

/// Both servers, `left` first, and a session with each. Both serve one directory with the file `file`.
pub(crate) struct Sessions {
    pub(crate) servers: [Server; 2],
    pub(crate) controls: [Control; 2],
    directory: TempDir,
}

impl Sessions {
    /// Servers of a file of this length at both ends of the cable.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::at([LEFT, RIGHT], bytes)
    }

    /// The same at these addresses.
    pub(crate) fn at(addresses: [&str; 2], bytes: u64) -> Self {
        Self::started(addresses, bytes, &std::env::temp_dir(), &[])
    }

    /// The same with the file beneath a directory, and with further arguments of both servers.
    pub(crate) fn started(
        addresses: [&str; 2],
        bytes: u64,
        beneath: &Path,
        arguments: &[&str],
    ) -> Self {
        let directory = tempfile::tempdir_in(beneath).unwrap();
        chown_to_nobody(directory.path()).unwrap();
        content::write(&directory.path().join("file"), bytes).unwrap();
        let servers = addresses.map(|address| server(directory.path(), address, arguments));
        // By the routes of the guest each server has the other's address as that of its client, and accepts its connection.
        let controls = servers.each_ref().map(|server| {
            let mut control = Control::anonymous(server.address()).unwrap();
            control.must("TYPE I", 200).unwrap();
            // The tests of a path take seconds if the machine has other work.
            control.set_timeout(Duration::from_secs(90));
            control
        });
        Self {
            servers,
            controls,
            directory,
        }
    }

    /// Both ends have this stack from now on.
    pub(crate) fn set_stack(&mut self, stack: &str) {
        for control in &mut self.controls {
            let command = format!("SITE SETNETSTACK {stack}");
            control.must(&command, 250).unwrap();
        }
    }

    /// Copies from the left server to the right one. Returns the last reply of each.
    pub(crate) fn copy(&mut self) -> [Reply; 2] {
        let [source, destination] = &mut self.controls;
        let SocketAddr::V4(address) = destination.passive().unwrap() else {
            panic!("PASV has an IPv4 address");
        };
        source.port(address).unwrap();
        destination.send_line("STOR copy").unwrap();
        source.send_line("RETR file").unwrap();
        [source, destination].map(|control| control.dialogue().unwrap().last)
    }

    /// Copies, and compares and removes the copy.
    pub(crate) fn copy_whole(&mut self) {
        for reply in self.copy() {
            assert_eq!(reply.code, 226, "{reply}\n{}", self.logs());
        }
        let [file, copy] = ["file", "copy"].map(|name| self.directory.path().join(name));
        content::same(&file, &copy).unwrap();
        fs::remove_file(copy).unwrap();
    }

    /// What each end reports about its channel.
    pub(crate) fn details(&mut self) -> [String; 2] {
        self.controls.each_mut().map(|control| {
            let reply = control.must("SITE GETNETSTACK", 250).unwrap();
            reply.text()
        })
    }

    fn logs(&self) -> String {
        self.servers.each_ref().map(Server::log).join("\n")
    }
}

/// A server at this address whose anonymous users may have `rdma`.
pub(crate) fn server(root: &Path, address: &str, arguments: &[&str]) -> Server {
    let address = address.parse().unwrap();
    let metrics = SocketAddr::new(address, METRICS_PORT);
    let launch = Launch::new(Kind::Gridhaul, root)
        .address(address)
        .arg("--anonymous-drivers")
        .arg("tcp,rdma")
        .arg("--metrics-listen")
        .arg(metrics.to_string());
    let launch = arguments
        .iter()
        .fold(launch, |launch, word| launch.arg(*word));
    launch.start().unwrap()
}

/// The page of metrics of one of them.
pub(crate) fn metrics(server: &Server) -> String {
    let address = SocketAddr::new(server.address().ip(), METRICS_PORT);
    path::run("curl", &format!("-s http://{address}/metrics"))
}
