//! A Prometheus that scrapes servers every second.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::client::Client;

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Killed when it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    _place: TempDir,
}

impl Prometheus {
    /// Scrapes these pages of metrics as the job `gridhaul`, and evaluates these rules.
    ///
    /// # Errors
    ///
    /// When the program is missing, or does not listen in time.
    pub fn scraping(targets: &[SocketAddr], rules: &str) -> io::Result<Self> {
        let targets: Vec<_> = targets
            .iter()
            .map(|target| format!("\"{target}\""))
            .collect();
        let targets = targets.join(", ");
        let place = tempfile::tempdir()?;
        let path = |name: &str| place.path().join(name).display().to_string();
        fs::write(path("rules.yml"), rules)?;
        let config = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\n\
             rule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: gridhaul\n    static_configs:\n      - targets: [{targets}]\n"
        );
        fs::write(path("prometheus.yml"), config)?;
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", path("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", path("data")))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let lines = stderr
                .into_iter()
                .flat_map(|stderr| BufReader::new(stderr).lines());
            for line in lines.map_while(Result::ok) {
                let address = line
                    .contains("msg=\"Listening on\"")
                    .then(|| line.split("address=").nth(1)?.trim().parse().ok());
                if let Some(address) = address.flatten() {
                    let _ = tell.send(address);
                }
            }
        });
        let address = told.recv_timeout(TIME_LIMIT);
        let address = address.map_err(|_| {
            // It may still run.
            let _ = child.kill();
            io::Error::other("prometheus does not listen")
        })?;
        Ok(Self {
            child,
            address,
            _place: place,
        })
    }

    /// The URL of its interface.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The samples of a query at present, one a line.
    ///
    /// # Errors
    ///
    /// When it refuses the query.
    pub fn query(&self, expression: &str) -> io::Result<Vec<String>> {
        let done = Client::new("promtool")
            .args(["query", "instant", &self.url(), expression])
            .run()
            .map_err(io::Error::other)?;
        if !done.status.success() {
            return Err(io::Error::other(format!("{expression}: {done}")));
        }
        // Without samples there is an empty line.
        let output = done.output();
        let samples = output.lines().filter(|line| !line.is_empty());
        Ok(samples.map(str::to_owned).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
