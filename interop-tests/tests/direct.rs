//! globus-url-copy, and gridhaul over `rdma`, put and get files that our server reads and writes with direct I/O.

use std::env::temp_dir;
use std::fs;
use std::path::Path;

use gridhaul_interop::support::gridhaul_client;
use gridhaul_interop::support::scratch::Scratch;
use gridhaul_interop::{Client, Kind, Launch, Server, chown_to_nobody, content};

/// File sizes; all but two are not a multiple of the block size.
const SIZES: [u64; 5] = [1, 4096, 4097, 1 << 23, (40 << 20) + 12_345];

const MODES: [&[&str]; 3] = [&[], &["-fast"], &["-p", "4", "-bs", "300001"]];

#[test]
fn with_io_uring_if_the_kernel_has_it() {
    // proc_sys_kernel(5), since Linux 6.6; an older kernel may have io_uring without this file.
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let is_there = disabled.is_ok_and(|disabled| disabled.trim() == "0");
    let method = if is_there {
        "direct (io_uring)"
    } else {
        "direct ("
    };
    files_arrive("splice:direct=1", method);
}

#[test]
fn by_threads() {
    files_arrive("splice:direct=threads", "direct (threads)");
}

/// Between the rings of `rdma` and the disk.
#[test]
fn over_rdma() {
    files_arrive_over_rdma("rdma:provider=soft;direct=threads", "direct (threads)");
}

/// Transfers that are too short for a trial.
#[test]
fn over_rdma_by_default() {
    files_arrive_over_rdma("rdma:provider=soft", "page cache: ");
}

fn files_arrive_over_rdma(stack: &str, method: &str) {
    let scratch = Scratch::beneath(&temp_dir()).unwrap();
    let (root, ours) = (scratch.path().join("root"), scratch.path().join("ours"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&ours).unwrap();
    chown_to_nobody(&root).unwrap();
    let launch = Launch::new(Kind::Gridhaul, &root);
    let launch = launch.arg("--anonymous-drivers").arg("rdma");
    let server = launch.arg("--stack").arg(stack).start().unwrap();
    let program = gridhaul_client().unwrap();
    let copy = |channels: &str, from: &str, to: &str| {
        let client = Client::new(&program).args(["copy", "--quiet", "--retry", "0"]);
        let client = client.args(["--stack", "rdma:provider=soft", "--parallel", channels]);
        let finished = client.args([from, to]).run().unwrap();
        assert!(finished.status.success(), "{from} to {to}: {finished}");
    };
    let sent = ours.join("sent");
    for bytes in SIZES {
        content::write(&sent, bytes).unwrap();
        for channels in ["1", "4"] {
            let name = format!("{bytes}-{channels}");
            let returned = ours.join(&name);
            copy(channels, &sent.display().to_string(), &server.url(&name));
            content::same(&sent, &root.join(&name)).unwrap();
            copy(
                channels,
                &server.url(&name),
                &returned.display().to_string(),
            );
            content::same(&sent, &returned).unwrap();
        }
    }
    expect_method(&server, &sent, method);
}

fn files_arrive(stack: &str, method: &str) {
    let scratch = Scratch::beneath(&temp_dir()).unwrap();
    let (root, ours) = (scratch.path().join("root"), scratch.path().join("ours"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&ours).unwrap();
    chown_to_nobody(&root).unwrap();
    let launch = Launch::new(Kind::Gridhaul, &root).arg("--stack").arg(stack);
    let server = launch.start().unwrap();
    let (sent, returned) = (ours.join("sent"), ours.join("returned"));
    for bytes in SIZES {
        content::write(&sent, bytes).unwrap();
        for options in MODES {
            copy(options, &url(&sent), &server.url("file"));
            content::same(&sent, &root.join("file")).unwrap();
            copy(options, &server.url("file"), &url(&returned));
            content::same(&sent, &returned).unwrap();
        }
    }
    expect_method(&server, &sent, method);
}

fn copy(options: &[&str], from: &str, to: &str) {
    let client = Client::new("globus-url-copy").args(options);
    let finished = client.args([from, to]).run().unwrap();
    assert!(finished.status.success(), "{from} to {to}: {finished}");
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The log has the method of direct I/O, on a file system that supports it.
fn expect_method(server: &Server, file: &Path, method: &str) {
    use rustix::fs::{Mode, OFlags, open};
    match open(file, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()) {
        Ok(_) => assert!(server.log().contains(method), "{}", server.log()),
        Err(error) => eprintln!("{}: no direct I/O: {error}", file.display()),
    }
}
