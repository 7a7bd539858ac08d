//! The network between a control server and a node: a relay that can be cut.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::support::raw::reset;

/// A network path that can be cut.
#[derive(Debug)]
pub(super) struct Link {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    node: SocketAddr,
    condition: Mutex<Condition>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Condition {
    weather: Weather,
    /// Both ends of each connection.
    connections: Vec<[TcpStream; 2]>,
}

/// What the network does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// It passes bytes on.
    #[default]
    Fair,
    /// Bytes stay where they are; connections seem to be open.
    Silent,
    /// New connections are reset.
    Refusing,
    /// The test has ended.
    Closed,
}

impl Link {
    /// A path to `node`, in order.
    pub(super) fn to(node: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            node,
            condition: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                match accepting.weather() {
                    Weather::Closed => break,
                    // It has ended if it cannot be reset.
                    Weather::Refusing => drop(reset(stream)),
                    Weather::Fair | Weather::Silent => {
                        let state = Arc::clone(&accepting);
                        thread::spawn(move || state.relay(stream));
                    }
                }
            }
        });
        Ok(Self { address, state })
    }

    /// Where control servers connect.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what the network does. [`Weather::Refusing`] also resets all connections.
    pub(super) fn set(&self, weather: Weather) {
        let mut condition = self.state.condition();
        condition.weather = weather;
        if matches!(weather, Weather::Refusing | Weather::Closed) {
            for stream in condition.connections.drain(..).flatten() {
                // The threads that relay have clones: the shutdown is what ends them.
                let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        drop(condition);
        self.state.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set(Weather::Closed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn weather(&self) -> Weather {
        self.condition().weather
    }

    /// Waits while the network is silent.
    fn wait(&self) {
        let mut condition = self.condition();
        while condition.weather == Weather::Silent {
            condition = self
                .changed
                .wait(condition)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn relay(self: Arc<Self>, control: TcpStream) -> io::Result<()> {
        self.wait();
        let Ok(node) = TcpStream::connect(self.node) else {
            return reset(control);
        };
        {
            let mut condition = self.condition();
            if condition.weather != Weather::Fair && condition.weather != Weather::Silent {
                return reset(control);
            }
            let ends = [control.try_clone()?, node.try_clone()?];
            condition.connections.push(ends);
        }
        let (from, to) = (control.try_clone()?, node.try_clone()?);
        let state = Arc::clone(&self);
        thread::spawn(move || state.pass(from, to));
        self.pass(node, control);
        Ok(())
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            self.wait();
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        self.wait();
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_network_keeps_bytes_and_a_refusing_one_resets() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link::to(listener.local_addr().unwrap()).unwrap();
        let mut here = TcpStream::connect(link.address()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let mut byte = [0];
        here.write_all(b"a").unwrap();
        there.read_exact(&mut byte).unwrap();
        link.set(Weather::Silent);
        here.write_all(b"b").unwrap();
        let short = Duration::from_millis(100);
        there.set_read_timeout(Some(short)).unwrap();
        there.read(&mut byte).unwrap_err();
        link.set(Weather::Fair);
        there.set_read_timeout(None).unwrap();
        there.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");
        link.set(Weather::Refusing);
        assert!(!matches!(there.read(&mut byte), Ok(1..)));
        let mut other = TcpStream::connect(link.address()).unwrap();
        assert!(!matches!(other.read(&mut byte), Ok(1..)));
    }
}
