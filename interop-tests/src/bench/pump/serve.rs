//! One half of a pump as a process.

use std::io;

use clap::Subcommand;

use super::connections::print_line;
use super::options::Options;
use super::{receive, send};

/// The subcommands that run the benchmark's program as one half of a pump.
#[derive(Debug, Clone, Subcommand)]
pub enum Side {
    /// Listens, prints the address, and writes the received bytes to a file
    Receive(Options),
    /// Connects, prints a line, waits for a line, and sends a file
    Send(Options),
}

/// Runs one half in this process. Its last line is its processor time in nanoseconds.
///
/// # Errors
///
/// When the connections or the file fail.
pub fn serve(side: &Side) -> io::Result<()> {
    let used = match side {
        Side::Receive(options) => receive::run(options)?,
        Side::Send(options) => send::run(options)?,
    };
    print_line(&used.as_nanos().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::path::Path;

    use super::*;
    use crate::bench::sample::Variant;

    #[test]
    fn every_variant_moves_every_byte() {
        let scratch = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
        let content: Vec<u8> = (0..3_000_001_u32)
            .map(|index| (index % 251) as u8)
            .collect();
        fs::write(&from, &content).unwrap();
        for variant in Variant::ALL {
            let options = |address, file: &Path| Options {
                variant,
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
            assert!(fs::read(&to).unwrap() == content, "{variant:?}");
            fs::remove_file(&to).unwrap();
        }
    }
}
