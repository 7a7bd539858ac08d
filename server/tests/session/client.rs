//! A client that speaks to a server over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use gridhaul_protocol::address::PassiveAddress;
use gridhaul_protocol::block::{Descriptor, HEADER_BYTES, Header};
use gridhaul_protocol::command::Base64;
use gridhaul_protocol::reply::{Reply, ReplyDecoder};
use gridhaul_security::context::Context;
use rustls::ClientConnection;

/// No test waits longer for anything.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// The client's end of a control channel.
pub(crate) struct Client {
    stream: TcpStream,
    protection: Protection,
    decoder: ReplyDecoder,
    unread: Vec<u8>,
}

/// What commands and replies travel in.
pub(crate) enum Protection {
    None,
    Gsi(Box<Context>),
    Tls(Box<ClientConnection>),
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("connected"))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        stream.set_nodelay(true).expect("set");
        Self {
            stream,
            protection: Protection::None,
            decoder: ReplyDecoder::new(),
            unread: Vec::new(),
        }
    }

    /// From now on commands and replies are protected.
    pub(crate) fn protect(&mut self, protection: Protection) {
        self.protection = protection;
    }

    /// What a line looks like on the network, without its end.
    pub(crate) fn sealed(&mut self, line: &str) -> String {
        match &mut self.protection {
            Protection::Gsi(context) => {
                let token = context.wrap(format!("{line}\r\n").as_bytes());
                format!("ENC {}", Base64::encode(&token.expect("wrapped")))
            }
            Protection::None | Protection::Tls(_) => line.to_owned(),
        }
    }

    /// Another handle of the connection, to send from another thread.
    pub(crate) fn second_handle(&self) -> TcpStream {
        self.stream.try_clone().expect("a handle")
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, line: &str) {
        let sealed = self.sealed(line);
        self.send_bytes(format!("{sealed}\r\n").as_bytes());
    }

    /// Sends bytes as they are, except in TLS.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.protection {
            Protection::Tls(connection) => {
                rustls::Stream::new(connection.as_mut(), &mut self.stream).write_all(bytes)
            }
            Protection::None | Protection::Gsi(_) => self.stream.write_all(bytes),
        }
        .expect("sent");
    }

    /// The next reply.
    pub(crate) fn reply(&mut self) -> Reply {
        let reply = self.next_reply().expect("the server closed the connection");
        match &mut self.protection {
            Protection::Gsi(context) if reply.code() == 632 => opened(context, &reply),
            _ => reply,
        }
    }

    /// The next reply, or `None` when the server has closed.
    pub(crate) fn next_reply(&mut self) -> Option<Reply> {
        loop {
            let mut input = self.unread.as_slice();
            let reply = self.decoder.decode(&mut input);
            self.unread = input.to_vec();
            if let Some(reply) = reply {
                return Some(reply.expect("a well-formed reply"));
            }
            let mut buffer = [0; 4096];
            let count = match &mut self.protection {
                Protection::Tls(connection) => {
                    rustls::Stream::new(connection.as_mut(), &mut self.stream).read(&mut buffer)
                }
                Protection::None | Protection::Gsi(_) => self.stream.read(&mut buffer),
            }
            .expect("a reply in time");
            if count == 0 {
                return None;
            }
            self.unread = buffer[..count].to_vec();
        }
    }

    /// Sends a line and expects a code; returns the whole text of the reply.
    pub(crate) fn expect(&mut self, line: &str, code: u16) -> String {
        self.send(line);
        let reply = self.reply();
        assert_eq!(reply.code(), code, "{line}: {reply:?}");
        text(&reply)
    }

    pub(crate) fn expect_reply(&mut self, code: u16) -> String {
        let reply = self.reply();
        assert_eq!(reply.code(), code, "{reply:?}");
        text(&reply)
    }

    /// Nothing more comes but the end.
    pub(crate) fn expect_end(&mut self) {
        if let Some(reply) = self.next_reply() {
            panic!("{reply:?} instead of the end");
        }
    }

    /// Opens a passive data connection.
    pub(crate) fn passive(&mut self) -> TcpStream {
        self.send("PASV");
        let reply = self.reply();
        self.connect_data(&reply)
    }

    pub(crate) fn connect_data(&self, reply: &Reply) -> TcpStream {
        let data = TcpStream::connect(self.data_address(reply)).expect("connected");
        data.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        data
    }

    /// Where the server listens for data connections.
    pub(crate) fn data_address(&self, reply: &Reply) -> SocketAddr {
        let host = self.stream.peer_addr().expect("connected").ip();
        let address = PassiveAddress::parse(reply).expect("an address");
        address.addresses(host)[0]
    }

    /// Sends `PORT` for a listener.
    pub(crate) fn active(&mut self) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        self.expect(
            &format!("PORT 127,0,0,1,{},{}", port >> 8, port & 0xff),
            200,
        );
        listener
    }

    /// Carries out a command that sends data, and returns the data.
    pub(crate) fn get(&mut self, line: &str) -> Vec<u8> {
        let mut data = self.passive();
        self.expect(line, 150);
        let mut content = Vec::new();
        data.read_to_end(&mut content).expect("received");
        self.expect_reply(226);
        content
    }

    /// Carries out a command that receives data.
    pub(crate) fn put(&mut self, line: &str, content: &[u8]) {
        let mut data = self.passive();
        self.expect(line, 150);
        data.write_all(content).expect("sent");
        drop(data);
        self.expect_reply(226);
    }
}

/// The reply that 632 carries, a line in each token.
fn opened(context: &mut Context, sealed: &Reply) -> Reply {
    let mut text = Vec::new();
    for token in sealed.lines() {
        let token = std::str::from_utf8(token).expect("ASCII");
        let token = Base64::new(token).and_then(|token| token.decode());
        let line = context.unwrap(&token.expect("base64")).expect("opened");
        assert!(line.ends_with(b"\r\n"), "{}", line.escape_ascii());
        text.extend(line);
    }
    let reply = ReplyDecoder::new().decode(&mut text.as_slice());
    reply.expect("a whole reply").expect("a well-formed reply")
}

/// All bytes of a reply.
pub(crate) fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.encode()).into_owned()
}

/// Sends one MODE E block.
pub(crate) fn send_block(data: &mut TcpStream, offset: u64, content: &[u8]) {
    data.write_all(&Header::data(offset, content.len() as u64).encode())
        .expect("sent");
    data.write_all(content).expect("sent");
}

/// Sends the end of data of a connection that is the only one.
pub(crate) fn send_end(data: &mut TcpStream) {
    let end = Header {
        descriptor: Descriptor(0x48),
        count: 0,
        offset: 1,
    };
    data.write_all(&end.encode()).expect("sent");
}

/// Receives MODE E blocks of one connection up to its end of data.
pub(crate) fn receive_blocks(data: &mut TcpStream) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        data.read_exact(&mut header).expect("a header");
        let header = Header::decode(&header);
        if header.descriptor.has(Descriptor::EOD) {
            return content;
        }
        let size = |number: u64| usize::try_from(number).expect("it fits into memory");
        let (offset, count) = (size(header.offset), size(header.count));
        content.resize(content.len().max(offset + count), 0);
        data.read_exact(&mut content[offset..offset + count])
            .expect("a block");
    }
}
