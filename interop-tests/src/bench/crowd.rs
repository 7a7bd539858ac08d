//! A crowd: many sessions that transfer at the same time, and the fairness among them.
//!
//! Each session is a thread of a light client, because a thousand client programs would overload the machine. All
//! sessions log in, start together and transfer one file after the other until the time is up. The share of a
//! session is the number of bytes that it has moved by then, including those of an unfinished file.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::raw::{Block, Control, end_blocks, stream_transfer};
use crate::support::usage::{ProcessTree, Usage, raise_descriptor_limit};
use crate::support::{LaunchError, Server, chown_to_nobody, content};

/// The size of a session's buffer in bytes, small enough for a thousand sessions.
const PIECE: usize = 64 * 1024;

/// The timeout of a reply: with many sessions a transfer may wait in the server's queue.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The stack of a client thread, in bytes.
const STACK: usize = 256 * 1024;

/// The interval at which the server's resources are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// The transfers of a crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// `RETR` in stream mode.
    GetStream,
    /// `STOR` in stream mode.
    PutStream,
    /// `RETR` in MODE E, one channel, which is opened for each file.
    GetBlocks,
    /// `STOR` in MODE E, one channel, which is opened for each file.
    PutBlocks,
}

impl TransferKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::GetStream,
        Self::PutStream,
        Self::GetBlocks,
        Self::PutBlocks,
    ];

    fn is_put(self) -> bool {
        matches!(self, Self::PutStream | Self::PutBlocks)
    }
}

/// The size and the duration of a crowd.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Sessions, each on a connection of its own.
    pub sessions: usize,
    /// Bytes of a file. With puts each session stores its own.
    pub file: usize,
    /// The duration of the transfers.
    pub duration: Duration,
}

/// The result of a crowd.
#[derive(Debug)]
pub struct CrowdResult {
    /// The bytes that each session moved.
    pub shares: Vec<u64>,
    /// The time of the transfers.
    pub elapsed: Duration,
    /// The number of complete files.
    pub files: u64,
    /// The maximum of the server's resource usage.
    pub peak: Usage,
    /// The errors of sessions.
    pub errors: Vec<String>,
}

impl CrowdResult {
    /// The share of the slowest session divided by that of the fastest: 1 where all are equal.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn fairness(&self) -> f64 {
        let slowest = self.shares.iter().min().copied().unwrap_or(0);
        let fastest = self.shares.iter().max().copied().unwrap_or(0);
        slowest as f64 / fastest.max(1) as f64
    }

    /// The bytes of all sessions.
    pub fn bytes(&self) -> u64 {
        self.shares.iter().sum()
    }
}

/// The state that the sessions of a crowd share.
struct Shared<'a> {
    server: &'a Server,
    kind: TransferKind,
    content: &'a [u8],
    /// Held until all have logged in.
    gate: RwLock<()>,
    stop: AtomicBool,
    shares: Vec<AtomicU64>,
    files: AtomicU64,
    errors: Mutex<Vec<String>>,
}

/// Runs a crowd against a server with a writable root.
///
/// # Errors
///
/// When its file cannot be made, a thread cannot be started, or a stored file differs from the sent
/// one. Errors of sessions are in the result.
pub fn concurrent(
    crowd: Crowd,
    server: &Server,
    kind: TransferKind,
) -> Result<CrowdResult, LaunchError> {
    raise_descriptor_limit();
    let content = content::sample(crowd.file);
    let get = server.root().join("crowd");
    fs::write(&get, &content)?;
    chown_to_nobody(&get)?;
    let shared = Shared {
        server,
        kind,
        content: &content,
        gate: RwLock::default(),
        stop: AtomicBool::new(false),
        shares: (0..crowd.sessions).map(|_| AtomicU64::new(0)).collect(),
        files: AtomicU64::new(0),
        errors: Mutex::default(),
    };
    let mut result = thread::scope(|scope| {
        let result = shared.run_sessions(crowd, |number, ready| {
            let shared = &shared;
            thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || shared.session(number, ready))
                .map(drop)
        });
        shared.stop.store(true, Ordering::Relaxed);
        result
    })?;
    // Sessions have finished the files that they were transferring.
    result.files = shared.files.into_inner();
    result.errors = shared
        .errors
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if kind.is_put() && result.errors.is_empty() {
        check_stored(server, &content, crowd.sessions)?;
    }
    Ok(result)
}

