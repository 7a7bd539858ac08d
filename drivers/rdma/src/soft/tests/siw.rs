//! The iWARP of the kernel, siw, at the other end.
//!
//! rping(1) drives it. In each round its client announces a buffer, which the server READs; then another one, to which
//! the server WRITEs the same bytes. After each the server says so by a SEND.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;

/// The end of the cable that is ours; the devices of both are siw.
const OURS: &str = "10.9.0.1";
const THEIRS: &str = "10.9.0.2";

/// Nothing else listens in a guest.
const PORT: u16 = 7174;

/// The largest buffer of rping.
const BUFFER_BYTES: usize = 65_535;
const ROUNDS: usize = 50;

/// Small segments, and segments as large as they get.
const SEGMENT_BYTES: [usize; 3] = [1400, 8000, 65_000];

#[test]
#[ignore = "needs siw, which a guest has: make test-rdma"]
fn the_kernel_reads_and_writes_our_memory() {
    for checksum in [false, true] {
        for segment_bytes in SEGMENT_BYTES {
            be_client(&offer(checksum, 2, segment_bytes));
        }
    }
}

#[test]
#[ignore = "needs siw, which a guest has: make test-rdma"]
fn we_read_and_write_the_memory_of_the_kernel() {
    for checksum in [false, true] {
        for segment_bytes in SEGMENT_BYTES {
            be_server(&offer(checksum, 2, segment_bytes));
        }
    }
}

/// In revision 1 a connecting end does not say how many READs it answers; rping accepts with the numbers of the request,
/// which are zero then, and its first READ cannot be posted. The programs of rdma_server(1) only exchange a message. The
/// other way round there is nothing to test: siw connects by revision 2, a constant in its siw_main.c, and takes no
/// answer in another.
#[test]
#[ignore = "needs siw, which a guest has: make test-rdma"]
fn the_kernel_speaks_revision_1() {
    for checksum in [false, true] {
        let mut server = start("rdma_server", &[]);
        let mut peer = peer(connect(), Side::Connector, &offer(checksum, 1, 8000));
        peer.post(0, Work::Send(Message::new(&[7; 16]).unwrap()));
        let answer = peer.next_message().expect("the server answers");
        assert_eq!(answer.as_bytes().len(), 16);
        assert_eq!(peer.next_message(), None);
        assert!(server.wait().unwrap().success());
    }
}

fn be_client(offer: &Offer) {
    let mut server = rping(&["-s", "-a", THEIRS]);
    let mut peer = peer(connect(), Side::Connector, offer);
    for round in 0..ROUNDS {
        // The server WRITEs a string: what ends with the first zero.
        let mut bytes = noise(round.to_le_bytes()[0], BUFFER_BYTES);
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes[BUFFER_BYTES - 1] = 0;
        peer.memory[READABLE].copy_in(0, &bytes);
        for kind in [READABLE, WRITABLE] {
            let at = peer.at(kind, 0);
            let message = [
                &at.address.to_be_bytes()[..],
                &at.key.to_be_bytes(),
                &u32::try_from(BUFFER_BYTES).unwrap().to_be_bytes(),
            ];
            peer.post(0, Work::Send(Message::new(&message.concat()).unwrap()));
            peer.next_message().expect("the server answers");
        }
        let written = peer.content(WRITABLE, Span::new(0, BUFFER_BYTES));
        assert!(written == bytes, "round {round} of {offer:?}");
    }
    drop(peer);
    // Its exit status says that the connection ended, whoever did it.
    server.wait().unwrap();
}

fn be_server(offer: &Offer) {
    let listener = TcpListener::bind((OURS, PORT)).unwrap();
    let rounds = ROUNDS.to_string();
    let mut client = rping(&["-c", "-a", OURS, "-C", &rounds, "-V"]);
    let (socket, _) = listener.accept().unwrap();
    let mut peer = peer(socket, Side::Acceptor, offer);
    let span = Span::new(0, BUFFER_BYTES);
    let region = peer.regions[LOCAL].id;
    let mut announced = 0;
    while let Some(message) = peer.next_message() {
        let remote = Remote {
            address: u64::from_be_bytes(message.as_bytes()[..8].try_into().unwrap()),
            key: u32::from_be_bytes(message.as_bytes()[8..12].try_into().unwrap()),
        };
        if announced % 2 == 0 {
            let from = remote;
            peer.post(1, Work::Read { region, span, from });
            peer.done(1);
        } else {
            let to = remote;
            let immediate = None;
            let write = Work::Write {
                region,
                span,
                to,
                immediate,
            };
            peer.post(2, write);
        }
        announced += 1;
        peer.post(3, Work::Send(Message::new(&[0; 16]).unwrap()));
    }
    assert_eq!(announced, 2 * ROUNDS);
    // It compares what it got with what it had.
    assert!(client.wait().unwrap().success(), "{offer:?}");
}

/// Connects as soon as rping listens, which it does not tell.
fn connect() -> TcpStream {
    let started = Instant::now();
    loop {
        match TcpStream::connect((THEIRS, PORT)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                assert!(started.elapsed() < Duration::from_secs(30), "{error}");
                thread::yield_now();
            }
            outcome => return outcome.unwrap(),
        }
    }
}

fn rping(arguments: &[&str]) -> Child {
    let bytes = BUFFER_BYTES.to_string();
    start("rping", &[arguments, &["-S", &bytes]].concat())
}

fn start(program: &str, arguments: &[&str]) -> Child {
    Command::new(program)
        .args(["-p", &PORT.to_string()])
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn peer(socket: TcpStream, side: Side, offer: &Offer) -> Peer {
    socket.set_nonblocking(true).unwrap();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let connection = establish(socket.into(), side, offer, &|_| true, &operation).unwrap();
    let mut endpoint = SoftEndpoint::new().unwrap();
    endpoint.attach(connection).unwrap();
    Peer::new(endpoint)
}

impl Peer {
    /// Works until the other end has sent a message; `None` if it is gone.
    fn next_message(&mut self) -> Option<Message> {
        self.wait(|completion| match completion {
            Completion::Received { message, .. } => Some(Some(*message)),
            Completion::Lost { loss, .. } => {
                assert_eq!(*loss, Loss::Closed);
                Some(None)
            }
            Completion::Done { .. } | Completion::Written { .. } | Completion::Restored { .. } => {
                None
            }
        })
    }

    /// Works until a request is done.
    fn done(&mut self, request: u64) {
        self.wait(|completion| {
            let is_done = matches!(completion, Completion::Done { id, .. } if *id == request);
            is_done.then_some(())
        });
    }

    /// Works until something has happened, and forgets what happened before.
    fn wait<T>(&mut self, wanted: impl Fn(&Completion) -> Option<T>) -> T {
        loop {
            while !self.completions.is_empty() {
                if let Some(found) = wanted(&self.completions.remove(0)) {
                    return found;
                }
            }
            self.endpoint.poll(&mut self.completions);
            if self.completions.is_empty() {
                let descriptor = self.endpoint.descriptor();
                let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
                let limit = Timespec::try_from(Duration::from_secs(30)).unwrap();
                let count = poll(&mut descriptors, Some(&limit)).unwrap();
                assert_ne!(count, 0, "nothing happens");
            }
        }
    }
}
