//! A name server for tests, over UDP and TCP. Its messages are made by a library for DNS.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype, ToName as _};
use domain::rdata::{A, Cname, Srv};

/// What a UDP message may carry: resolvers ask again over TCP for more.
const UDP_BYTES: usize = 1232;

/// A record.
#[derive(Clone)]
pub(crate) enum Record {
    Address(Ipv4Addr),
    Service { port: u16, target: String },
    Alias(String),
}

/// What the server does.
#[derive(Default)]
struct Zone {
    records: HashMap<String, Vec<Record>>,
    is_silent: bool,
}

/// The name server; it runs until the test ends.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

impl NameServer {
    pub(crate) fn start() -> Self {
        // The same port for both, which may be taken for one of them.
        let (udp, tcp) = (0..100)
            .find_map(|_| {
                let udp = UdpSocket::bind("127.0.0.1:0").ok()?;
                let tcp = TcpListener::bind(udp.local_addr().ok()?).ok()?;
                Some((udp, tcp))
            })
            .expect("a port");
        let address = udp.local_addr().expect("an address");
        let zone = Arc::<Mutex<Zone>>::default();
        let (of_udp, of_tcp) = (Arc::clone(&zone), Arc::clone(&zone));
        thread::spawn(move || serve_udp(&udp, &of_udp));
        thread::spawn(move || serve_tcp(&tcp, &of_tcp));
        Self { address, zone }
    }

    pub(crate) fn set(&self, name: &str, records: Vec<Record>) {
        let mut zone = self.zone.lock().expect("no panic");
        zone.records.insert(name.to_owned(), records);
    }

    pub(crate) fn silence(&self, is_silent: bool) {
        self.zone.lock().expect("no panic").is_silent = is_silent;
    }
}

fn serve_udp(socket: &UdpSocket, zone: &Mutex<Zone>) {
    let mut buffer = [0; 4096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).expect("a question");
        if let Some(answer) = answer(&buffer[..length], zone, UDP_BYTES) {
            socket.send_to(&answer, peer).expect("sent");
        }
    }
}

fn serve_tcp(listener: &TcpListener, zone: &Mutex<Zone>) {
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut question).expect("a question");
            let Some(answer) = answer(&question, zone, usize::MAX) else {
                break;
            };
            let length = u16::try_from(answer.len()).expect("short");
            let message = [length.to_be_bytes().as_slice(), &answer].concat();
            stream.write_all(&message).expect("sent");
        }
    }
}

/// `None`: no answer.
fn answer(question: &[u8], zone: &Mutex<Zone>, most_bytes: usize) -> Option<Vec<u8>> {
    let question = Message::from_octets(question).expect("a message");
    let asked = question.sole_question().expect("a question");
    let name = asked.qname().to_string().to_ascii_lowercase();
    let zone = zone.lock().expect("no panic");
    if zone.is_silent {
        return None;
    }
    let records = zone.records.get(&name);
    let code = match records {
        Some(_) => Rcode::NOERROR,
        None => Rcode::NXDOMAIN,
    };
    let target = |name: &str| Name::<Vec<u8>>::vec_from_str(name).expect("a name");
    let mut builder = MessageBuilder::new_vec()
        .start_answer(&question, code)
        .expect("an answer");
    let owner: Name<Vec<u8>> = asked.qname().to_name();
    for record in records.into_iter().flatten() {
        // The shortest time, so that changes show soon.
        let pushed = match record {
            Record::Address(address) if asked.qtype() == Rtype::A => {
                builder.push((&owner, 0, A::new(*address)))
            }
            Record::Service { port, target: host } if asked.qtype() == Rtype::SRV => {
                builder.push((&owner, 0, Srv::new(0, 0, *port, target(host))))
            }
            Record::Alias(other) => builder.push((&owner, 0, Cname::new(target(other)))),
            _ => Ok(()),
        };
        pushed.expect("room");
    }
    let whole = builder.finish();
    if whole.len() <= most_bytes {
        return Some(whole);
    }
    let mut cut = MessageBuilder::new_vec()
        .start_answer(&question, code)
        .expect("an answer");
    cut.header_mut().set_tc(true);
    Some(cut.finish())
}