impl Shared<'_> {
    /// Starts the sessions, opens the gate for all of them, and reads their shares when the time is up.
    fn run_sessions(
        &self,
        crowd: Crowd,
        start: impl Fn(usize, Sender<()>) -> io::Result<()>,
    ) -> io::Result<CrowdResult> {
        let closed = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let (ready, all_ready) = mpsc::channel();
        (0..crowd.sessions).try_for_each(|number| start(number, ready.clone()))?;
        drop(ready);
        // Ends when every session has logged in or failed.
        all_ready.iter().for_each(drop);
        let tree = ProcessTree::of(self.server.pid());
        drop(closed);
        let begin = Instant::now();
        let mut peak = tree.usage();
        while begin.elapsed() < crowd.duration {
            thread::sleep(SAMPLE_INTERVAL.min(crowd.duration.saturating_sub(begin.elapsed())));
            peak = peak.most(tree.usage());
        }
        let shares = self
            .shares
            .iter()
            .map(|share| share.load(Ordering::Relaxed));
        Ok(CrowdResult {
            shares: shares.collect(),
            elapsed: begin.elapsed(),
            files: 0,
            peak,
            errors: Vec::new(),
        })
    }

    fn session(&self, number: usize, ready: Sender<()>) {
        let control = self.log_in(number);
        drop(ready);
        drop(self.gate.read().unwrap_or_else(PoisonError::into_inner));
        let transferred = control.and_then(|mut control| {
            loop {
                self.transfer(&mut control, number)?;
                self.files.fetch_add(1, Ordering::Relaxed);
                if self.stop.load(Ordering::Relaxed) {
                    return control.must("QUIT", 221);
                }
            }
        });
        if let Err(error) = transferred {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.push(format!("session {number}: {error}"));
        }
    }

    /// Logs in from a separate address, as if from another machine, so that ports do not run out.
    fn log_in(&self, number: usize) -> io::Result<Control> {
        let [.., high, low] = number.to_be_bytes();
        let source = Ipv4Addr::new(127, 2, high, low);
        let mut control = Control::anonymous_from(source, self.server.address())?;
        control.set_timeout(TIMEOUT);
        if matches!(self.kind, TransferKind::GetBlocks | TransferKind::PutBlocks) {
            control.must("MODE E", 200)?;
        }
        Ok(control)
    }

    fn transfer(&self, control: &mut Control, number: usize) -> io::Result<()> {
        let share = &self.shares[number];
        let get = format!("RETR {}", self.server.path("crowd"));
        let put = format!("STOR {}", self.server.path(&stored(number)));
        match self.kind {
            TransferKind::GetStream => stream_transfer(control, &get, |mut channel| {
                let received = self.compare(&mut channel, 0, self.content.len(), share)?;
                whole(received == self.content.len() && channel.read(&mut [0])? == 0)
            }),
            TransferKind::PutStream => stream_transfer(control, &put, |mut channel| {
                send(&mut channel, self.content, share)
            }),
            TransferKind::PutBlocks => stream_transfer(control, &put, |mut channel| {
                channel.write_all(&Block::data(self.content.len() as u64, 0).bytes())?;
                send(&mut channel, self.content, share)?;
                channel.write_all(&end_blocks(1)[0].bytes())
            }),
            TransferKind::GetBlocks => {
                let listener = control.listen()?;
                control.send_line(&get)?;
                let mut channel = listener.accept()?;
                let received = self.receive_blocks(&mut channel, share);
                let dialogue = control.dialogue()?;
                if dialogue.last.is_success() {
                    return received;
                }
                return Err(io::Error::other(dialogue.to_string()));
            }
        }
        .map(drop)
    }

    /// Receives blocks, in any order, to the end of data.
    fn receive_blocks(&self, channel: &mut TcpStream, share: &AtomicU64) -> io::Result<()> {
        let mut received = 0;
        loop {
            let mut header = [0; 17];
            channel.read_exact(&mut header)?;
            let block = Block::parse(header);
            if block.count > 0 {
                let count = usize::try_from(block.count).map_err(io::Error::other)?;
                let offset = usize::try_from(block.offset).map_err(io::Error::other)?;
                if self.compare(channel, offset, count, share)? < count {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                received += count;
            }
            if block.ends_data() {
                return whole(received == self.content.len());
            }
        }
    }

    /// Reads up to `count` bytes and compares them with the file from `offset` on; returns the number of bytes.
    fn compare(
        &self,
        channel: &mut TcpStream,
        offset: usize,
        count: usize,
        share: &AtomicU64,
    ) -> io::Result<usize> {
        let expected = self
            .content
            .get(offset..)
            .and_then(|rest| rest.get(..count));
        let expected =
            expected.ok_or_else(|| io::Error::other("a block beyond the end of the file"))?;
        let mut piece = vec![0; PIECE.min(count)];
        let mut done = 0;
        while done < count {
            let wanted = PIECE.min(count - done);
            let received = channel.read(&mut piece[..wanted])?;
            if received == 0 {
                break;
            }
            if piece[..received] != expected[done..done + received] {
                return Err(io::Error::other("the received bytes differ from the file"));
            }
            done += received;
            share.fetch_add(received as u64, Ordering::Relaxed);
        }
        Ok(done)
    }
}

fn send(channel: &mut TcpStream, bytes: &[u8], share: &AtomicU64) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        channel.write_all(piece)?;
        share.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// An error unless the whole file arrived.
fn whole(is_whole: bool) -> io::Result<()> {
    let error = || io::Error::other("the received file has another length");
    is_whole.then_some(()).ok_or_else(error)
}

/// The name of the file that a session stores.
fn stored(number: usize) -> String {
    format!("crowd-{number}")
}

/// Compares the stored files with the sent one, and removes them.
fn check_stored(server: &Server, content: &[u8], sessions: usize) -> io::Result<()> {
    for number in 0..sessions {
        let path = server.root().join(stored(number));
        if fs::read(&path)? != content {
            return Err(io::Error::other(format!(
                "{} differs from the sent file",
                path.display()
            )));
        }
        fs::remove_file(path)?;
    }
    Ok(())
}
