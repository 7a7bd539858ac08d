//! The conformance suite: the properties of every transport, alone and under each transform.
//!
//! Each public function here is one property. [`crate::conformance_tests!`] makes a test of each property for a stack:
//!
//! ```text
//! gridhaul_stack::conformance_tests!(plain, subject("tcp"));
//! gridhaul_stack::conformance_tests!(short, subject("tcp,fault:short=61;seed=7"));
//! ```
//!
//! A channel must buffer at least 200 bytes. Handshakes of transforms are not covered; the transform's own tests cover them.
//!
//! No property depends on the speed of the machine, except cancellation: a call must end within 100 ms. On a busy machine threads
//! may be scheduled late, so a single call may take a second, and the median of five calls 100 ms, in one of three attempts. The
//! measured time that this machine needs to wake a few threads is added to both.

mod data;
mod ends;
mod files;
mod opening;
mod timing;

pub use self::data::{
    carries_empty_messages, carries_requests_and_answers, keeps_the_order_of_bytes,
    sends_bodies_larger_than_every_buffer, sends_every_extent,
};
pub use self::ends::{
    abort_before_any_byte, abort_while_the_peer_receives, abort_while_the_peer_sends,
    abort_with_bytes_in_flight, drop_ends_the_stream, half_close, notices_a_closed_peer,
};
pub use self::files::{
    counts_bytes_of_a_failed_receive, file_errors_differ_from_network_errors,
    receive_into_stops_at_its_length, receive_into_stops_at_the_end_of_the_stream,
    receives_every_extent_into_a_file, reports_the_end_of_a_short_file,
};
pub use self::opening::{
    accepts_all_pending_connections, check_options, opens_many_channels_without_leaks,
    refuses_ports_without_a_listener,
};
pub use self::timing::{
    cancel_ends_a_busy_call, cancel_ends_an_idle_call, deadline_ends_every_call,
    fails_at_once_after_the_deadline,
};

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::thread::Pid;

use crate::{
    Body, Cancel, Channel, ChannelError, FileRange, Operation, Received, Side, SocketOptions,
    Stack, StackListener,
};

/// Makes a module with a test for each property of [`crate::conformance`], for a [`crate::conformance::Subject`]. Attributes before
/// the module's name are applied to each test.
#[macro_export]
macro_rules! conformance_tests {
    ($(#[$attribute:meta])* $module:ident, $subject:expr) => {
        mod $module {
            use super::*;

            $crate::conformance_tests! { @each [$(#[$attribute])*] $subject;
                keeps_the_order_of_bytes
                sends_every_extent
                sends_bodies_larger_than_every_buffer
                carries_requests_and_answers
                carries_empty_messages
                receives_every_extent_into_a_file
                receive_into_stops_at_its_length
                receive_into_stops_at_the_end_of_the_stream
                counts_bytes_of_a_failed_receive
                reports_the_end_of_a_short_file
                file_errors_differ_from_network_errors
                half_close
                drop_ends_the_stream
                notices_a_closed_peer
                abort_before_any_byte
                abort_with_bytes_in_flight
                abort_while_the_peer_receives
                abort_while_the_peer_sends
                deadline_ends_every_call
                fails_at_once_after_the_deadline
                cancel_ends_an_idle_call
                cancel_ends_a_busy_call
                accepts_all_pending_connections
                refuses_ports_without_a_listener
                opens_many_channels_without_leaks
            }
        }
    };
    (@each $attributes:tt $subject:expr; $($property:ident)+) => {
        $($crate::conformance_tests! { @one $attributes $subject; $property })+
    };
    (@one [$($attributes:tt)*] $subject:expr; $property:ident) => {
        $($attributes)*
        #[test]
        fn $property() {
            $crate::conformance::$property(&$subject);
        }
    };
}

/// The stack under test, and the address that it listens on.
#[derive(Debug, Clone)]
pub struct Subject {
    stack: Stack,
    local: IpAddr,
    sockets: SocketOptions,
    openings: usize,
}

impl Subject {
    /// Tests a stack on 127.0.0.1.
    pub fn new(stack: Stack) -> Self {
        Self {
            stack,
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            sockets: SocketOptions::default(),
            openings: 1000,
        }
    }

    /// The same stack on another local address.
    pub fn at(self, local: IpAddr) -> Self {
        Self { local, ..self }
    }

    /// The number of channels to open when searching for leaks, instead of a thousand; for channels that are slow to open.
    pub fn openings(self, openings: usize) -> Self {
        Self { openings, ..self }
    }

    fn listen(&self) -> StackListener {
        self.stack.listen(self.local, &self.sockets).unwrap()
    }

    /// Connects while `listener` accepts; returns the connecting end first.
    fn meet(&self, listener: &mut StackListener) -> (Box<dyn Channel>, Box<dyn Channel>) {
        let time_limit = TimeLimit::new();
        let address = listener.address();
        thread::scope(|scope| {
            let connecting = scope.spawn(|| self.connect(address));
            let incoming = listener.accept(&time_limit.operation()).unwrap();
            let acceptor = incoming.establish(&time_limit.operation()).unwrap();
            (connecting.join().unwrap(), acceptor)
        })
    }

    fn connect(&self, address: SocketAddr) -> Box<dyn Channel> {
        self.stack
            .connect(address, &self.sockets, &TimeLimit::new().operation())
            .unwrap()
    }

    /// Both ends of a new channel; the first one is on the given side.
    fn pair(&self, side: Side) -> (Box<dyn Channel>, Box<dyn Channel>) {
        let (connector, acceptor) = self.meet(&mut self.listen());
        match side {
            Side::Connector => (connector, acceptor),
            Side::Acceptor => (acceptor, connector),
        }
    }
}

const SIDES: [Side; 2] = [Side::Connector, Side::Acceptor];

/// The time after which a driver is considered hung.
struct TimeLimit {
    cancel: Cancel,
    deadline: Instant,
}

impl TimeLimit {
    fn new() -> Self {
        Self {
            cancel: Cancel::new(),
            deadline: Instant::now() + Duration::from_secs(60),
        }
    }

    fn operation(&self) -> Operation<'_> {
        Operation {
            deadline: Some(self.deadline),
            cancel: &self.cancel,
        }
    }
}

/// A part of an infinite sequence, from `start` on, so that misplaced bytes are detected.
fn pattern(start: u64, length: usize) -> Vec<u8> {
    (start..)
        .take(length)
        .map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0])
        .collect()
}

