//! Copies of a file by clients that restart them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;

use super::world::{BYTES, World};
use crate::support::raw::{
    DataListener, Dialogue, GsiControl, Identity, Reply, comma_form, connect_data, end_blocks,
    read_block, write_block,
};
use crate::support::{Client, Failure, UserKind};

/// How long a reply may take: a node that does not answer is found to be lost after 15 seconds.
const REPLY: Duration = Duration::from_secs(60);

/// How long a copy may take, with all restarts.
const LIMIT: Duration = Duration::from_secs(150);

/// Data channels to each stripe.
const CHANNELS: usize = 2;

/// The bytes of a block that a client sends.
const BLOCK: u64 = 64 * 1024;

/// Between two blocks of a channel.
const PACE: Duration = Duration::from_millis(64);

/// Listeners of a client that fetches.
const STRIPES: usize = 2;

/// What a client copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Put,
    Get,
    ThirdParty,
}

impl Operation {
    pub(super) const ALL: [Self; 3] = [Self::Put, Self::Get, Self::ThirdParty];

    /// About the time that it takes, with the login, in milliseconds.
    pub(super) fn millis(self) -> u64 {
        match self {
            Self::Put => 3000,
            Self::Get => 4200,
            Self::ThirdParty => 1600,
        }
    }
}

/// A copy that a client calls complete, and the errors before.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) errors: Vec<String>,
}

/// Sends a file in MODE E to all stripes, and restarts with the markers.
pub(super) fn put(
    server: SocketAddr,
    identity: &Identity,
    source: &Path,
    target: &str,
) -> Result<Copied, Failure> {
    let source = File::open(source)?;
    let mut stored = RangeSet::new();
    with_restarts(server, identity, |control| {
        put_once(control, &source, target, &mut stored)
    })
}

/// Fetches a file in MODE E from several nodes, and restarts with what has arrived.
pub(super) fn get(
    server: SocketAddr,
    identity: &Identity,
    source: &str,
    target: &Path,
) -> Result<Copied, Failure> {
    let target = File::create(target)?;
    let arrived = Mutex::new(RangeSet::new());
    with_restarts(server, identity, |control| {
        get_once(control, source, &target, &arrived)
    })
}

/// globus-url-copy, which copies a file from the server to itself, with its own restarts.
pub(super) struct ThirdParty {
    arguments: Vec<String>,
    environment: Vec<(OsString, OsString)>,
}

impl ThirdParty {
    pub(super) fn new(world: &World, source: &str, target: &str) -> Self {
        let words = "-stripe -p 4 -rst -rst-retries 100 -rst-interval 1".split(' ');
        let urls = [source, target].map(|name| world.server.url(name));
        Self {
            arguments: words.map(ToOwned::to_owned).chain(urls).collect(),
            environment: world.pki.environment(UserKind::Plain),
        }
    }

