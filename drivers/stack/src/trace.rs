//! The driver `trace`: statistics of a channel.
//!
//! It counts bytes and calls, and passes bytes and file ranges through unchanged, so that the driver below still moves them in
//! its most efficient way. The program decides where the statistics go.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::options::OptionDoc;
use crate::{
    Body, Built, Channel, ChannelError, ChannelInfo, Driver, FileRange, Operation, Received, Side,
    StackError, Transform, Watch,
};

/// The driver `trace`: a transform that keeps an [`Account`] of every channel, and passes it to a callback when the channel is
/// dropped. It has no options.
#[derive(Clone)]
pub struct Trace {
    sink: Arc<dyn Fn(&Account) + Send + Sync>,
}

/// The statistics of one channel. `Display` is one line for a log.
#[derive(Debug, Clone)]
pub struct Account {
    /// The peer's address.
    pub peer: SocketAddr,
    /// Which end this is.
    pub side: Side,
    /// The time from the handshake below to the drop.
    pub lifetime: Duration,
    /// Sent heads and bodies.
    pub sent: Tally,
    /// Received bytes, to memory and to files.
    pub received: Tally,
    /// This end has finished sending.
    pub is_finished: bool,
    /// This end has aborted the channel.
    pub is_aborted: bool,
    /// The text of the first error.
    pub error: Option<String>,
}

/// One direction of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls, including failed ones.
    pub calls: u64,
    /// Bytes moved. For a failed call, the bytes of the file range that were counted as moved.
    pub bytes: u64,
    /// Time spent in the calls.
    pub time: Duration,
}

impl Trace {
    /// A trace driver that passes its accounts to `sink`, which runs on the thread that drops the channel and must not block.
    pub fn new(sink: impl Fn(&Account) + Send + Sync + 'static) -> Self {
        Self {
            sink: Arc::new(sink),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Connector => "to",
            Side::Acceptor => "from",
        };
        write!(
            f,
            "connection {side} {}, {:?}: sent {}; received {}",
            self.peer, self.lifetime, self.sent, self.received
        )?;
        if self.is_finished {
            f.write_str("; finished")?;
        }
        if self.is_aborted {
            f.write_str("; aborted")?;
        }
        match &self.error {
            Some(error) => write!(f, "; failed: {error}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes in {} calls, {:?}",
            self.bytes, self.calls, self.time
        )
    }
}

impl Driver for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        self.read_options(options)?;
        Ok(Built::Transform(Arc::new(self.clone())))
    }
}

impl Transform for Trace {
    fn wrap(
        &self,
        channel: Box<dyn Channel>,
        side: Side,
        _operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        Ok(Box::new(TracedChannel {
            account: Account {
                peer: channel.peer(),
                side,
                lifetime: Duration::ZERO,
                sent: Tally::default(),
                received: Tally::default(),
                is_finished: false,
                is_aborted: false,
                error: None,
            },
            opened: Instant::now(),
            trace: self.clone(),
            inner: channel,
        }))
    }
}

#[derive(Debug)]
struct TracedChannel {
    account: Account,
    opened: Instant,
    trace: Trace,
    inner: Box<dyn Channel>,
}

impl TracedChannel {
    fn note_error<T>(&mut self, outcome: &Result<T, ChannelError>) {
        if let Err(error) = outcome
            && self.account.error.is_none()
        {
            self.account.error = Some(error.to_string());
        }
    }
}

impl Tally {
    fn add(&mut self, start: Instant, bytes: u64) {
        self.calls += 1;
        self.bytes += bytes;
        self.time += start.elapsed();
    }
}

