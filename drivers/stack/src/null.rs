//! The driver `null`: a transport that discards what is sent, and receives zeros.
//!
//! For measuring all parts but the network. Files that are sent are read.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::options::{self, Audience, OptionDoc, OptionKind};
use crate::{
    Body, Built, Channel, ChannelError, ChannelInfo, ConnectError, Driver, ListenError, Listener,
    Operation, Received, SocketOptions, StackError, Transport,
};

/// The driver `null`: a connection to any peer succeeds, sent bytes are discarded, and the received stream is empty or consists
/// of zeros. It cannot listen.
///
/// | option | meaning |
/// | --- | --- |
/// | `bytes=1G` | the number of zeros that each connection yields; the default is 0 |
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

const NAME: &str = "null";

impl Driver for Null {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[OptionDoc {
            name: "bytes",
            meaning: "How many zeros each connection yields; none unless given.",
            example: "1G",
            kind: OptionKind::Bytes,
            // A client could fill the disk without sending any data.
            audience: Audience::Administrator("what it yields takes no sender, but room on disks"),
        }]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let options = self.read_options(options)?;
        Ok(Built::Transport(Arc::new(NullTransport {
            zeros: options.value("bytes", options::bytes)?.unwrap_or(0),
        })))
    }
}

#[derive(Debug)]
struct NullTransport {
    zeros: u64,
}

impl Transport for NullTransport {
    fn listen(
        &self,
        _local: IpAddr,
        _options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError> {
        Err(ListenError::Unsupported(NAME))
    }

    fn connect(
        &self,
        peer: SocketAddr,
        _options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        operation.check()?;
        Ok(Box::new(NullChannel {
            peer,
            zeros: self.zeros,
        }))
    }
}

#[derive(Debug)]
struct NullChannel {
    peer: SocketAddr,
    /// The zeros that are left to receive.
    zeros: u64,
}

impl Channel for NullChannel {
    fn send(
        &mut self,
        _head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        operation.check()?;
        if let Body::File(mut range) = body {
            let mut done = 0;
            while done < range.length {
                operation.check()?;
                let count = range.read_piece(done)?.len() as u64;
                range.moved.fetch_add(count, Ordering::Release);
                done += count;
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        operation.check()?;
        let count = usize::try_from(self.zeros).map_or(buffer.len(), |left| left.min(buffer.len()));
        buffer[..count].fill(0);
        self.zeros -= count as u64;
        Ok(NonZeroUsize::new(count).map_or(Received::EndOfStream, Received::Bytes))
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        operation.check()
    }

    fn abort(&mut self) {
        self.zeros = 0;
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn info(&self) -> ChannelInfo {
        ChannelInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::{Cancel, FileRange, Stack};

    fn stack(options: &[(&str, &str)]) -> Stack {
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        match Null.build(&options).unwrap() {
            Built::Transport(transport) => Stack::new(transport, Vec::new()),
            Built::Transform(_) => panic!("null is a transport"),
        }
    }

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn yields_the_given_number_of_zeros_and_then_the_end() {
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let stack = stack(&[("bytes", "10")]);
        let mut channel = stack
            .connect(PEER, &SocketOptions::default(), &operation)
            .unwrap();
        let mut buffer = [1; 7];
        for count in [7, 3] {
            assert_eq!(
                channel.receive(&mut buffer, &operation).unwrap(),
                Received::Bytes(NonZeroUsize::new(count).unwrap())
            );
        }
        assert_eq!(buffer, [0; 7]);
        assert_eq!(
            channel.receive(&mut buffer, &operation).unwrap(),
            Received::EndOfStream
        );
    }

    #[test]
    fn reads_the_files_that_it_discards() {
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let mut channel = stack(&[])
            .connect(PEER, &SocketOptions::default(), &operation)
            .unwrap();
        for (length, moved_then) in [(90, 90), (91, 90)] {
            let moved = AtomicU64::new(0);
            let outcome = channel.send(
                b"head",
                Body::File(FileRange::new(
                    file.as_fd(),
                    10,
                    length,
                    &mut [0; 7],
                    &moved,
                )),
                &operation,
            );
            assert_eq!(outcome.is_ok(), length == 90);
            assert_eq!(moved.into_inner(), moved_then);
        }
    }

    #[test]
    fn cannot_listen() {
        let error = stack(&[])
            .listen(PEER.ip(), &SocketOptions::default())
            .unwrap_err();
        assert_eq!(error.to_string(), "the driver null cannot listen");
    }
}
