//! Which peer may measure: the first one that proves that it knows the word.
//!
//! Any host can connect meanwhile. All connections are served at the same time, so that silent ones keep no peer waiting; they have little time
//! and few places.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use gridhaul_shares::Network;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::lines::Lines;
use super::messages::HELLO;
use super::word::{Nonces, Role, Word, nonce};

/// How long a connection may take to prove that it knows the word.
const PROOF: Duration = Duration::from_secs(5);

/// Connections that may be about to prove it.
const PLACES: usize = 32;

/// Who came.
#[derive(Debug)]
pub(super) struct Came {
    /// The peer that knows the word; `None` at the deadline.
    pub(super) peer: Option<(Lines, SocketAddr)>,
    /// Connections that have not proved it.
    pub(super) strangers: usize,
}

/// Waits for the peer until the deadline.
///
/// # Errors
///
/// When the listener fails.
pub(super) fn admit(listener: &TcpListener, word: &Word, deadline: Instant) -> io::Result<Came> {
    listener.set_nonblocking(true)?;
    let mut waiting: Vec<Stranger> = Vec::new();
    let mut gone = 0;
    loop {
        let now = Instant::now();
        let before = waiting.len();
        waiting.retain(|one| one.end > now);
        gone += before - waiting.len();
        if now >= deadline {
            let strangers = gone + waiting.len();
            return Ok(Came {
                peer: None,
                strangers,
            });
        }
        let (has_new, ready) = wait(listener, &waiting, deadline)?;
        // From the end, so that the others keep their places.
        for place in ready.into_iter().rev() {
            match waiting[place].advance(word) {
                Ok(false) => {}
                Ok(true) => {
                    let Stranger { lines, peer, .. } = waiting.remove(place);
                    lines.stream().set_nonblocking(false)?;
                    return Ok(Came {
                        peer: Some((lines, peer)),
                        strangers: gone + waiting.len(),
                    });
                }
                Err(_) => {
                    waiting.remove(place);
                    gone += 1;
                }
            }
        }
        let Some((stream, peer)) = has_new.then(|| accept(listener)).transpose()?.flatten() else {
            continue;
        };
        if waiting.len() >= PLACES {
            let networks: Vec<_> = waiting.iter().map(|one| one.network()).collect();
            waiting.remove(leaves(&networks));
            gone += 1;
        }
        match Stranger::new(stream, peer, now + PROOF) {
            Ok(stranger) => waiting.push(stranger),
            Err(_) => gone += 1,
        }
    }
}

