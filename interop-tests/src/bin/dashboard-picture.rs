//! Makes the picture of the dashboard for the book: a server under load, a real Prometheus, and the queries of the dashboard drawn
//! in headless Chromium. The drawing is not Grafana's.

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::raw::{Control, get_stream, put_stream};
use gridhaul_interop::support::prometheus::Prometheus;
use gridhaul_interop::support::slow::SlowGets;
use gridhaul_interop::{Client, Kind, Launch, Pki, chown_to_nobody};

#[derive(Debug, Parser)]
#[command(about = "Make the picture of the dashboard")]
struct Arguments {
    /// The picture
    #[arg(long, default_value = "docs/images/dashboard.png")]
    picture: PathBuf,
    /// How long the load runs before the picture is made
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    /// The clients that store and fetch small files
    #[arg(long, default_value_t = 6)]
    clients: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let place = tempfile::tempdir()?;
    fs::set_permissions(place.path(), Permissions::from_mode(0o755))?;
    let root = place.path().join("served");
    fs::create_dir(&root)?;
    chown_to_nobody(&root)?;
    File::create(root.join("big"))?.set_len(8 << 30)?;
    fs::write(root.join("file"), vec![7; 3 << 20])?;
    let server = Launch::new(Kind::Gridhaul, &root)
        .tls(Pki::shared()?)
        .arg("--metrics-listen")
        .arg("127.0.0.1:0")
        .arg("--penalty-exempt")
        .arg("127.0.0.0/8")
        .start()?;
    let metrics = server.metrics_address().ok_or("no page of metrics")?;
    let prometheus = Prometheus::scraping(&[metrics], "")?;
    load(server.address(), &arguments)?;
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let finished = Client::new("python3")
        .arg("-B")
        .arg(own.join("python/dashboard.py"))
        .arg(prometheus.url())
        .arg(own.join("../packaging/grafana/gridhaul.json"))
        .arg(std::path::absolute(arguments.picture)?)
        .arg(arguments.seconds.to_string())
        .time_limit(Duration::from_secs(180))
        .run()?;
    println!("{finished}");
    if finished.status.success() {
        Ok(())
    } else {
        Err("no picture".into())
    }
}

/// Slow clients that come one after the other, and busy ones that also do what is refused.
fn load(server: SocketAddr, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..arguments.clients)
        .map(|client| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    // A refused or failed transfer is part of the load.
                    let _ = work(server, client, round);
                    round += 1;
                    thread::sleep(Duration::from_millis(u64::from(250 + 150 * client)));
                }
            })
        })
        .collect();
    const STEPS: u64 = 8;
    let mut slow = Vec::new();
    for step in 1..=STEPS {
        let pause = Duration::from_millis(5 * step);
        slow.push(SlowGets::start(server, &["/big"; 5], pause)?);
        if step > STEPS / 2 {
            slow.remove(0);
        }
        thread::sleep(Duration::from_secs(arguments.seconds / STEPS));
    }
    stop.store(true, Ordering::Relaxed);
    for client in busy {
        client.join().map_err(|_| "a client panicked")?;
    }
    Ok(())
}

fn work(server: SocketAddr, client: u32, round: u32) -> io::Result<()> {
    let mut control = Control::anonymous(server)?;
    get_stream(&mut control, "/file")?;
    put_stream(&mut control, &format!("/stored-{client}"), &[1; 1 << 20])?;
    if round % 7 == client % 7 {
        let mut guess = Control::greeted(server)?;
        guess.command("USER root")?;
        guess.command("PASS guess")?;
        get_stream(&mut control, "/missing")?;
    }
    Ok(())
}
