//! Scripted servers that send and receive in MODE E.

use std::cell::{Cell, RefCell};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

use socket2::{Domain, Socket, Type};

use super::scripted::Scripted;

/// Features, among them MODE E.
pub(crate) const FEATURES: &str =
    "211-Features\r\n SIZE\r\n PARALLEL\r\n MLST type*;size*;\r\n211 End.\r\n";

thread_local! {
    /// Where the client of this thread listens.
    static PORT: RefCell<Option<SocketAddrV4>> = const { RefCell::new(None) };
    /// The data connection to it.
    static DATA: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
    /// A `REST` has come since [`takes_restart`].
    static IS_RESTARTED: Cell<bool> = const { Cell::new(false) };
}

/// What the server does with the `RETR` of a name, or the `ERET` of a part, in place of sending the file and its replies: `None`.
pub(crate) type Act = dyn Fn(&str, &mut TcpStream) -> Option<io::Result<()>> + Send + Sync;

/// The size of a name.
pub(crate) type Size = dyn Fn(&str) -> usize + Send + Sync;

/// A server whose files `/f1`, `/f2` ... have their names as content, and a data connection that stays.
pub(crate) fn start(act: Box<Act>) -> Scripted {
    start_with_sizes(Box::new(str::len), act)
}

/// As [`start`], with other sizes of files by the words of the server.
pub(crate) fn start_with_sizes(size: Box<Size>, act: Box<Act>) -> Scripted {
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, &*size, &*act).unwrap_or(true)
    }))
}

/// Replies to a command, if it is one of those that these servers know.
pub(crate) fn talk(
    line: &str,
    control: &mut TcpStream,
    size: &Size,
    act: &Act,
) -> io::Result<bool> {
    let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
    let reply = match verb {
        "FEAT" => FEATURES.to_owned(),
        "MLST" if argument.ends_with("/d") => {
            "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n".to_owned()
        }
        "MLST" | "SIZE" if argument.ends_with("missing") => "550 No such file.\r\n".to_owned(),
        "MLST" => {
            let size = size(argument);
            format!("250-Facts\r\n Type=file;Size={size}; {argument}\r\n250 End.\r\n")
        }
        "PORT" => {
            DATA.set(None);
            PORT.set(Some(address(argument)));
            "200 Yes.\r\n".to_owned()
        }
        "REST" => {
            IS_RESTARTED.set(true);
            "350 From there.\r\n".to_owned()
        }
        "RETR" | "ERET" => match act(argument, control) {
            Some(done) => return done.map(|()| true),
            None => {
                start_reply(control)?;
                send(argument.as_bytes())?;
                "226 Complete.\r\n".to_owned()
            }
        },
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// Whether a `REST` has come in this session, since the last call.
pub(crate) fn takes_restart() -> bool {
    IS_RESTARTED.take()
}

/// Sends 150, or 125 if the data connection is there.
pub(crate) fn start_reply(control: &mut TcpStream) -> io::Result<()> {
    let is_open = DATA.with_borrow(Option::is_some);
    control.write_all(match is_open {
        true => b"125 Again.\r\n",
        false => b"150 Now.\r\n",
    })
}

/// Sends a file in one block, and its end, over the connection, which is opened if it is not.
pub(crate) fn send(content: &[u8]) -> io::Result<()> {
    DATA.with_borrow_mut(|data| {
        if data.is_none() {
            let port = PORT.with_borrow(|port| port.ok_or(io::ErrorKind::NotConnected))?;
            *data = Some(TcpStream::connect(port)?);
        }
        let Some(data) = data else { unreachable!() };
        let mut bytes = block(0, content.len() as u64, 0);
        bytes.extend_from_slice(content);
        // EOF and EOD, with the number of EODs.
        bytes.extend(block(0x48, 0, 1));
        data.write_all(&bytes)
    })
}

/// Sends a byte of a file, over a new connection that then breaks.
pub(crate) fn send_byte(offset: u64) -> io::Result<()> {
    send_byte_over(connect()?, offset)
}

/// Sends a byte of a file over this connection, which then breaks.
pub(crate) fn send_byte_over(mut data: TcpStream, offset: u64) -> io::Result<()> {
    let mut bytes = block(0, 1, offset);
    bytes.push(b'x');
    data.write_all(&bytes)
}

/// A new data connection.
pub(crate) fn connect() -> io::Result<TcpStream> {
    let port = PORT.with_borrow(|port| port.ok_or(io::ErrorKind::NotConnected))?;
    TcpStream::connect(port)
}

/// Sends the beginning of a file.
pub(crate) fn send_beginning(content: &[u8]) -> io::Result<()> {
    DATA.with_borrow_mut(|data| {
        let Some(data) = data else { unreachable!() };
        data.write_all(&block(0, content.len() as u64, 0))?;
        data.write_all(content)
    })
}

/// Sends a file as another host of this machine would.
pub(crate) fn send_from_other_host(content: &[u8]) -> io::Result<()> {
    let port = PORT.with_borrow(|port| port.ok_or(io::ErrorKind::NotConnected))?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 0).into())?;
    socket.connect(&port.into())?;
    let mut bytes = block(0, content.len() as u64, 0);
    bytes.extend_from_slice(content);
    bytes.extend(block(0x48, 0, 1));
    // The client may have closed it.
    let _ = TcpStream::from(socket).write_all(&bytes);
    Ok(())
}

/// Reads blocks to the end of data.
pub(crate) fn receive(data: &mut TcpStream) -> io::Result<()> {
    loop {
        let mut header = [0; 17];
        data.read_exact(&mut header)?;
        let count = u64::from_be_bytes(header[1..9].try_into().unwrap());
        io::copy(&mut data.take(count), &mut io::sink())?;
        if header[0] & 0x08 != 0 {
            return Ok(());
        }
    }
}

/// The header of a block (GFD.20 3.4).
fn block(descriptor: u8, count: u64, offset: u64) -> Vec<u8> {
    let mut header = vec![descriptor];
    header.extend(count.to_be_bytes());
    header.extend(offset.to_be_bytes());
    header
}

fn address(argument: &str) -> SocketAddrV4 {
    let numbers = argument
        .split(',')
        .map(|number| number.parse::<u8>().unwrap());
    let numbers: Vec<u8> = numbers.collect();
    let [a, b, c, d, high, low] = numbers[..] else {
        panic!("PORT {argument}");
    };
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}
