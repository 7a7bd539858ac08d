//! The data port of a session with a scripted server. Each session has a thread, and the client connects to the port.

use std::cell::RefCell;
use std::io;
use std::net::{TcpListener, TcpStream};

thread_local! {
    static PORT: RefCell<Option<TcpListener>> = const { RefCell::new(None) };
    /// The data connection of MODE E, which stays for further files.
    static DATA: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
}

/// Listens, and returns the reply to `PASV`. It is a new port each time: the client may have connected to the last one for a transfer that
/// was refused.
pub(crate) fn listen() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let [high, low] = listener.local_addr()?.port().to_be_bytes();
    DATA.set(None);
    PORT.set(Some(listener));
    Ok(format!("227 (127,0,0,1,{high},{low})\r\n"))
}

/// The next connection to the port.
pub(crate) fn accept() -> io::Result<TcpStream> {
    PORT.with_borrow(|port| {
        let port = port.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(port.accept()?.0)
    })
}

/// Uses the data connection that stays, and accepts it before its first use.
pub(crate) fn with_data(transfer: impl FnOnce(&mut TcpStream) -> io::Result<()>) -> io::Result<()> {
    DATA.with_borrow_mut(|data| match data {
        Some(data) => transfer(data),
        None => transfer(data.insert(accept()?)),
    })
}
