//! What the crowd does.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::site::{CROWD, DIRECTORY, LARGE};
use crate::support::raw::{Control, Exchange, Identity, connect_from};
use crate::support::{Pki, Server, UserKind};

/// Threads that keep the crowd's connections: enough that one that waits for a reply does not hold up the others.
const THREADS: usize = 24;

/// How long the crowd may need to gather. A server that lets fewer in is measured with those.
const GATHERING: Duration = Duration::from_secs(60);

/// How long the crowd waits for a reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a lost connection is made again, at most: a crowd has no reason to wait longer.
const BEAT: Duration = Duration::from_millis(50);

/// What each connection of a crowd does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Nothing.
    Silent,
    /// It lists a large directory, and reads nothing.
    UnreadListings,
    /// It fetches a large file, and reads nothing.
    UnreadTransfers,
    /// It guesses passwords until it is sent away, and comes again.
    WrongPasswords,
    /// It begins a handshake and does not go on.
    HalfHandshakes,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Silent,
        Self::UnreadListings,
        Self::UnreadTransfers,
        Self::WrongPasswords,
        Self::HalfHandshakes,
    ];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::UnreadListings => "unread-listings",
            Self::UnreadTransfers => "unread-transfers",
            Self::WrongPasswords => "wrong-passwords",
            Self::HalfHandshakes => "half-handshakes",
        }
    }

    /// Who logs in to the server that is attacked, if that takes a certificate.
    pub(super) fn identity(self, pki: &Pki) -> io::Result<Option<Identity>> {
        match self {
            Self::HalfHandshakes => Identity::user(pki, UserKind::Spaces).map(Some),
            _ => Ok(None),
        }
    }
}

/// Connections of a crowd, and the threads that keep them.
pub(super) struct Crowd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    attack: Attack,
    identity: Option<Identity>,
    listed: String,
    fetched: String,
    held: AtomicUsize,
    /// Threads that have tried to make each of their connections once.
    gathered: AtomicUsize,
    stop: AtomicBool,
}

/// A connection of the crowd.
struct Hostile {
    control: HostileControl,
    _data: Option<TcpStream>,
}

enum HostileControl {
    Plain(Control),
    Half(Box<Exchange>),
}

impl Crowd {
    /// Returns when all connections have been tried once, or it takes too long.
    pub(super) fn gather(
        server: &Server,
        attack: Attack,
        identity: Option<Identity>,
        connections: usize,
    ) -> Self {
        let shared = Arc::new(Shared {
            server: server.address(),
            attack,
            identity,
            listed: server.path(DIRECTORY),
            fetched: server.path(LARGE.0),
            held: AtomicUsize::new(0),
            gathered: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let threads = THREADS.min(connections);
        let threads: Vec<JoinHandle<()>> = (0..threads)
            .map(|number| {
                let shared = Arc::clone(&shared);
                let own = connections / threads + usize::from(number < connections % threads);
                let from = CROWD[number % CROWD.len()];
                thread::spawn(move || shared.keep(from, own))
            })
            .collect();
        let deadline = Instant::now() + GATHERING;
        while shared.gathered.load(Ordering::Relaxed) < threads.len() && Instant::now() < deadline {
            thread::sleep(BEAT);
        }
        Self { shared, threads }
    }

    /// Connections that the server has accepted and not closed.
    pub(super) fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// Closes all connections.
    pub(super) fn disperse(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A thread that panicked has closed its connections.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Keeps so many connections from an address, and makes those again that are closed.
    fn keep(&self, from: Ipv4Addr, count: usize) {
        let mut all: Vec<Option<Hostile>> = (0..count).map(|_| None).collect();
        let mut is_first = true;
        while !self.stop.load(Ordering::Relaxed) {
            for place in &mut all {
                if place.as_mut().is_some_and(|hostile| hostile.is_closed()) {
                    *place = None;
                    self.held.fetch_sub(1, Ordering::Relaxed);
                }
                if place.is_none() {
                    // Refused, or nothing heard in time: again in the next round.
                    *place = self.connect(from).ok();
                    self.held
                        .fetch_add(usize::from(place.is_some()), Ordering::Relaxed);
                }
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
            }
            if is_first {
                self.gathered.fetch_add(1, Ordering::Relaxed);
                is_first = false;
            }
            thread::sleep(BEAT);
        }
    }

    fn connect(&self, from: Ipv4Addr) -> io::Result<Hostile> {
        let mut control = Control::connect_from(from, self.server)?;
        control.set_patience(PATIENCE);
        let mut data = None;
        if self.attack != Attack::Silent {
            let greeting = control.reply()?;
            if greeting.code != 220 {
                return Err(io::Error::other(greeting.text()));
            }
        }
        match self.attack {
            Attack::Silent => {}
            Attack::UnreadListings => {
                control.log_in()?;
                data = Some(connect_from(from, control.passive()?)?);
                control.send_line(&format!("MLSD {}", self.listed))?;
            }
            Attack::UnreadTransfers => {
                control.log_in()?;
                data = Some(connect_from(from, control.passive()?)?);
                control.send_line(&format!("RETR {}", self.fetched))?;
            }
            Attack::WrongPasswords => {
                for _ in 0..3 {
                    control.send(b"USER ann\r\nPASS wrong\r\n")?;
                }
            }
            Attack::HalfHandshakes => {
                let identity = self.identity.as_ref().ok_or(ErrorKind::NotFound)?;
                let mut exchange = Exchange::begin(control, identity)?;
                exchange.step()?;
                return Ok(Hostile {
                    control: HostileControl::Half(Box::new(exchange)),
                    _data: None,
                });
            }
        }
        Ok(Hostile {
            control: HostileControl::Plain(control),
            _data: data,
        })
    }
}

impl Hostile {
    /// Whether the server has closed the control connection. Replies are thrown away.
    fn is_closed(&mut self) -> bool {
        let mut socket = match &mut self.control {
            HostileControl::Plain(control) => control.socket(),
            HostileControl::Half(exchange) => exchange.control().socket(),
        };
        if socket.set_nonblocking(true).is_err() {
            return true;
        }
        let mut buffer = [0; 4096];
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }
}
