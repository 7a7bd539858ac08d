//! `ib_write_bw` and `ib_send_bw` of perftest: what a device does when the application does not touch the data.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bench::sample::gigabytes;
use crate::support::Client;
use crate::support::guest_network::RIGHT;
use crate::support::usage::busy_time;

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

/// How the bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `ib_write_bw`: by WRITEs. It polls for completions.
    Write,
    /// `ib_send_bw --events`: by SENDs. It sleeps until there are completions.
    SleepingSend,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "ib_write_bw",
            Self::SleepingSend => "ib_send_bw",
        }
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Bandwidth {
    /// The program.
    pub program: Program,
    /// The devices.
    pub device: Device,
    /// The length of a message, in bytes.
    pub message_bytes: u64,
    /// Outstanding messages of a queue pair.
    pub depth: u64,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Bytes of all queue pairs.
    pub bytes: u64,
}

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    /// The rate in 10^6 bytes per second, as the program reports it.
    pub rate: f64,
    /// Processor seconds of the whole machine for 10^9 bytes, with the start of the program.
    pub processor: f64,
}

/// The number of attempts: it measures the processor clock first, and fails if that is not steady.
const ATTEMPTS: usize = 3;

/// A reported rate below this, in MB/s, is wrong: at that rate the run would exceed its time limit. Such reports are
/// frequent over software iWARP.
const IMPOSSIBLE: f64 = 5.0;

impl Bandwidth {
    /// Runs the program at both ends.
    ///
    /// # Errors
    ///
    /// The output of the program when it has no rate.
    pub fn run(&self) -> Result<Moved, String> {
        let mut outcome = Err(String::new());
        for _ in 0..ATTEMPTS {
            outcome = self.attempt();
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn attempt(&self) -> Result<Moved, String> {
        let busy = busy_time().map_err(|error| error.to_string())?;
        let mut server = self.server().map_err(|error| error.to_string())?;
        let client = Client::new("sh")
            // The server prints no message when it listens.
            .args(["-c", "sleep 0.5; exec \"$0\" \"$@\"", self.program.name()])
            .args(self.arguments("left"))
            .arg(RIGHT)
            .time_limit(Duration::from_secs(60))
            .run();
        // After a failure of the client it would wait for ever.
        let _ = server.kill();
        let _ = server.wait();
        let finished = client.map_err(|error| error.to_string())?;
        let busy = busy_time()
            .map_err(|error| error.to_string())?
            .saturating_sub(busy);
        match average(&finished.output()) {
            Some(average) if average >= IMPOSSIBLE => Ok(Moved {
                rate: average,
                processor: busy.as_secs_f64() / gigabytes(self.bytes),
            }),
            Some(average) => Err(format!(
                "{} reports {average:.0} MB/s, but the run was too short for that",
                self.program.name()
            )),
            None => Err(finished.to_string()),
        }
    }

    fn server(&self) -> std::io::Result<Child> {
        Command::new(self.program.name())
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
        let mut arguments = vec![
            format!("--ib-dev={driver}_{end}"),
            connected.into(),
            format!("--size={}", self.message_bytes),
            format!("--tx-depth={}", self.depth),
            format!("--qp={}", self.queue_pairs),
            format!("--iters={}", iterations.max(5)),
        ];
        if self.program == Program::SleepingSend {
            arguments.push("--events".to_owned());
        }
        arguments
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
