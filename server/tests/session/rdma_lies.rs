//! A peer that speaks the protocol of the driver `rdma` byte by byte, and lies: it wants what other sessions have moved.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::client::Client;
use crate::rdma::{Peer, STACK, passive, served};
use crate::served::Served;

/// The length of a ring of [`STACK`].
const RING_BYTES: u64 = 196_608;

const SECRET: &[u8] = b"SECRET-RECORD";

/// More than a ring holds.
fn secrets() -> Vec<u8> {
    let records = (0..20_000).map(|number| format!("SECRET-RECORD-{number:05}\n"));
    records.collect::<String>().into_bytes()
}

fn holds_a_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET)
}

/// Another user fetches a file and stores it, several times over several rings.
fn leave_secrets(served: &Served) {
    served.write("secret", secrets());
    let mut client = served.anonymous();
    client.expect(&format!("SITE SETNETSTACK {STACK}"), 250);
    let peer = Peer::new();
    for _ in 0..3 {
        let address = passive(&mut client);
        client.send("RETR secret");
        let channel = peer.connect(address);
        client.expect_reply(150);
        assert_eq!(peer.receive(channel), secrets());
        client.expect_reply(226);
    }
    client.expect("QUIT", 221);
}

/// The liar's end of a data connection, with its queue pair open.
struct Liar {
    socket: TcpStream,
    /// Where the server's ring is, as the record says it: address and key.
    ring: [u8; 12],
    /// Messages that were sent on each queue.
    sent: [u32; 2],
}

impl Liar {
    /// `mode` is 0 where the sender writes the bytes, 1 where the receiver READs them.
    fn connect(address: SocketAddr, mode: u8) -> Self {
        let mut socket = TcpStream::connect(address).expect("connected");
        let time_limit = Some(Duration::from_secs(20));
        socket.set_read_timeout(time_limit).expect("set");
        // An offer: both rings, queue pairs, pieces, the mode, no immediates, nothing inline, not aligned, one adapter and rail,
        // rings that stay as they are, the way `soft`, and no rate and round trip of the path.
        let mut offer = [RING_BYTES.to_be_bytes(); 2].concat();
        offer.extend([0, 1, 0, 64, mode, 0, 0, 0, 0, 1, 1, 0, 1]);
        offer.extend([0; 12]);
        write_record(&mut socket, 1, &offer);
        let answer = read_record(&mut socket, 2);
        assert_eq!(answer[..8], RING_BYTES.to_be_bytes(), "the same ring");
        let token = &answer[answer.len() - 16..];
        write_record(&mut socket, 3, &[0; 12]);
        let ring = read_record(&mut socket, 3).try_into().expect("a ring");
        // RFC 5044 7.1, revision 1 without a checksum; whose connection it is, and that it is the first.
        let mut request = b"MPA ID Req Frame\x00\x01\x00\x12".to_vec();
        request.extend(token);
        request.extend([0, 0]);
        socket.write_all(&request).expect("sent");
        let reply = read(&mut socket, 20);
        assert!(reply.starts_with(b"MPA ID Rep Frame"));
        read(&mut socket, usize::from(reply[19]));
        Self {
            socket,
            ring,
            sent: [0; 2],
        }
    }

    /// An untagged segment (RFC 5041 4.3). Fails when the server has ended the connection.
    fn send(&mut self, queue: u8, opcode: u8, payload: &[u8]) -> io::Result<()> {
        let number = &mut self.sent[usize::from(queue)];
        *number += 1;
        let mut segment = vec![0x41, 0x40 | opcode, 0, 0, 0, 0, 0, 0, 0, queue];
        segment.extend(number.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(payload);
        let length = u16::try_from(segment.len()).expect("short");
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend(segment);
        // Padding, and no checksum.
        bytes.resize(bytes.len().next_multiple_of(4) + 4, 0);
        self.socket.write_all(&bytes)
    }

    /// All bytes of the stream up to `end` are in the ring, and it ends there.
    fn announce(&mut self, end: u64) {
        let mut arrived = vec![1];
        arrived.extend([0; 8]);
        arrived.extend(u32::try_from(end).expect("short").to_be_bytes());
        self.send(0, 3, &arrived).expect("sent");
        let mut ended = vec![3];
        ended.extend(end.to_be_bytes());
        // The server may have noticed the first lie, and ended the connection.
        let _ = self.send(0, 3, &ended);
    }

    /// READs all of the ring; returns everything that comes until it is there, or the connection ends.
    fn read_ring(&mut self) -> Vec<u8> {
        let mut request = vec![0; 12];
        request.extend(u32::try_from(RING_BYTES).expect("short").to_be_bytes());
        request.extend(&self.ring[8..]);
        request.extend(&self.ring[..8]);
        self.send(1, 1, &request).expect("sent");
        let mut bytes = Vec::new();
        let mut buffer = [0; 10_000];
        while (bytes.len() as u64) < RING_BYTES {
            match self.socket.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend(&buffer[..count]),
            }
        }
        bytes
    }
}

fn write_record(socket: &mut TcpStream, kind: u8, content: &[u8]) {
    let mut record = b"GHRDMA\r\n\x08".to_vec();
    record.push(kind);
    record.extend(u16::try_from(content.len()).expect("short").to_be_bytes());
    record.extend(content);
    socket.write_all(&record).expect("sent");
}

fn read_record(socket: &mut TcpStream, kind: u8) -> Vec<u8> {
    let head = read(socket, 12);
    assert_eq!(head[9], kind, "{head:?}");
    read(
        socket,
        usize::from(u16::from_be_bytes([head[10], head[11]])),
    )
}

fn read(socket: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    socket.read_exact(&mut bytes).expect("it comes in time");
    bytes
}

fn stranger(served: &Served) -> Client {
    let mut client = served.anonymous();
    client.expect(&format!("SITE SETNETSTACK {STACK}"), 250);
    client
}

#[test]
fn who_sends_nothing_stores_nothing_of_others() {
    let served = served();
    leave_secrets(&served);
    let mut client = stranger(&served);
    let address = passive(&mut client);
    client.send("STOR stolen");
    let mut liar = Liar::connect(address, 0);
    client.expect_reply(150);
    liar.announce(RING_BYTES);
    let reply = client.reply();
    let stored = std::fs::read(served.path("stolen")).unwrap_or_default();
    assert!(
        !holds_a_secret(&stored),
        "{} bytes were stored",
        stored.len()
    );
    let words = format!("{reply:?}");
    assert!(words.contains("announced bytes 0 to 196608"), "{words}");
    assert_ne!(reply.code(), 226);
}

#[test]
fn who_reads_more_than_was_sent_reads_nothing_of_others() {
    let served = served();
    leave_secrets(&served);
    served.write("public", b"for all users");
    let mut client = stranger(&served);
    let address = passive(&mut client);
    client.send("RETR public");
    let mut liar = Liar::connect(address, 1);
    client.expect_reply(150);
    let seen = liar.read_ring();
    assert!(seen.len() as u64 >= RING_BYTES, "{} bytes", seen.len());
    assert!(!holds_a_secret(&seen));
}
