//! One connection, and the ways in which it moves ranges of files.

use std::net::SocketAddr;

use gridhaul_stack::{
    Body, Channel, ChannelError, ChannelInfo, FileRange, Movement, Operation, Received,
};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;

use crate::{receiving, sending};

#[derive(Debug)]
pub(crate) struct SpliceChannel {
    tcp: TcpChannel,
    movement: Option<Movement>,
}

/// How far the kernel came with a range.
#[derive(Debug)]
pub(crate) enum Part {
    /// To its end.
    Whole,
    /// So many bytes; the rest must go through memory, for this reason if there is one.
    Refused(u64, Option<Errno>),
}

impl SpliceChannel {
    pub(crate) fn new(tcp: TcpChannel) -> Self {
        Self {
            tcp,
            movement: None,
        }
    }

    fn note(&mut self, way: &'static str, refused: Option<Errno>) {
        let movement = match refused {
            None => Movement {
                way,
                reason: "the stack asks for it".into(),
            },
            Some(errno) => Movement {
                way: "read",
                reason: format!("{way} failed: {}", std::io::Error::from(errno)).into(),
            },
        };
        self.movement = Some(movement);
    }
}

impl Channel for SpliceChannel {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let range = match body {
            Body::File(range) if range.length > 0 => range,
            body => return self.tcp.send(head, body, operation),
        };
        self.tcp.send_ahead(head, operation)?;
        match sending::send(&mut self.tcp, &range, operation)? {
            Part::Whole => {
                self.note("sendfile", None);
                Ok(())
            }
            Part::Refused(done, errno) => {
                self.note("sendfile", errno);
                self.tcp.send(&[], Body::File(rest(range, done)), operation)
            }
        }
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        self.tcp.receive(buffer, operation)
    }

    fn receive_into(
        &mut self,
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        if range.tap.is_some() {
            return self.tcp.receive_into(range, operation);
        }
        let length = range.length;
        match receiving::receive(&mut self.tcp, &mut range, operation)? {
            Part::Whole => {
                self.note("splice", None);
                Ok(length)
            }
            Part::Refused(done, errno) => {
                self.note("splice", errno);
                Ok(done + self.tcp.receive_into(rest(range, done), operation)?)
            }
        }
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.tcp.finish(operation)
    }

    fn abort(&mut self) {
        self.tcp.abort();
    }

    fn peer(&self) -> SocketAddr {
        self.tcp.peer()
    }

    fn info(&self) -> ChannelInfo {
        ChannelInfo {
            movement: self.movement.clone(),
            ..self.tcp.info()
        }
    }
}

fn rest(range: FileRange<'_>, done: u64) -> FileRange<'_> {
    FileRange {
        offset: range.offset + done,
        length: range.length - done,
        ..range
    }
}
