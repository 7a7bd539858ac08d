//! Starts the two halves of a pump, and times them.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::sample::Variant;
use crate::support::process_group::ProcessGroup;

/// The time limit for a pump to exit after its last line.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The parameters of a pump.
#[derive(Debug, Clone, Copy)]
pub struct Pump<'a> {
    /// The program of the benchmark.
    pub program: &'a Path,
    /// The system calls that move bytes.
    pub variant: Variant,
    /// The number of connections that share the file.
    pub connections: usize,
}

/// The times of a run.
#[derive(Debug, Clone, Copy)]
pub struct Pumped {
    /// From the start signal to the last byte in the file.
    pub elapsed: Duration,
    /// Processor time of the sender and of the receiver.
    pub processor: [Duration; 2],
}

/// A running half of a pump.
#[derive(Debug)]
pub struct Half {
    group: ProcessGroup,
    output: BufReader<ChildStdout>,
}

impl Pump<'_> {
    /// Moves `bytes` over loopback.
    ///
    /// # Errors
    ///
    /// When one half fails.
    pub fn run(self, from: &Path, to: &Path, bytes: u64) -> io::Result<Pumped> {
        let (receiver, address) = self.receiver(to, bytes, Ipv4Addr::LOCALHOST.into())?;
        let sender = self.sender(from, bytes, address)?;
        Self::finish(sender, receiver)
    }

    /// Starts the receiving half, which listens at an address of this machine.
    ///
    /// # Errors
    ///
    /// When it does not listen.
    pub fn receiver(
        self,
        file: &Path,
        bytes: u64,
        address: IpAddr,
    ) -> io::Result<(Half, SocketAddr)> {
        let mut half = self.half("receive", file, bytes, &SocketAddr::new(address, 0))?;
        let line = half.line()?;
        let listening = line.parse();
        let listening =
            listening.map_err(|_| io::Error::other(format!("the pump printed: {line}")))?;
        Ok((half, listening))
    }

    /// Starts the sending half, which connects.
    ///
    /// # Errors
    ///
    /// When it does not connect.
    pub fn sender(self, file: &Path, bytes: u64, address: SocketAddr) -> io::Result<Half> {
        let mut half = self.half("send", file, bytes, &address)?;
        half.line()?;
        Ok(half)
    }

    /// Sends the start signal, and waits for the end.
    ///
    /// # Errors
    ///
    /// When one half fails.
    pub fn finish(mut sender: Half, mut receiver: Half) -> io::Result<Pumped> {
        let started = Instant::now();
        let mut input = sender.group.leader().stdin.take();
        input
            .as_mut()
            .map_or(Ok(()), |input| input.write_all(b"go\n"))?;
        let received = receiver.time()?;
        let elapsed = started.elapsed();
        let sent = sender.time()?;
        for half in [&mut sender, &mut receiver] {
            half.group.wait(END_LIMIT)?;
        }
        Ok(Pumped {
            elapsed,
            processor: [sent, received],
        })
    }

    fn half(self, side: &str, file: &Path, bytes: u64, address: &SocketAddr) -> io::Result<Half> {
        let mut command = Command::new(self.program);
        command
            .args(["pump", side, "--way", self.variant.name()])
            .args(["--connections", &self.connections.to_string()])
            .args(["--bytes", &bytes.to_string()])
            .args(["--address", &address.to_string()])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut group = ProcessGroup::start(command)?;
        let output = group.leader().stdout.take().map(BufReader::new);
        let output = output.ok_or_else(|| io::Error::other("the pump has no output"))?;
        Ok(Half { group, output })
    }
}

impl Half {
    /// The next line. A pump that exits without one has printed the reason on standard error.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the pump failed"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// The processor time that it prints at its end.
    fn time(&mut self) -> io::Result<Duration> {
        let line = self.line()?;
        let nanoseconds = line.parse();
        let nanoseconds =
            nanoseconds.map_err(|_| io::Error::other(format!("the pump printed: {line}")))?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}
