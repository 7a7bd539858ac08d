//! A crowd: many sessions that all transfer at the same time, and how evenly they are served.
//!
//! Each session is a thread of a light client, since a thousand programs do not fit on a machine beside the
//! server. All log in first, begin together and transfer one file after the other until the time is up; what
//! a session has moved by then, in whole files or not, is its share.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use super::soak::content;
use crate::support::raw::{Block, Control, end_blocks, stream_transfer};
use crate::support::usage::{ProcessTree, Usage, raise_descriptor_limit};
use crate::support::{LaunchError, Server, chown_to_nobody};

/// How much a session moves at a time, in bytes: a thousand of them have a piece each.
const PIECE: usize = 64 * 1024;

/// How long a session waits for a reply: the others go first in the server's queue.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client needs little room.
const STACK: usize = 256 * 1024;

/// How often the server's use of the machine is looked at.
const BEAT: Duration = Duration::from_millis(250);

/// What every session of a crowd does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `RETR` in stream mode.
    GetStream,
    /// `STOR` in stream mode.
    PutStream,
    /// `RETR` in MODE E, one channel, which is opened for each file.
    GetBlocks,
    /// `STOR` in MODE E, the same way.
    PutBlocks,
}

impl Shape {
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

/// How many, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Sessions, each on a connection of its own.
    pub sessions: usize,
    /// Bytes of a file. Puts make one for each session.
    pub file: usize,
    /// How long they transfer.
    pub duration: Duration,
}

/// How a crowd fared.
#[derive(Debug)]
pub struct Fared {
    /// The bytes that each session moved.
    pub shares: Vec<u64>,
    /// The time in which they did.
    pub elapsed: Duration,
    /// Whole files.
    pub files: u64,
    /// The most that the server used.
    pub peak: Usage,
    /// What went wrong in sessions.
    pub errors: Vec<String>,
}

impl Fared {
    /// The share of the slowest session over that of the fastest: 1 where all are equal.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn fairness(&self) -> f64 {
        let slowest = self.shares.iter().min().copied().unwrap_or(0);
        let fastest = self.shares.iter().max().copied().unwrap_or(0);
        slowest as f64 / fastest.max(1) as f64
    }

    /// Bytes that all moved together.
    pub fn bytes(&self) -> u64 {
        self.shares.iter().sum()
    }
}

/// What the sessions of a crowd share.
struct Shared<'a> {
    server: &'a Server,
    shape: Shape,
    content: &'a [u8],
    /// Held until all have logged in.
    gate: RwLock<()>,
    stop: AtomicBool,
    shares: Vec<AtomicU64>,
    files: AtomicU64,
    errors: Mutex<Vec<String>>,
}

/// Lets a crowd loose on a server whose root may be written to.
///
/// # Errors
///
/// When its file cannot be made, there is no thread for a session, or what was put is not what is in the
/// file. What goes wrong in a session is in the result.
pub fn concurrent(crowd: Crowd, server: &Server, shape: Shape) -> Result<Fared, LaunchError> {
    raise_descriptor_limit();
    let content = content(crowd.file);
    let get = server.root().join("crowd");
    fs::write(&get, &content)?;
    chown_to_nobody(&get)?;
    let shared = Shared {
        server,
        shape,
        content: &content,
        gate: RwLock::default(),
        stop: AtomicBool::new(false),
        shares: (0..crowd.sessions).map(|_| AtomicU64::new(0)).collect(),
        files: AtomicU64::new(0),
        errors: Mutex::default(),
    };
    let mut fared = thread::scope(|scope| {
        let fared = shared.let_loose(crowd, |number, ready| {
            let shared = &shared;
            thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || shared.session(number, ready))
                .map(drop)
        });
        shared.stop.store(true, Ordering::Relaxed);
        fared
    })?;
    // Those that were in the middle of a file have come to its end.
    fared.files = shared.files.into_inner();
    fared.errors = shared
        .errors
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if shape.is_put() && fared.errors.is_empty() {
        check_stored(server, &content, crowd.sessions)?;
    }
    Ok(fared)
}

