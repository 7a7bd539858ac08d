//! Runs commands of one guest in the other: a remote shell at the other end of the cable. It needs no authentication,
//! because no other host is on the network.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::guest_network::RIGHT;

/// The port of the shell: that of rsh, which works in the same way.
const PORT: u16 = 514;

/// The time limit for a guest to boot, and for a command to run.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The longest command, in bytes.
const LINE_LIMIT: usize = 64 << 10;

/// The guest at the end `right`, for the one at `left`.
#[derive(Debug)]
pub struct Neighbour {
    shell: SocketAddr,
}

impl Neighbour {
    /// The file in that guest with the standard error of the last command of [`Neighbour::wrapper`].
    pub const ERRORS: &str = "/run/errors";

    /// Waits until it has booted.
    pub(super) fn connect() -> io::Result<Self> {
        let address: IpAddr = RIGHT.parse().map_err(io::Error::other)?;
        let shell = SocketAddr::new(address, PORT);
        let started = Instant::now();
        while let Err(error) = TcpStream::connect_timeout(&shell, TIMEOUT) {
            if started.elapsed() > TIMEOUT {
                return Err(error);
            }
            // It has a network, but does not listen yet.
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { shell })
    }

    /// Runs a shell command in that guest to its successful end, and returns its output.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn run(&self, line: &str) -> String {
        self.feed(line, &[])
    }

    /// The same, with standard input.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn feed(&self, line: &str, input: &[u8]) -> String {
        const DONE: &str = "\ndone";
        let output = self
            .request(&format!("( {line} ) 2>&1 && printf '\\ndone'"), input)
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        match output.strip_suffix(DONE) {
            Some(output) => output.to_owned(),
            None => panic!("at the right end, {line}: {output}"),
        }
    }

    /// A wrapper command: the arguments appended to it run in that guest, with their standard output here.
    pub fn wrapper(&self) -> Vec<String> {
        let (address, port) = (self.shell.ip(), self.shell.port());
        // bash(1): a redirection to this name opens a connection, and `@Q` quotes.
        let script = format!(
            "exec 3<>/dev/tcp/{address}/{port}; echo \"exec ${{*@Q}} 2>{}\" >&3; exec cat <&3",
            Self::ERRORS
        );
        ["bash", "-c", &script, "neighbour"]
            .map(str::to_owned)
            .into()
    }

    fn request(&self, line: &str, input: &[u8]) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.shell)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        stream.write_all(input)?;
        stream.shutdown(Shutdown::Write)?;
        let mut output = String::new();
        stream.read_to_string(&mut output)?;
        Ok(output)
    }
}

/// Runs the commands of the neighbour, concurrently, until the guest is turned off.
pub(super) fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = answer(stream) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let line = first_line(&mut stream)?;
    let input = OwnedFd::from(stream.try_clone()?);
    let output = OwnedFd::from(stream);
    Command::new("sh")
        .args(["-c", &line])
        .stdin(input)
        .stdout(output)
        .status()?;
    Ok(())
}

/// Reads byte by byte, because the bytes after the line are the command's standard input.
fn first_line(stream: &mut TcpStream) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < LINE_LIMIT && stream.read(&mut byte)? > 0 && byte != *b"\n" {
        line.extend(byte);
    }
    String::from_utf8(line).map_err(io::Error::other)
}
