//! Makes the pictures of the administration page for the book: a server with a hundred slow transfers, and headless Chromium.

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::raw::Control;
use gridhaul_interop::support::slow::SlowGets;
use gridhaul_interop::{Client, Kind, Launch};

#[derive(Debug, Parser)]
#[command(about = "Make the pictures of the administration page")]
struct Arguments {
    /// The directory for the pictures
    #[arg(long, default_value = "docs/images")]
    directory: PathBuf,
    /// The number of transfers
    #[arg(long, default_value_t = 100)]
    transfers: usize,
    /// How long the transfers run before the pictures are made, so that the plots have something to show
    #[arg(long, default_value_t = 180)]
    seconds: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let root = tempfile::tempdir()?;
    fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
    fs::create_dir_all(root.path().join("data/run3"))?;
    let paths: Vec<String> = (0..arguments.transfers)
        .map(|number| format!("/data/run3/events-{:05}.root", 40_000 + number * 7))
        .collect();
    for (number, path) in (0..).zip(&paths) {
        // Large enough for the fastest client, and different, so that the transfers are not in step.
        let size = 1_500_000_000 + 37_000_000 * number;
        File::create(root.path().join(&path[1..]))?.set_len(size)?;
    }
    let server = Launch::new(Kind::Gridhaul, root.path())
        .arg("--admin-listen")
        .arg("127.0.0.1:0")
        .start()?;
    let base = server.administration();
    // Several groups that begin after each other, with different rates.
    let mut groups = Vec::new();
    for (step, group) in (1..).zip(paths.chunks(arguments.transfers.div_ceil(4))) {
        let group: Vec<&str> = group.iter().map(String::as_str).collect();
        let pause = Duration::from_millis(20 * step);
        for name in ["root", "admin"] {
            let mut refused = Control::greeted(server.address())?;
            refused.command(&format!("USER {name}"))?;
            refused.must("PASS guess", 530)?;
        }
        groups.push(SlowGets::start(server.address(), &group, pause)?);
        thread::sleep(Duration::from_secs(arguments.seconds / 4));
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/admin_page.py");
    let finished = Client::new("python3")
        .arg("-B")
        .arg(script)
        .args(["pictures", &base])
        .arg(fs::canonicalize(arguments.directory)?)
        .time_limit(Duration::from_secs(180))
        .run()?;
    println!("{finished}");
    if finished.status.success() {
        Ok(())
    } else {
        Err("no pictures".into())
    }
}
