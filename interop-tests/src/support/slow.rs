//! Clients that fetch files slowly, so that their transfers can be watched.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::raw::{Control, Reply};

/// The bytes of one read.
const PIECE: usize = 64 * 1024;

/// Running transfers in stream mode, each with a session of its own. Dropping them closes the connections.
#[derive(Debug)]
pub struct SlowGets {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<io::Result<Reply>>>,
}

impl SlowGets {
    /// Begins to fetch these files as `anonymous`; every client reads 64 kB in each `pause`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn start(server: SocketAddr, paths: &[&str], pause: Duration) -> io::Result<Self> {
        let mut gets = Self {
            stop: Arc::default(),
            clients: Vec::new(),
        };
        for path in paths {
            let mut control = Control::anonymous(server)?;
            let address = control.passive()?;
            let channel = control.connect_data(address)?;
            control.must(&format!("RETR {path}"), 150)?;
            let stop = Arc::clone(&gets.stop);
            let client = move || {
                read(channel, pause, &stop)?;
                control.reply()
            };
            gets.clients.push(thread::spawn(client));
        }
        Ok(gets)
    }

    /// Waits until the server has ended the transfer with this index, and returns its reply.
    ///
    /// # Errors
    ///
    /// When the server closes the connection instead.
    ///
    /// # Panics
    ///
    /// When the client has panicked.
    pub fn end(&mut self, index: usize) -> io::Result<Reply> {
        let client = self.clients.remove(index);
        client.join().expect("the client ends")
    }
}

impl Drop for SlowGets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            // The reply to an aborted transfer is of no interest.
            let _ = client.join();
        }
    }
}

/// Reads until the server ends the transfer.
fn read(mut channel: TcpStream, pause: Duration, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match channel.read(&mut buffer) {
            // A transfer that the server cancels ends with a reset.
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) if stop.load(Ordering::Relaxed) => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(_) => thread::sleep(pause),
        }
    }
}
