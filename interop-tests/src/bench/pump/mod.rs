//! The bare pump: what the kernel itself can do.
//!
//! Two processes move one file to another over TCP, with as little between as possible: no protocol but a
//! range at the head of each connection, no check, no progress. What a server reaches of its speed, and
//! what it costs beside it, is the measure of a data plane. The program is the benchmark itself, started
//! with the words that [`serve`] takes.

mod receive;
mod send;

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use rustix::time::{ClockId, clock_gettime};

use super::sample::Way;
use crate::group::Group;

/// How long a pump may take to end after its last word.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A way and a number of connections.
#[derive(Debug, Clone, Copy)]
pub struct Pump<'a> {
    /// The program of the benchmark.
    pub program: &'a Path,
    /// How bytes are moved.
    pub way: Way,
    /// How many connections share the file.
    pub connections: usize,
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub struct Pumped {
    /// From the word to begin to the last byte in the file.
    pub elapsed: Duration,
    /// Processor time of the sender and of the receiver.
    pub processor: [Duration; 2],
}

/// The half of a pump that has been started.
#[derive(Debug)]
pub struct Half {
    group: Group,
    output: BufReader<ChildStdout>,
}

impl Pump<'_> {
    /// Moves `bytes` over loopback.
    ///
    /// # Errors
    ///
    /// When one half fails, with what it said.
    pub fn run(self, from: &Path, to: &Path, bytes: u64) -> io::Result<Pumped> {
        let (receiver, address) = self.receiver(to, bytes, Ipv4Addr::LOCALHOST.into())?;
        let sender = self.sender(from, bytes, address)?;
        Self::finish(sender, receiver)
    }

    /// Starts the half that listens at an address of this machine.
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
            listening.map_err(|_| io::Error::other(format!("the pump said: {line}")))?;
        Ok((half, listening))
    }

    /// Starts the half that connects.
    ///
    /// # Errors
    ///
    /// When it does not get its connections.
    pub fn sender(self, file: &Path, bytes: u64, address: SocketAddr) -> io::Result<Half> {
        let mut half = self.half("send", file, bytes, &address)?;
        half.line()?;
        Ok(half)
    }

    /// Gives the word to begin, and waits for the end.
    ///
    /// # Errors
    ///
    /// When one half fails, with what it said.
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
            .args(["pump", side, "--way", self.way.word()])
            .args(["--connections", &self.connections.to_string()])
            .args(["--bytes", &bytes.to_string()])
            .args(["--address", &address.to_string()])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut group = Group::start(command)?;
        let output = group.leader().stdout.take().map(BufReader::new);
        let output = output.ok_or_else(|| io::Error::other("the pump has no output"))?;
        Ok(Half { group, output })
    }
}

impl Half {
    /// The next line; a pump that ended without one has said why on standard error.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the pump failed"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// The processor time that it tells at its end.
    fn time(&mut self) -> io::Result<Duration> {
        let line = self.line()?;
        let nanoseconds = line.parse();
        let nanoseconds =
            nanoseconds.map_err(|_| io::Error::other(format!("the pump said: {line}")))?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

/// The words that make the benchmark's program one half of a pump.
#[derive(Debug, Clone, Subcommand)]
pub enum Side {
    /// Listens, prints where, and writes what comes to a file
    Receive(Options),
    /// Connects, prints a word, waits for a line, and sends a file
    Send(Options),
}

/// What a half has to know.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// How bytes are moved
    #[arg(long, value_parser = Way::parse)]
    way: Way,
    /// Connections that share the file
    #[arg(long)]
    connections: usize,
    /// The length of the file
    #[arg(long)]
    bytes: u64,
    /// Where to listen or to connect to
    #[arg(long)]
    address: SocketAddr,
    /// The file
    file: std::path::PathBuf,
}

/// Runs one half in this process. Its last line is the processor time that it used, in nanoseconds.
///
/// # Errors
///
/// When the connections or the file fail.
pub fn serve(side: &Side) -> io::Result<()> {
    let used = match side {
        Side::Receive(options) => receive::run(options)?,
        Side::Send(options) => send::run(options)?,
    };
    say(&used.as_nanos().to_string())
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Self::Splice => "splice",
            Self::SmallBuffers => "small-buffers",
            Self::LargeBuffers => "large-buffers",
        }
    }

    fn parse(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|way| way.word() == word);
        found.ok_or_else(|| format!("there is no way {word}"))
    }

    /// The size of buffers; `None` where there are none.
    fn buffer_bytes(self) -> Option<usize> {
        match self {
            Self::Splice => None,
            Self::SmallBuffers => Some(256 << 10),
            Self::LargeBuffers => Some(1 << 20),
        }
    }
}

/// The range that a connection carries: offset and length.
type Range = (u64, u64);

/// The range of each connection.
fn ranges(options: &Options) -> Vec<Range> {
    let count = options.connections.max(1) as u64;
    let share = options.bytes.div_ceil(count);
    (0..count)
        .map(|index| {
            let start = (index * share).min(options.bytes);
            (start, share.min(options.bytes - start))
        })
        .collect()
}

/// Does the work of each connection on a thread of its own, and says what processor time that took.
fn each_connection<T: Send>(
    connections: Vec<T>,
    work: impl Fn(T) -> io::Result<()> + Sync,
) -> io::Result<Duration> {
    let before = processor_time();
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || work(connection)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread of the pump panicked")))
        })
    })?;
    Ok(processor_time().saturating_sub(before))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn say(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_way_moves_every_byte() {
        let scratch = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
        let content: Vec<u8> = (0..3_000_001_u32)
            .map(|index| (index % 251) as u8)
            .collect();
        fs::write(&from, &content).unwrap();
        for way in Way::ALL {
            let options = |address, file: &Path| Options {
                way,
                connections: 4,
                bytes: content.len() as u64,
                address,
                file: file.to_owned(),
            };
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let receiver = options(address, &to);
            let receiver = std::thread::spawn(move || receive::from(&listener, &receiver));
            let connections = send::connect(&options(address, &from)).unwrap();
            send::all(&options(address, &from), connections).unwrap();
            receiver.join().unwrap().unwrap();
            assert!(fs::read(&to).unwrap() == content, "{way:?}");
            fs::remove_file(&to).unwrap();
        }
    }

    #[test]
    fn the_connections_share_the_file_without_a_gap() {
        let options = Options {
            way: Way::Splice,
            connections: 16,
            bytes: 1001,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            file: "file".into(),
        };
        let mut end = 0;
        for (start, length) in ranges(&options) {
            assert_eq!(start, end);
            end += length;
        }
        assert_eq!(end, 1001);
    }
}