impl Channel for TracedChannel {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let (length, moved) = match &body {
            Body::Memory(bytes) => (bytes.len() as u64, None),
            Body::File(range) => (range.length, Some(range.moved)),
        };
        let moved = moved.map(|counter| (counter, counter.load(Ordering::Acquire)));
        let start = Instant::now();
        let outcome = self.inner.send(head, body, operation);
        let bytes = match (&outcome, moved) {
            (Ok(()), _) => head.len() as u64 + length,
            (Err(_), Some((counter, before))) => counter.load(Ordering::Acquire) - before,
            (Err(_), None) => 0,
        };
        self.account.sent.add(start, bytes);
        self.note_error(&outcome);
        outcome
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        let start = Instant::now();
        let outcome = self.inner.receive(buffer, operation);
        let bytes = match &outcome {
            Ok(Received::Bytes(count)) => count.get() as u64,
            Ok(Received::EndOfStream) | Err(_) => 0,
        };
        self.account.received.add(start, bytes);
        self.note_error(&outcome);
        outcome
    }

    fn receive_into(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let moved = range.moved;
        let before = moved.load(Ordering::Acquire);
        let start = Instant::now();
        let outcome = self.inner.receive_into(range, operation);
        let bytes = moved.load(Ordering::Acquire) - before;
        self.account.received.add(start, bytes);
        self.note_error(&outcome);
        outcome
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        let outcome = self.inner.finish(operation);
        self.account.is_finished |= outcome.is_ok();
        self.note_error(&outcome);
        outcome
    }

    fn abort(&mut self) {
        self.account.is_aborted = true;
        self.inner.abort();
    }

    fn is_delivered(&self) -> bool {
        self.inner.is_delivered()
    }

    fn peer(&self) -> SocketAddr {
        self.account.peer
    }

    fn info(&self) -> ChannelInfo {
        self.inner.info()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.inner.watch()
    }
}

impl Drop for TracedChannel {
    fn drop(&mut self) {
        self.account.lifetime = self.opened.elapsed();
        (self.trace.sink)(&self.account);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::fd::AsFd;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::{Cancel, Memory, Stack};

    #[test]
    fn accounts_for_both_ends_of_a_channel() {
        let accounts = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&accounts);
        let trace = Trace::new(move |account| sink.lock().unwrap().push(account.clone()));
        let Ok(Built::Transport(memory)) = Memory.build(&[]) else {
            panic!("memory is a transport");
        };
        let stack = Stack::new(memory, vec![Arc::new(trace)]);
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut listener = stack.listen(local, &Default::default()).unwrap();
        let address = listener.address();
        let mut one = stack
            .connect(address, &Default::default(), &operation)
            .unwrap();
        let incoming = listener.accept(&operation).unwrap();
        let mut other = incoming.establish(&operation).unwrap();

        let file = tempfile::tempfile().unwrap();
        rustix::io::pwrite(&file, b"0123456789", 0).unwrap();
        let moved = AtomicU64::new(0);
        let mut scratches = [[0; 100]; 3];
        let [first, second, third] = &mut scratches;
        let range = |length, scratch| FileRange::new(file.as_fd(), 0, length, scratch, &moved);
        one.send(b"head", Body::Memory(b"body"), &operation)
            .unwrap();
        one.send(b"", Body::File(range(10, first)), &operation)
            .unwrap();
        one.send(b"", Body::File(range(11, second)), &operation)
            .unwrap_err();
        one.finish(&operation).unwrap();
        other.receive(&mut [0; 8], &operation).unwrap();
        other.receive_into(range(10, third), &operation).unwrap();
        other.abort();
        drop(one);
        drop(other);

        let accounts = accounts.lock().unwrap();
        let [one, other] = &accounts[..] else {
            panic!("{accounts:?}");
        };
        assert_eq!((one.side, one.peer), (Side::Connector, address));
        assert_eq!((one.sent.calls, one.sent.bytes), (3, 28));
        assert_eq!(one.received, Tally::default());
        assert!(one.is_finished && !one.is_aborted);
        let error = one.error.as_deref().unwrap();
        assert!(error.starts_with("the file ends at byte 10"), "{error}");
        assert_eq!(other.side, Side::Acceptor);
        assert_eq!((other.received.calls, other.received.bytes), (2, 18));
        assert!(other.is_aborted && !other.is_finished && other.error.is_none());
        let line = one.to_string();
        assert!(line.contains("sent 28 bytes in 3 calls"), "{line}");
        assert!(line.contains("; finished; failed: the file"), "{line}");
    }
}