impl Shared<'_> {
    /// Starts the sessions, lets them begin together, and looks at their shares when the time is up.
    fn let_loose(
        &self,
        crowd: Crowd,
        start: impl Fn(usize, Sender<()>) -> io::Result<()>,
    ) -> io::Result<Fared> {
        let closed = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let (ready, all_ready) = mpsc::channel();
        (0..crowd.sessions).try_for_each(|number| start(number, ready.clone()))?;
        drop(ready);
        // Ends when every session has said so, or has given up.
        all_ready.iter().for_each(drop);
        let tree = ProcessTree::of(self.server.pid());
        drop(closed);
        let begin = Instant::now();
        let mut peak = tree.usage();
        while begin.elapsed() < crowd.duration {
            thread::sleep(BEAT.min(crowd.duration.saturating_sub(begin.elapsed())));
            peak = peak.most(tree.usage());
        }
        let shares = self
            .shares
            .iter()
            .map(|share| share.load(Ordering::Relaxed));
        Ok(Fared {
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

    /// From an address of its own, as if from another machine, so that ports do not run out.
    fn log_in(&self, number: usize) -> io::Result<Control> {
        let [.., high, low] = number.to_be_bytes();
        let source = Ipv4Addr::new(127, 2, high, low);
        let mut control = Control::anonymous_from(source, self.server.address())?;
        control.set_patience(PATIENCE);
        if matches!(self.shape, Shape::GetBlocks | Shape::PutBlocks) {
            control.must("MODE E", 200)?;
        }
        Ok(control)
    }

    fn transfer(&self, control: &mut Control, number: usize) -> io::Result<()> {
        let share = &self.shares[number];
        let get = format!("RETR {}", self.server.path("crowd"));
        let put = format!("STOR {}", self.server.path(&stored(number)));
        match self.shape {
            Shape::GetStream => stream_transfer(control, &get, |mut channel| {
                let came = self.compare(&mut channel, 0, self.content.len(), share)?;
                whole(came == self.content.len() && channel.read(&mut [0])? == 0)
            }),
            Shape::PutStream => stream_transfer(control, &put, |mut channel| {
                send(&mut channel, self.content, share)
            }),
            Shape::PutBlocks => stream_transfer(control, &put, |mut channel| {
                channel.write_all(&Block::data(self.content.len() as u64, 0).bytes())?;
                send(&mut channel, self.content, share)?;
                channel.write_all(&end_blocks(1)[0].bytes())
            }),
            Shape::GetBlocks => {
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

    /// Receives blocks to the end of data; they may come in any order.
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

    /// Reads so many bytes that must be those of the file from `offset` on; returns how many came.
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
        let expected = expected.ok_or_else(|| io::Error::other("a block behind the end"))?;
        let mut piece = vec![0; PIECE.min(count)];
        let mut done = 0;
        while done < count {
            let wanted = PIECE.min(count - done);
            let came = channel.read(&mut piece[..wanted])?;
            if came == 0 {
                break;
            }
            if piece[..came] != expected[done..done + came] {
                return Err(io::Error::other("other bytes than those of the file"));
            }
            done += came;
            share.fetch_add(came as u64, Ordering::Relaxed);
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

/// Neither less than the file, nor more.
fn whole(is_whole: bool) -> io::Result<()> {
    let error = || io::Error::other("the file did not come as it is");
    is_whole.then_some(()).ok_or_else(error)
}

/// The file that a session puts.
fn stored(number: usize) -> String {
    format!("crowd-{number}")
}

/// Compares what was stored with what was sent, and removes it.
fn check_stored(server: &Server, content: &[u8], sessions: usize) -> io::Result<()> {
    for number in 0..sessions {
        let path = server.root().join(stored(number));
        if fs::read(&path)? != content {
            return Err(io::Error::other(format!(
                "{} is not what was sent",
                path.display()
            )));
        }
        fs::remove_file(path)?;
    }
    Ok(())
}
