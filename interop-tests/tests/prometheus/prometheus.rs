//! A Prometheus that scrapes one server every second, with the project's rules and short waits.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Client;
use tempfile::TempDir;

use crate::files;

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(90);

pub(crate) fn promtool(arguments: &[&str]) -> Client {
    Client::new("promtool").args(arguments.iter().copied())
}

/// Killed when it is dropped.
pub(crate) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _place: TempDir,
}

impl Prometheus {
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| -> PathBuf { place.path().join(name) };
        fs::write(path("rules.yml"), quick(&files::rules())).expect("written");
        let config = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\n\
             rule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: gridhaul\n    static_configs:\n      - targets: [\"{target}\"]\n"
        );
        fs::write(path("prometheus.yml"), config).expect("written");
        let mut child = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                path("prometheus.yml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus is installed");
        let stderr = child.stderr.take().expect("piped");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let address = line
                    .contains("msg=\"Listening on\"")
                    .then(|| line.split("address=").nth(1)?.trim().parse().ok());
                if let Some(address) = address.flatten() {
                    let _ = tell.send(address);
                }
            }
        });
        let address = told.recv_timeout(TIME_LIMIT).expect("it listens");
        Self {
            child,
            address,
            _place: place,
        }
    }

    /// The samples of a query, one a line.
    pub(crate) fn query(&self, expression: &str) -> Vec<String> {
        let server = format!("http://{}", self.address);
        let done = promtool(&["query", "instant", &server, expression])
            .run()
            .expect("it runs");
        assert!(done.status.success(), "{expression}: {done}");
        done.output().lines().map(str::to_owned).collect()
    }

    /// The names of the alerts that fire.
    pub(crate) fn firing(&self) -> String {
        self.query("sum by (alertname) (ALERTS{alertstate=\"firing\"})")
            .join("\n")
    }

    pub(crate) fn fires(&self, alert: &str) -> bool {
        self.firing().contains(&format!("alertname=\"{alert}\""))
    }

    /// Repeats `meanwhile` until `is_so`.
    pub(crate) fn wait(
        &self,
        words: &str,
        is_so: impl Fn(&Self) -> bool,
        mut meanwhile: impl FnMut(),
    ) {
        let begun = Instant::now();
        loop {
            meanwhile();
            if is_so(self) {
                return;
            }
            let firing = || self.firing();
            assert!(
                begun.elapsed() < TIME_LIMIT,
                "{words}; firing: {}",
                firing()
            );
            // The time between two scrapes, not an order of events.
            thread::sleep(Duration::from_millis(250));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rules with short waits and short windows.
fn quick(rules: &str) -> String {
    let lines = rules.lines().map(|line| {
        if line.trim_start().starts_with("for: ") {
            "        for: 0s".to_owned()
        } else {
            line.replace("[10m]", "[15s]").replace("[15m]", "[15s]")
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
