//! A client that checks the replies.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::reply::{Reply, ReplyDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fuzz_input::Input;

use super::lines::line;

/// An upper bound, on a busy machine with sanitizers.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The content of a file outside of the root. No name contains it.
pub(super) const SECRET: &[u8] = b"not for anybody who is not told";

/// The limit of data on one data connection.
const MOST_SENT: usize = 4096;

/// The client's side of a session.
pub(super) struct Client {
    control: DuplexStream,
    decoder: ReplyDecoder,
    unread: Vec<u8>,
    /// Commands without a reply so far, and the greeting.
    owed: usize,
    /// The last reply code.
    code: u16,
    listener: Arc<TcpListener>,
    port: u16,
    /// The data for data connections.
    payload: Arc<[u8]>,
    connections: JoinSet<()>,
}

impl Client {
    pub(super) async fn new(control: DuplexStream, input: &mut Input<'_>) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        let port = listener.local_addr()?.port();
        let length = usize::from(input.byte()) * 16;
        let payload = payload(input, length.min(MOST_SENT)).into();
        Ok(Self {
            control,
            decoder: ReplyDecoder::new(),
            unread: Vec::new(),
            owed: 1,
            code: 0,
            listener,
            port,
            payload,
            connections: JoinSet::new(),
        })
    }

    /// Sends the commands in the input, and disconnects.
    pub(super) async fn run(mut self, input: &mut Input<'_>) {
        let acceptor = tokio::spawn(accept(
            Arc::clone(&self.listener),
            Arc::clone(&self.payload),
        ));
        let end = self.speak(input).await;
        if end.is_some() && input.byte() < 200 {
            self.say(b"QUIT").await;
            self.replies(0).await;
            assert!(matches!(self.code, 221 | 421), "{} to QUIT", self.code);
        }
        drop(self.control);
        // The server closes all data connections with the session.
        while let Some(done) = timeout(TIME_LIMIT, self.connections.join_next())
            .await
            .expect("a data connection stays when its session ends")
        {
            done.expect("no panic");
        }
        acceptor.abort();
        match acceptor.await {
            Ok(()) => {}
            Err(error) => assert!(
                !error.is_panic(),
                "what came over a data connection is wrong"
            ),
        }
    }

    /// `None` if the server has ended the session.
    async fn speak(&mut self, input: &mut Input<'_>) -> Option<()> {
        self.replies(0).await?;
        if input.byte() < 230 {
            for line in ["USER anonymous", "PASS x@", "TYPE I"] {
                self.say(line.as_bytes()).await?;
            }
        }
        while !input.is_empty() {
            let waits = input.byte();
            let line = line(input, self.port);
            self.say(&line).await?;
            // Other commands are pipelined: the next one is sent before the reply.
            if waits < 220 {
                self.replies(0).await?;
            }
            self.replies(8).await?;
        }
        self.replies(0).await
    }

    async fn say(&mut self, line: &[u8]) -> Option<()> {
        let line = [line, b"\r\n"].concat();
        let sent = timeout(TIME_LIMIT, self.control.write_all(&line)).await;
        self.owed += 1;
        sent.expect("the session reads no more").ok()
    }

    /// Reads replies until at most `most` are outstanding.
    async fn replies(&mut self, most_owed: usize) -> Option<()> {
        while self.owed > most_owed {
            let Some(reply) = self.reply().await else {
                let ends = matches!(self.code, 221 | 421);
                assert!(
                    ends,
                    "the session has ended with {} replies owed",
                    self.owed
                );
                return None;
            };
            self.code = reply.code();
            check(&reply);
            self.passive(&reply);
            if !reply.is_preliminary() {
                self.owed -= 1;
            }
        }
        Some(())
    }

    async fn reply(&mut self) -> Option<Reply> {
        loop {
            let mut unread = &self.unread[..];
            let decoded = self.decoder.decode(&mut unread);
            let left = unread.len();
            self.unread.drain(..self.unread.len() - left);
            if let Some(reply) = decoded {
                return Some(reply.expect("a reply is well-formed"));
            }
            let mut buffer = [0; 4096];
            let read = timeout(TIME_LIMIT, self.control.read(&mut buffer)).await;
            let count = read.expect("a command has no reply").ok()?;
            if count == 0 {
                assert!(self.unread.is_empty(), "the last reply is cut short");
                return None;
            }
            self.unread.extend_from_slice(&buffer[..count]);
        }
    }

    /// Connects to the data port in a reply.
    fn passive(&mut self, reply: &Reply) {
        let text = reply.text();
        let numbers = |text: &str| -> Vec<u16> {
            let words = text.split(|character: char| !character.is_ascii_digit());
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let port = match (reply.code(), &numbers(&text)[..]) {
            (227, [.., high, low]) => high * 256 + low,
            (229, [.., port]) if text.contains("|||") => *port,
            _ => return,
        };
        let payload = Arc::clone(&self.payload);
        self.connections.spawn(async move {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if let Ok(stream) = TcpStream::connect(address).await {
                exchange(stream, &payload).await;
            }
        });
    }
}

/// RFC 959 4.2: three digits, of which the second is at most 5. Protected replies are not used here.
fn check(reply: &Reply) {
    let code = reply.code();
    let is_plausible = matches!(code / 100, 1..=5) && code / 10 % 10 <= 5;
    assert!(is_plausible, "the code {code}");
    for line in reply.lines() {
        let ends = line.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        assert!(!ends, "a reply with a line inside: {line:?}");
        assert_public(line);
    }
}

/// Takes the data connections that the server opens.
async fn accept(listener: Arc<TcpListener>, payload: Arc<[u8]>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let payload = Arc::clone(&payload);
                connections.spawn(async move { exchange(stream, &payload).await });
            }
            Some(done) = connections.join_next() => done.expect("no panic"),
        }
    }
}

/// Sends all data, and reads until the server closes the connection.
async fn exchange(stream: TcpStream, payload: &[u8]) {
    let (mut reader, mut writer) = stream.into_split();
    let send = async {
        // The server may have closed the connection.
        let _ = writer.write_all(payload).await;
        let _ = writer.shutdown().await;
    };
    let mut received = Vec::new();
    let (_, _) = tokio::join!(send, reader.read_to_end(&mut received));
    assert_public(&received);
}

fn assert_public(bytes: &[u8]) {
    let leaks = bytes.windows(SECRET.len()).any(|window| window == SECRET);
    assert!(!leaks, "bytes of a file outside of the root");
}

/// Bytes of a file, or blocks of MODE E with lengths and offsets from the input.
fn payload(input: &mut Input<'_>, length: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    if input.byte() < 128 {
        payload.resize(length, b'x');
        return payload;
    }
    for _ in 0..input.byte() % 5 {
        let count = input.byte();
        payload.push(input.one_of(&[0, 8, 64, 72, 4, 0x80, 0xff]));
        payload.extend(u64::from(count).to_be_bytes());
        payload.extend((u64::from(input.byte()) * 100).to_be_bytes());
        payload.extend(std::iter::repeat_n(b'y', usize::from(count)));
    }
    payload
}
