//! What every transport does, alone and under each transform.
//!
//! Each public function here is one property. A driver's tests name the stacks they are about, and
//! [`crate::conformance_tests!`] makes one test of each property for each of them:
//!
//! ```text
//! gridhaul_stack::conformance_tests!(plain, subject("tcp"));
//! gridhaul_stack::conformance_tests!(short, subject("tcp,fault:short=61;seed=7"));
//! ```
//!
//! A channel is expected to hold at least 200 bytes that were not received yet.
//! Handshakes of transforms are not examined: a transform that has one tests it itself.
//!
//! No property depends on how fast the machine is, but for cancelling: a call must end within 100 ms.
//! On a busy machine a thread may be late for reasons of its own, so each single call has a second,
//! and the median of five calls 100 ms, in one of three tries; to both comes what this machine
//! needs to wake a few threads at that time.

mod data;
mod ends;
mod files;
mod opening;
mod timing;

pub use self::data::{
    carries_both_directions_in_turn, carries_nothing, keeps_the_order_of_bytes,
    sends_bodies_larger_than_every_buffer, sends_every_extent,
};
pub use self::ends::{
    abort_before_any_byte, abort_while_the_peer_receives, abort_while_the_peer_sends,
    abort_with_bytes_under_way, drop_ends_the_stream, half_close, notices_a_peer_that_is_gone,
};
pub use self::files::{
    counts_what_a_failed_receive_left, file_errors_are_not_the_networks,
    receive_into_stops_at_its_length, receive_into_stops_at_the_end_of_the_stream,
    receives_every_extent_into_a_file, says_where_a_file_is_too_short,
};
pub use self::opening::{
    accepts_those_who_wait, check_options, opens_again_and_again, refuses_where_nobody_listens,
};
pub use self::timing::{
    cancel_ends_a_busy_call, cancel_ends_an_idle_call, deadline_ends_every_call,
    fails_at_once_when_time_is_up,
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

/// Makes a module of tests, one for each property of [`crate::conformance`], for a
/// [`crate::conformance::Subject`]. Attributes before the module's name are those of each test.
#[macro_export]
macro_rules! conformance_tests {
    ($(#[$attribute:meta])* $module:ident, $subject:expr) => {
        mod $module {
            use super::*;

            $crate::conformance_tests! { @each [$(#[$attribute])*] $subject;
                keeps_the_order_of_bytes
                sends_every_extent
                sends_bodies_larger_than_every_buffer
                carries_both_directions_in_turn
                carries_nothing
                receives_every_extent_into_a_file
                receive_into_stops_at_its_length
                receive_into_stops_at_the_end_of_the_stream
                counts_what_a_failed_receive_left
                says_where_a_file_is_too_short
                file_errors_are_not_the_networks
                half_close
                drop_ends_the_stream
                notices_a_peer_that_is_gone
                abort_before_any_byte
                abort_with_bytes_under_way
                abort_while_the_peer_receives
                abort_while_the_peer_sends
                deadline_ends_every_call
                fails_at_once_when_time_is_up
                cancel_ends_an_idle_call
                cancel_ends_a_busy_call
                accepts_those_who_wait
                refuses_where_nobody_listens
                opens_again_and_again
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

/// A stack that is examined, and where it listens.
#[derive(Debug, Clone)]
pub struct Subject {
    stack: Stack,
    local: IpAddr,
    sockets: SocketOptions,
    openings: usize,
}

impl Subject {
    /// Examines a stack at 127.0.0.1.
    pub fn new(stack: Stack) -> Self {
        Self {
            stack,
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            sockets: SocketOptions::default(),
            openings: 1000,
        }
    }

    /// The same stack at another local address.
    pub fn at(self, local: IpAddr) -> Self {
        Self { local, ..self }
    }

    /// Opens so many channels to look for what they leave behind, instead of a thousand: for those that take long to
    /// open.
    pub fn openings(self, openings: usize) -> Self {
        Self { openings, ..self }
    }

    fn listen(&self) -> StackListener {
        self.stack.listen(self.local, &self.sockets).unwrap()
    }

    /// Connects while `listener` accepts; returns the connecting end first.
    fn meet(&self, listener: &mut StackListener) -> (Box<dyn Channel>, Box<dyn Channel>) {
        let patience = Patience::new();
        let address = listener.address();
        thread::scope(|scope| {
            let connecting = scope.spawn(|| self.connect(address));
            let incoming = listener.accept(&patience.operation()).unwrap();
            let acceptor = incoming.establish(&patience.operation()).unwrap();
            (connecting.join().unwrap(), acceptor)
        })
    }

    fn connect(&self, address: SocketAddr) -> Box<dyn Channel> {
        self.stack
            .connect(address, &self.sockets, &Patience::new().operation())
            .unwrap()
    }

    /// Two ends of a new channel; the first is on the given side.
    fn pair(&self, side: Side) -> (Box<dyn Channel>, Box<dyn Channel>) {
        let (connector, acceptor) = self.meet(&mut self.listen());
        match side {
            Side::Connector => (connector, acceptor),
            Side::Acceptor => (acceptor, connector),
        }
    }
}

const SIDES: [Side; 2] = [Side::Connector, Side::Acceptor];

/// A time after which a driver has failed rather than been slow.
struct Patience {
    cancel: Cancel,
    deadline: Instant,
}

impl Patience {
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

/// Bytes that tell where they belong: those of an endless sequence from `start` on.
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
    /// How long the driver's scratch memory is, in bytes.
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

/// The same file past the page cache, where the kernel has that for files in memory (Linux 6.6).
fn reopened(file: &OwnedFd, access: OFlags) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Sends bytes without a head, and gives up after a while.
fn send(channel: &mut dyn Channel, bytes: &[u8]) {
    channel
        .send(&[], Body::Memory(bytes), &Patience::new().operation())
        .unwrap();
}

/// Receives exactly `length` bytes, in pieces of at most `piece`.
fn receive(channel: &mut dyn Channel, length: usize, piece: usize) -> Vec<u8> {
    let patience = Patience::new();
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let end = length.min(done + piece);
        match channel.receive(&mut bytes[done..end], &patience.operation()) {
            Ok(Received::Bytes(count)) => done += count.get(),
            other => panic!("{other:?} after {done} of {length} bytes"),
        }
    }
    bytes
}

fn finish(channel: &mut dyn Channel) {
    channel.finish(&Patience::new().operation()).unwrap();
}

fn expect_end_of_stream(channel: &mut dyn Channel) {
    let outcome = channel.receive(&mut [0; 16], &Patience::new().operation());
    assert_eq!(outcome.unwrap(), Received::EndOfStream);
}

/// Returns once the thread sleeps in the kernel, as far as that can be seen. A thread that does not
/// makes a test less sharp, and never fail.
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