/// Waits for a connection, and for bytes on those that there are, until one of them has no time left. Returns the places of the latter.
fn wait(
    listener: &TcpListener,
    waiting: &[Stranger],
    deadline: Instant,
) -> io::Result<(bool, Vec<usize>)> {
    let ends = waiting.iter().map(|one| one.end);
    let until = ends.min().map_or(deadline, |end| end.min(deadline));
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    let streams = waiting.iter();
    let streams = streams.map(|one| PollFd::new(one.lines.stream(), PollFlags::IN));
    let listener = [PollFd::new(listener, PollFlags::IN)];
    let mut polled: Vec<_> = listener.into_iter().chain(streams).collect();
    match poll(&mut polled, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut is_ready = polled.iter().map(|one| !one.revents().is_empty());
    let has_new = is_ready.next().unwrap_or(false);
    let ready = is_ready
        .enumerate()
        .filter_map(|(place, is_ready)| is_ready.then_some(place));
    Ok((has_new, ready.collect()))
}

/// The next connection, if it has not gone meanwhile (accept(2)).
fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The place that a new connection gets, of connections from these networks, the oldest first: that of the oldest one of the network with
/// most places. So a host that makes many connections ends its own ones, and not that of the peer.
fn leaves(networks: &[Network]) -> usize {
    let count = |network| networks.iter().filter(|other| *other == network).count();
    let most = networks.iter().map(count).max();
    let of_most = |network| Some(count(network)) == most;
    networks.iter().position(of_most).unwrap_or(0)
}

/// A connection that has not proved that it knows the word.
#[derive(Debug)]
struct Stranger {
    lines: Lines,
    peer: SocketAddr,
    /// When its time is over.
    end: Instant,
    listener: String,
    /// The number of the other end.
    asker: Option<String>,
}

impl Stranger {
    /// Greets a new connection.
    fn new(stream: TcpStream, peer: SocketAddr, end: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (mut lines, listener) = (Lines::new(stream), nonce());
        lines.send(&format!("{HELLO} {listener}"), PROOF)?;
        Ok(Self {
            lines,
            peer,
            end,
            listener,
            asker: None,
        })
    }

    fn network(&self) -> Network {
        Network::of(self.peer.ip())
    }

    /// Acts on what has arrived. Whether it has proved that it knows the word, and was welcomed.
    fn advance(&mut self, word: &Word) -> io::Result<bool> {
        self.lines.read_more()?;
        while let Some(line) = self.lines.whole()? {
            let Some(asker) = self.asker.take() else {
                let asker = line.strip_prefix(HELLO);
                let asker = asker.and_then(|rest| rest.strip_prefix(' '));
                self.asker = Some(asker.ok_or(io::ErrorKind::InvalidData)?.to_owned());
                continue;
            };
            let listener = self.listener.clone();
            let nonces = Nonces { listener, asker };
            if !word.is_proof(Role::Asks, &nonces, &line) {
                self.lines.send("error the word is another one", PROOF)?;
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let ours = word.proof(Role::Listens, &nonces);
            self.lines.send(&format!("welcome {ours}"), PROOF)?;
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr};
    use std::thread;

    use super::super::asking::introduce;
    use super::*;

    const LATE: Duration = Duration::from_secs(60);

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(LATE)).expect("set");
        stream
    }

    /// Waits for the greeting.
    fn greeted(address: SocketAddr) -> TcpStream {
        let mut stream = connect(address);
        let mut greeting = vec![0; HELLO.len()];
        stream.read_exact(&mut greeting).expect("greeted");
        assert_eq!(greeting, HELLO.as_bytes());
        stream
    }

    /// Admits the peer while others do this.
    fn admitted(others: impl FnOnce(SocketAddr, &Word)) -> Came {
        let (listener, address) = listener();
        let word = Word::random();
        let typed = Word::parse(&word.to_string()).expect("a word");
        let admitting = thread::spawn(move || admit(&listener, &word, Instant::now() + LATE));
        others(address, &typed);
        let mut peer = Lines::new(connect(address));
        introduce(&mut peer, "host", &typed).expect("it knows the word");
        let came = admitting.join().expect("no panic").expect("admitted");
        let (_, admitted) = came.peer.as_ref().expect("admitted");
        let own = peer.stream().local_addr().expect("connected");
        assert_eq!(*admitted, own);
        came
    }

    #[test]
    fn silent_connections_keep_no_peer_waiting() {
        let began = Instant::now();
        let mut silent = Vec::new();
        let came = admitted(|address, _| {
            for _ in 0..4 {
                silent.push(connect(address));
            }
            // It does not end its line.
            let mut slow = greeted(address);
            slow.write_all(HELLO.as_bytes()).expect("sent");
            silent.push(slow);
        });
        // One after the other, they would have taken more than twice as much.
        assert!(began.elapsed() < 2 * PROOF, "{:?}", began.elapsed());
        assert_eq!(came.strangers, silent.len());
    }

    #[test]
    fn the_oldest_connections_leave_when_all_places_are_taken() {
        let mut silent = Vec::new();
        let came = admitted(|address, _| {
            let began = Instant::now();
            silent.extend((0..PLACES + 3).map(|_| greeted(address)));
            // The rest of the greeting, and the end.
            for stream in &mut silent[..3] {
                let mut rest = String::new();
                stream.read_to_string(&mut rest).expect("closed");
            }
            assert!(began.elapsed() < PROOF, "their time was not over");
        });
        assert_eq!(came.strangers, silent.len());
    }

    #[test]
    fn connections_that_do_not_know_the_word_are_sent_away() {
        let came = admitted(|address, typed| {
            let nonces = || Nonces {
                listener: nonce(),
                asker: nonce(),
            };
            let wrong = Word::random().proof(Role::Asks, &nonces());
            // A proof for another connection.
            let old = typed.proof(Role::Asks, &nonces());
            for hello in [
                "GET / HTTP/1.1\r\n\r\n".to_owned(),
                "\n\n".to_owned(),
                format!("{HELLO} 00\n{wrong}\n"),
                format!("{HELLO} 00\n{old}\n"),
                "x".repeat(100_000),
            ] {
                let mut stream = connect(address);
                // It may have closed the connection already.
                let _ = stream.write_all(hello.as_bytes());
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                let answer = String::from_utf8_lossy(&answer);
                assert!(!answer.contains("welcome"), "{answer}");
            }
        });
        assert_eq!(came.strangers, 5);
    }

    #[test]
    fn it_ends_at_the_deadline() {
        let (listener, address) = listener();
        let _silent = connect(address);
        let deadline = Instant::now() + Duration::from_millis(20);
        let came = admit(&listener, &Word::random(), deadline).expect("no error");
        assert!(came.peer.is_none());
        assert!(came.strangers <= 1 && Instant::now() >= deadline);
    }

    #[test]
    fn a_host_with_many_connections_ends_its_own_ones() {
        let of = |last: u8| Network::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        assert_eq!(leaves(&[of(1), of(2), of(3)]), 0);
        assert_eq!(leaves(&[of(1), of(2), of(3), of(2)]), 1);
        assert_eq!(leaves(&[of(1), of(2), of(2), of(1), of(1)]), 0);
    }
}