    /// It gives up when a control channel cannot be made, as while the server is not there, and is called again.
    pub(super) fn run(self) -> Result<Copied, Failure> {
        const PAUSE: Duration = Duration::from_millis(500);
        let deadline = Instant::now() + LIMIT;
        let mut copied = Copied::default();
        loop {
            let client = Client::new("globus-url-copy").args(&self.arguments);
            let client = client.envs(self.environment.iter().cloned());
            let finished = client.time_limit(LIMIT).run()?;
            if finished.status.success() {
                return Ok(copied);
            }
            copied.errors.push(finished.output());
            if Instant::now() > deadline {
                let errors = copied.errors;
                return Err(Failure::wrong(format!("no restart succeeds: {errors:#?}")));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Tries until the copy is complete, in the same session as long as that has a control channel. An error reply has the kind
/// [`io::ErrorKind::Other`]; a wrong file [`io::ErrorKind::InvalidData`].
fn with_restarts(
    server: SocketAddr,
    identity: &Identity,
    mut attempt: impl FnMut(&mut GsiControl) -> io::Result<()>,
) -> Result<Copied, Failure> {
    const PAUSE: Duration = Duration::from_millis(200);
    let deadline = Instant::now() + LIMIT;
    let mut copied = Copied::default();
    let mut session = None;
    loop {
        let begun = session.take().map_or_else(|| begin(server, identity), Ok);
        let outcome = begun.and_then(|mut control| {
            let tried = attempt(&mut control);
            if !matches!(&tried, Err(error) if error.kind() != io::ErrorKind::Other) {
                session = Some(control);
            }
            tried
        });
        match outcome {
            Ok(()) => {
                let quit = session.map(|mut control| control.command("QUIT"));
                drop(quit);
                return Ok(copied);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Failure::wrong(error.to_string()));
            }
            Err(error) => copied.errors.push(error.to_string()),
        }
        if Instant::now() > deadline {
            let errors = copied.errors;
            return Err(Failure::wrong(format!("no restart succeeds: {errors:#?}")));
        }
        thread::sleep(PAUSE);
    }
}

fn begin(server: SocketAddr, identity: &Identity) -> io::Result<GsiControl> {
    let mut control = GsiControl::logged_in(server, identity)?;
    control.control().set_timeout(REPLY);
    for line in ["DCAU N", "MODE E"] {
        control.must(line, 200)?;
    }
    // A marker every second.
    control.must("TREV RESTART 1", 200)?;
    let parallelism = format!("OPTS RETR Parallelism={CHANNELS},{CHANNELS},{CHANNELS};");
    control.must(&parallelism, 200)?;
    Ok(control)
}

/// The line for a restart with these ranges.
fn restart(control: &mut GsiControl, have: &RangeSet) -> io::Result<()> {
    if have.is_empty() {
        return Ok(());
    }
    let ranges = have.iter();
    let ranges: Vec<_> = ranges
        .map(|range| format!("{}-{}", range.start, range.end))
        .collect();
    control
        .must(&format!("REST {}", ranges.join(",")), 350)
        .map(drop)
}

fn put_once(
    control: &mut GsiControl,
    source: &File,
    target: &str,
    stored: &mut RangeSet,
) -> io::Result<()> {
    let addresses = control.striped_passive()?;
    let mut channels = Vec::new();
    for &address in &addresses {
        for end in end_blocks(CHANNELS) {
            // The node may be gone; the reply to STOR tells the error.
            channels.push((connect_data(address), end));
        }
    }
    control.must(&format!("ALLO {BYTES}"), 200)?;
    restart(control, stored)?;
    control.send_line(&format!("STOR {target}"))?;
    let blocks = missing_blocks(stored);
    let (over, count) = (AtomicBool::new(false), channels.len());
    let mut replies = Vec::new();
    let last = thread::scope(|scope| {
        let sockets: Vec<_> = channels
            .iter()
            .filter_map(|(stream, _)| stream.as_ref().ok()?.try_clone().ok())
            .collect();
        for (index, (stream, end)) in channels.into_iter().enumerate() {
            let mine = blocks.iter().skip(index).step_by(count);
            let over = &over;
            scope.spawn(move || {
                let mut stream = stream?;
                for &(offset, length) in mine {
                    let mut payload = vec![0; length];
                    source.read_exact_at(&mut payload, offset)?;
                    write_block(&mut stream, offset, &payload)?;
                    thread::sleep(PACE);
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                }
                stream.write_all(&end.bytes())
            });
        }
        let last = final_reply(control, &mut replies);
        over.store(true, Ordering::Release);
        close(&sockets);
        last
    });
    for (start, end) in markers(replies)? {
        stored.insert(start..end);
    }
    succeeded(last?)
}

fn get_once(
    control: &mut GsiControl,
    source: &str,
    target: &File,
    arrived: &Mutex<RangeSet>,
) -> io::Result<()> {
    let listeners = (0..STRIPES).map(|_| DataListener::open(Ipv4Addr::LOCALHOST));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    let addresses = listeners.iter().map(|one| comma_form(one.address()));
    let addresses: Vec<_> = addresses.collect();
    control.must(&format!("SPOR {}", addresses.join(" ")), 200)?;
    let have = lock(arrived).clone();
    restart(control, &have)?;
    control.send_line(&format!("RETR {source}"))?;
    let (over, sockets) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let last = thread::scope(|scope| {
        for listener in &listeners {
            let (over, sockets) = (&over, &sockets);
            scope.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    let accepted = listener.accept_within(Duration::from_millis(20));
                    if let Some(mut stream) = accepted? {
                        stream.set_read_timeout(Some(REPLY))?;
                        lock(sockets).push(stream.try_clone()?);
                        scope.spawn(move || read(&mut stream, target, arrived));
                    }
                }
                Ok::<_, io::Error>(())
            });
        }
        let last = final_reply(control, &mut Vec::new());
        over.store(true, Ordering::Release);
        // After a success what is under way still has to arrive.
        if !matches!(&last, Ok(reply) if reply.is_success()) {
            close(&lock(&sockets));
        }
        last
    });
    succeeded(last?)?;
    let covered = lock(arrived).covered();
    if covered == BYTES {
        return Ok(());
    }
    let reason = format!("a get is called complete with {covered} of {BYTES} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidData, reason))
}

/// Writes the blocks of a channel to their places.
fn read(stream: &mut TcpStream, target: &File, arrived: &Mutex<RangeSet>) -> io::Result<()> {
    while let Some(incoming) = read_block(stream)? {
        let (start, length) = (incoming.block.offset, incoming.block.count);
        if length > 0 {
            target.write_all_at(&incoming.payload, start)?;
            lock(arrived).insert(start..start + length);
        }
        if incoming.block.ends_data() {
            break;
        }
    }
    Ok(())
}

/// The offsets and lengths of the blocks that are not stored.
fn missing_blocks(stored: &RangeSet) -> Vec<(u64, usize)> {
    let mut blocks = Vec::new();
    let mut from = 0;
    let ends = stored.iter().map(|range| (range.start, range.end));
    for (until, next) in ends.chain([(BYTES, BYTES)]) {
        for start in (from..until).step_by(usize::try_from(BLOCK).unwrap_or(usize::MAX)) {
            let length = BLOCK.min(until - start);
            blocks.push((start, usize::try_from(length).unwrap_or_default()));
        }
        from = next;
    }
    blocks
}

/// Reads replies up to the final one; the ones before are added to `replies` also if an error follows.
fn final_reply(control: &mut GsiControl, replies: &mut Vec<Reply>) -> io::Result<Reply> {
    loop {
        let reply = control.reply()?;
        if !reply.is_preliminary() {
            return Ok(reply);
        }
        replies.push(reply);
    }
}

fn markers(preliminary: Vec<Reply>) -> io::Result<Vec<(u64, u64)>> {
    let Some(last) = preliminary.last().cloned() else {
        return Ok(Vec::new());
    };
    Dialogue { preliminary, last }.range_markers()
}

fn succeeded(last: Reply) -> io::Result<()> {
    if last.is_success() {
        return Ok(());
    }
    Err(io::Error::other(last.text()))
}

fn close(sockets: &[TcpStream]) {
    for socket in sockets {
        // It may be closed already.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
