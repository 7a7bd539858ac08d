//! `ib_write_bw` of perftest: the rate of a device when the application does not touch the data.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::Client;
use crate::support::guest_network::RIGHT;

/// The devices of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// `rxe`.
    Roce,
    /// `siw`.
    Iwarp,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Roce => "RoCE",
            Self::Iwarp => "iWARP",
        })
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct WriteBandwidth {
    /// The devices.
    pub device: Device,
    /// The length of a WRITE, in bytes.
    pub message_bytes: u64,
    /// Outstanding WRITEs of a queue pair.
    pub depth: u64,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Bytes of all queue pairs.
    pub bytes: u64,
}

/// The number of attempts: it measures the processor clock first, and fails if that is not steady.
const ATTEMPTS: usize = 3;

/// A reported rate below this, in MB/s, is wrong: at that rate the run would exceed its time limit. Such reports are
/// frequent over software iWARP.
const IMPOSSIBLE: f64 = 5.0;

impl WriteBandwidth {
    /// The rate in 10^6 bytes per second.
    ///
    /// # Errors
    ///
    /// The output of the program when it has no rate.
    pub fn megabytes_per_second(&self) -> Result<f64, String> {
        let mut outcome = Err(String::new());
        for _ in 0..ATTEMPTS {
            outcome = self.attempt();
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn attempt(&self) -> Result<f64, String> {
        let mut server = self.server().map_err(|error| error.to_string())?;
        let client = Client::new("sh")
            // The server prints no message when it listens.
            .args(["-c", "sleep 0.5; exec ib_write_bw \"$@\"", "ib_write_bw"])
            .args(self.arguments("left"))
            .arg(RIGHT)
            .time_limit(Duration::from_secs(60))
            .run();
        // After a failure of the client it would wait for ever.
        let _ = server.kill();
        let _ = server.wait();
        let finished = client.map_err(|error| error.to_string())?;
        match average(&finished.output()) {
            Some(average) if average >= IMPOSSIBLE => Ok(average),
            Some(average) => Err(format!(
                "ib_write_bw reports {average:.0} MB/s, but the run was too short for that"
            )),
            None => Err(finished.to_string()),
        }
    }

    fn server(&self) -> std::io::Result<Child> {
        Command::new("ib_write_bw")
            .args(self.arguments("right"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    }

    fn arguments(&self, end: &str) -> Vec<String> {
        let iterations = self.bytes / self.message_bytes / self.queue_pairs as u64;
        let [driver, connected] = match self.device {
            // The GID of the IPv4 address.
            Device::Roce => ["rxe", "--gid-index=1"],
            // iWARP needs the RDMA connection manager.
            Device::Iwarp => ["siw", "--rdma_cm"],
        };
        vec![
            format!("--ib-dev={driver}_{end}"),
            connected.into(),
            format!("--size={}", self.message_bytes),
            format!("--tx-depth={}", self.depth),
            format!("--qp={}", self.queue_pairs),
            format!("--iters={}", iterations.max(5)),
        ]
    }
}

/// Parses the average of the report, which is in 2^20 bytes per second.
fn average(output: &str) -> Option<f64> {
    let mut lines = output.lines().skip_while(|line| !line.contains("#bytes"));
    let numbers = lines.nth(1)?;
    let average: f64 = numbers.split_whitespace().nth(3)?.parse().ok()?;
    average.is_finite().then_some(average * 1.048_576)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_read() {
        let output = " Data ex. method : Ethernet\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
             1048576    100              842.90             826.00             0.000826\n";
        assert_eq!(average(output), Some(826.0 * 1.048_576));
        assert_eq!(average("Couldn't listen\n"), None);
    }
}
