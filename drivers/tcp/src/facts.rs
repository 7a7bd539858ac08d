//! What the kernel knows about a connection (`TCP_INFO`, tcp(7)): where its time went.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use gridhaul_stack::{Detail, Watch};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::socket::{TCP_INFO_BYTES, tcp_info};

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// The largest packet that fits the path, as far as the kernel knows, in bytes.
    pub path_mtu: u32,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The shortest round-trip time of the last minutes: that of the path without queues.
    pub least_rtt: Duration,
    /// The limit of the send rate in bytes per second (`SO_MAX_PACING_RATE`), if one was set.
    pub rate_limit: Option<u64>,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// The time in which data was on its way. For the rest there was nothing to send.
    pub busy: Duration,
    /// The part of it in which the receiver's window was full.
    pub receiver_limited: Duration,
    /// The part of it in which the own send buffer was too small.
    pub buffer_limited: Duration,
}

/// The state of a connected TCP socket.
///
/// # Errors
///
/// When it is no TCP socket, or the kernel is older than Linux 4.10.
pub fn connection_facts(socket: BorrowedFd<'_>) -> Result<ConnectionFacts, Errno> {
    let (info, length) = tcp_info(socket)?;
    if length < TCP_INFO_BYTES {
        return Err(Errno::NOSYS);
    }
    Ok(parse(&info))
}

/// What the kernel has told of one connection, read at most every [`RecentFacts::AGE`]: a connection may carry a hundred thousand small
/// files in a second, and none of them is slow.
#[derive(Debug, Default)]
pub(crate) struct RecentFacts(Mutex<Option<(Instant, Recent)>>);

/// What the kernel has told of a connection a moment ago.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recent {
    facts: Option<ConnectionFacts>,
    /// The bytes of the buffers, as the kernel counts them: twice the requested size. 0 if it does not tell.
    pub(crate) send_buffer: usize,
    pub(crate) receive_buffer: usize,
}

impl RecentFacts {
    const AGE: Duration = Duration::from_millis(10);

    pub(crate) fn of(&self, socket: BorrowedFd<'_>) -> Recent {
        // A panic cannot leave half a value.
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *recent {
            Some((at, recent)) if now.duration_since(at) < Self::AGE => recent,
            _ => recent.insert((now, Recent::read(socket))).1,
        }
    }
}

impl Recent {
    fn read(socket: BorrowedFd<'_>) -> Self {
        Self {
            facts: connection_facts(socket).ok(),
            send_buffer: sockopt::socket_send_buffer_size(socket).unwrap_or(0),
            receive_buffer: sockopt::socket_recv_buffer_size(socket).unwrap_or(0),
        }
    }

    /// The details of the connection for the log.
    pub(crate) fn details(&self) -> Vec<Detail> {
        self.facts.map_or_else(Vec::new, details)
    }
}

fn details(facts: ConnectionFacts) -> Vec<Detail> {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let mut details = vec![
        Detail::setting("rtt-us", micros(facts.rtt)),
        Detail::setting("least-rtt-us", micros(facts.least_rtt)),
        Detail::count("retransmits", facts.retransmits.into()),
        Detail::count("busy-us", micros(facts.busy)),
        Detail::count("receiver-limited-us", micros(facts.receiver_limited)),
        Detail::count("buffer-limited-us", micros(facts.buffer_limited)),
    ];
    details.extend(facts.rate_limit.map(|rate| Detail::setting("rate", rate)));
    details
}

/// A connection that another thread uses. The kernel has its counters.
#[derive(Debug)]
pub(crate) struct Watched(Weak<OwnedFd>);

impl Watched {
    pub(crate) fn new(socket: &Arc<OwnedFd>) -> Self {
        Self(Arc::downgrade(socket))
    }
}

impl Watch for Watched {
    fn details(&self) -> Vec<Detail> {
        let socket = self.0.upgrade();
        let facts = socket.and_then(|socket| connection_facts(socket.as_fd()).ok());
        facts.map_or_else(Vec::new, details)
    }
}

/// The fields of `struct tcp_info` in linux/tcp.h, which only grows at its end.
fn parse(info: &[u8; TCP_INFO_BYTES]) -> ConnectionFacts {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|index| info[at + index]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| info[at + index]));
    ConnectionFacts {
        path_mtu: word(60),
        rtt: Duration::from_micros(word(68).into()),
        // All ones while the kernel has not measured it.
        least_rtt: Duration::from_micros(word(148).min(word(68)).into()),
        rate_limit: Some(long(112)).filter(|rate| *rate != u64::MAX),
        retransmits: word(100),
        busy: Duration::from_micros(long(168)),
        receiver_limited: Duration::from_micros(long(176)),
        buffer_limited: Duration::from_micros(long(184)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::socket::set_max_pacing_rate;

    #[test]
    fn a_receiver_that_does_not_read_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let mut sender = TcpStream::connect(address).expect("connected");
        let (mut receiver, _) = listener.accept().expect("accepted");
        let before = connection_facts(sender.as_fd()).expect("facts");
        assert!(before.path_mtu >= 1280, "{before:?}");
        assert_eq!(before.retransmits, 0);
        let content = vec![1; 64 << 20];
        let sending = std::thread::spawn(move || {
            sender.write_all(&content).expect("sent");
            connection_facts(sender.as_fd()).expect("facts")
        });
        // The window fills while nothing is read.
        std::thread::sleep(Duration::from_millis(300));
        let mut all = vec![0; 64 << 20];
        receiver.read_exact(&mut all).expect("received");
        let after = sending.join().expect("no panic");
        assert!(after.busy >= Duration::from_millis(200), "{after:?}");
        let limited = after.receiver_limited + after.buffer_limited;
        assert!(limited >= Duration::from_millis(100), "{after:?}");
        assert!(limited <= after.busy, "{after:?}");
        assert!(after.least_rtt <= after.rtt, "{after:?}");
        assert_eq!(after.rate_limit, None);
    }

    #[test]
    fn a_connection_is_watched_until_it_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let sender = TcpStream::connect(address).expect("connected");
        let (mut receiver, _) = listener.accept().expect("accepted");
        set_max_pacing_rate(sender.as_fd(), 1_000_000).expect("set");
        let socket = Arc::new(OwnedFd::from(sender));
        let watched = Watched::new(&socket);
        let named = |name| watched.details().into_iter().find(|one| one.name == name);
        assert_eq!(named("rate"), Some(Detail::setting("rate", 1_000_000)));
        assert!(named("busy-us").is_some());
        drop(socket);
        assert!(watched.details().is_empty());
        // Watching has not kept the connection open.
        assert_eq!(receiver.read(&mut [0; 1]).expect("the end"), 0);
    }
}