/// A file in memory with this content.
fn file_of(content: &[u8]) -> OwnedFd {
    let file = memfd_create("conformance", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(
        rustix::io::pwrite(&file, content, 0).unwrap(),
        content.len()
    );
    file
}

fn content_of(file: &OwnedFd) -> Vec<u8> {
    let size = rustix::fs::fstat(file).unwrap().st_size;
    let mut content = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(
        rustix::io::pread(file, &mut content[..], 0).unwrap(),
        content.len()
    );
    content
}

/// A range of a file that a test sends or receives.
#[derive(Clone, Copy)]
struct Part<'a> {
    file: &'a OwnedFd,
    offset: u64,
    length: u64,
    /// The length of the driver's scratch memory in bytes.
    scratch: usize,
    moved: &'a AtomicU64,
}

impl Part<'_> {
    fn send(
        self,
        channel: &mut dyn Channel,
        head: &[u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let mut scratch = vec![0; self.scratch];
        let direct = reopened(self.file, OFlags::RDONLY);
        let range = self.range(&mut scratch, direct.as_ref());
        channel.send(head, Body::File(range), operation)
    }

    fn receive(
        self,
        channel: &mut dyn Channel,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let mut scratch = vec![0; self.scratch];
        let direct = reopened(self.file, OFlags::WRONLY);
        channel.receive_into(self.range(&mut scratch, direct.as_ref()), operation)
    }

    fn range<'a>(&'a self, scratch: &'a mut [u8], direct: Option<&'a OwnedFd>) -> FileRange<'a> {
        FileRange {
            direct: direct.map(AsFd::as_fd),
            ..FileRange::new(
                self.file.as_fd(),
                self.offset,
                self.length,
                scratch,
                self.moved,
            )
        }
    }
}

/// The same file with `O_DIRECT`, if the kernel supports that for tmpfs (Linux 6.6).
fn reopened(file: &OwnedFd, access: OFlags) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Sends bytes without a head, with a timeout.
fn send(channel: &mut dyn Channel, bytes: &[u8]) {
    channel
        .send(&[], Body::Memory(bytes), &TimeLimit::new().operation())
        .unwrap();
}

/// Receives exactly `length` bytes, in pieces of at most `piece`.
fn receive(channel: &mut dyn Channel, length: usize, piece: usize) -> Vec<u8> {
    let time_limit = TimeLimit::new();
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let end = length.min(done + piece);
        match channel.receive(&mut bytes[done..end], &time_limit.operation()) {
            Ok(Received::Bytes(count)) => done += count.get(),
            other => panic!("{other:?} after {done} of {length} bytes"),
        }
    }
    bytes
}

fn finish(channel: &mut dyn Channel) {
    channel.finish(&TimeLimit::new().operation()).unwrap();
}

fn expect_end_of_stream(channel: &mut dyn Channel) {
    let outcome = channel.receive(&mut [0; 16], &TimeLimit::new().operation());
    assert_eq!(outcome.unwrap(), Received::EndOfStream);
}

/// Waits until the thread sleeps in the kernel, if that can be observed. If not, a test covers less, but does not fail.
fn wait_until_asleep(thread: Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let stat = std::fs::read_to_string(&path).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if state == Some('S') {
            return;
        }
        thread::yield_now();
    }
}
