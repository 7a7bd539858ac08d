//! `ib_write_bw` of perftest: the rate of a device without any work on the bytes.

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

/// What it is to do.
#[derive(Debug, Clone, Copy)]
pub struct WriteBandwidth {
    /// By which devices.
    pub device: Device,
    /// The length of a WRITE, in bytes.
    pub message_bytes: u64,
    /// WRITEs of a queue pair that are under way.
    pub depth: u64,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// All bytes.
    pub bytes: u64,
}

/// It measures the clock of the processor first, and gives up where that is not steady.
const ATTEMPTS: usize = 3;

/// What it reports below this, in millions of bytes in a second, cannot be: its bytes would take longer than it has. Over
/// software iWARP it often does.
const IMPOSSIBLE: f64 = 5.0;

impl WriteBandwidth {
    /// Millions of bytes in a second.
    ///
    /// # Errors
    ///
    /// What the program said instead.
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
            // It is not told when the other end listens.
            .args(["-c", "sleep 0.5; exec ib_write_bw \"$@\"", "ib_write_bw"])
            .args(self.arguments("left"))
            .arg(RIGHT)
            .time_limit(Duration::from_secs(60))
            .run();
        // Where the client failed, it waits for ever.
        let _ = server.kill();
        let _ = server.wait();
        let finished = client.map_err(|error| error.to_string())?;
        match average(&finished.output()) {
            Some(average) if average >= IMPOSSIBLE => Ok(average),
            Some(average) => Err(format!(
                "ib_write_bw reports {average:.0} MB/s, for which there was no time"
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
            // That of the IPv4 address.
            Device::Roce => ["rxe", "--gid-index=1"],
            // iWARP has no other way to connect.
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

/// The average in its report, which counts in 2^20 bytes.
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
