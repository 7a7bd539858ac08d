//! The actions of the crowd.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::site::{CROWD, DIRECTORY, LARGE};
use crate::support::raw::{Control, Exchange, Identity, connect_from};
use crate::support::{Pki, Server, UserKind};

/// Threads that hold the crowd's connections: enough that a thread that waits for a reply does not delay the others.
const THREADS: usize = 24;

/// The time limit for opening all connections. A server that accepts fewer is measured with those.
const GATHERING: Duration = Duration::from_secs(60);

/// The timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which lost connections are replaced.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The action of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Sends nothing.
    Silent,
    /// Lists a large directory, and does not read the data connection.
    UnreadListings,
    /// Fetches a large file, and does not read the data connection.
    UnreadTransfers,
    /// Sends wrong passwords until the server closes the connection, and connects again.
    WrongPasswords,
    /// Starts a GSI handshake and does not continue it.
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

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::UnreadListings => "unread-listings",
            Self::UnreadTransfers => "unread-transfers",
            Self::WrongPasswords => "wrong-passwords",
            Self::HalfHandshakes => "half-handshakes",
        }
    }

    /// The identity of clients, if the attack needs a server for users with certificates.
    pub(super) fn identity(self, pki: &Pki) -> io::Result<Option<Identity>> {
        match self {
            Self::HalfHandshakes => Identity::user(pki, UserKind::Spaces).map(Some),
            _ => Ok(None),
        }
    }
}

/// The connections of a crowd, and the threads that hold them.
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
    /// Threads that have tried each of their connections once.
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
    /// Returns after one attempt for each connection, or at the time limit.
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
            thread::sleep(RETRY_INTERVAL);
        }
        Self { shared, threads }
    }

    /// The number of open connections.
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
    /// Holds this number of connections from an address, and replaces closed ones.
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
                    // A refused or timed-out connection is tried again in the next round.
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
            thread::sleep(RETRY_INTERVAL);
        }
    }

    fn connect(&self, from: Ipv4Addr) -> io::Result<Hostile> {
        let mut control = Control::connect_from(from, self.server)?;
        control.set_timeout(TIMEOUT);
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
    /// Whether the server has closed the control connection. Replies are discarded.
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
