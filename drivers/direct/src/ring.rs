//! Requests over io_uring.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gridhaul_stack::measured::cpu_time;
use io_uring::{EnterFlags, IoUring, Probe, Submitter, opcode, squeue, types};
use rustix::io::Errno;

use crate::backend::{Backend, MAX_REQUESTS, RawRequest};
use crate::blocking::carry_out;
use crate::fixed::{BufferTable, FixedBuffers};
use crate::request::Call;
use crate::target::LastingMemory;

/// The pause after the kernel could not accept a request, for lack of memory for example.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// The kernel has so much time to accept a request. Then blocking calls do the work: otherwise the channel would wait for as long as
/// the kernel refuses, also after its transfer was cancelled.
const PATIENCE: Duration = Duration::from_secs(1);

/// The submission and completion queues that are shared with the kernel.
///
/// The kernel takes entries of the submission queue in their order, and only in io_uring_enter(2): the queue is not polled by a thread
/// of the kernel. So the kernel does not use the memory of a request in [`Ring::unaccepted`]. Entries cannot be taken back. A ring in
/// whose queue one was given up is *retired*: it submits nothing any more, and only waits for what the kernel has accepted.
pub(crate) struct Ring<E = Kernel> {
    queues: IoUring,
    enter: E,
    /// The requests in the submission queue that the kernel has not accepted, in its order.
    unaccepted: VecDeque<RawRequest>,
    /// Since when it has accepted none of them.
    refused_since: Option<Instant>,
    patience: Duration,
    retired: Option<Retired>,
    /// The results of requests that blocking calls have carried out, for the next [`Backend::reap`].
    ended: Vec<(usize, Result<usize, Errno>)>,
    /// Dropped after the queues, and so after the registration.
    fixed: FixedBuffers,
}

/// Why a ring submits nothing any more.
#[derive(Debug)]
pub(crate) enum Retired {
    /// Requests were given up because their queue ended. A new ring can do more.
    Withdrawn,
    /// The kernel has refused requests for long, with this error.
    Refused(io::Error),
}

/// The call io_uring_enter(2). Tests have another one, which fails.
pub(crate) trait Enter {
    /// Submits the entries of the submission queue, and waits until `wanted` requests have completed.
    fn submit(&mut self, queues: &IoUring, wanted: usize) -> io::Result<usize>;

    /// Waits until `wanted` requests have completed, and submits nothing.
    fn wait(&mut self, queues: &IoUring, wanted: u32) -> io::Result<usize>;
}

/// The kernel's call.
pub(crate) struct Kernel;

impl Enter for Kernel {
    fn submit(&mut self, queues: &IoUring, wanted: usize) -> io::Result<usize> {
        queues.submit_and_wait(wanted)
    }

    fn wait(&mut self, queues: &IoUring, wanted: u32) -> io::Result<usize> {
        let (submitter, flags) = (queues.submitter(), EnterFlags::GETEVENTS.bits());
        // SAFETY: it submits no entry, and the call has no argument.
        unsafe { submitter.enter::<libc::sigset_t>(0, wanted, flags, None) }
    }
}

impl Ring {
    /// Opens the queues, which take a descriptor and two pages.
    ///
    /// # Errors
    ///
    /// When the kernel has no io_uring (before Linux 5.1), lacks the requests used here (before 5.6), or forbids it to this
    /// process (seccomp filters, `kernel.io_uring_disabled`).
    pub(crate) fn open() -> io::Result<Self> {
        static READS_AND_WRITES: OnceLock<bool> = OnceLock::new();
        let entries = u32::try_from(MAX_REQUESTS).expect("a small number");
        let queues = IoUring::new(entries)?;
        if !READS_AND_WRITES.get_or_init(|| reads_and_writes(&queues)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self::over(queues, Kernel, PATIENCE))
    }

    /// Before a queue that moves so many bytes from or to this memory. No request is in flight.
    pub(crate) fn prepare(&mut self, memory: &LastingMemory, bytes: u64) {
        self.fixed
            .prepare(&mut Registrations(self.queues.submitter()), memory, bytes);
    }

    /// See [`FixedBuffers::way`].
    pub(crate) fn way(&self) -> &'static str {
        self.fixed.way()
    }

    /// Gives up registered memory that nothing else keeps. No request is in flight.
    pub(crate) fn release(&mut self) {
        self.fixed
            .release(&mut Registrations(self.queues.submitter()));
    }
}

impl<E: Enter> Ring<E> {
    fn over(queues: IoUring, enter: E, patience: Duration) -> Self {
        Self {
            queues,
            enter,
            unaccepted: VecDeque::new(),
            refused_since: None,
            patience,
            retired: None,
            ended: Vec::new(),
            fixed: FixedBuffers::default(),
        }
    }

    /// It submits nothing any more, for this reason.
    pub(crate) fn retire(&mut self, retired: Retired) {
        (self.retired, self.refused_since) = (Some(retired), None);
    }

    /// Why it submits nothing any more, if so. Then another engine has to take its place once no request is in flight.
    pub(crate) fn take_retired(&mut self) -> Option<Retired> {
        self.retired.take()
    }

    /// Submits all entries, and waits until `wanted` requests have completed. The kernel may accept some entries only, or none, which
    /// is an error.
    fn enter(&mut self, wanted: u32) -> io::Result<usize> {
        if self.retired.is_some() {
            return self.enter.wait(&self.queues, wanted);
        }
        let entered = self.enter.submit(&self.queues, wanted as usize);
        let left = self.queues.submission().len();
        let accepted = self.unaccepted.len().saturating_sub(left);
        self.unaccepted.drain(..accepted);
        if self.unaccepted.is_empty() {
            self.refused_since = None;
            return entered;
        }
        if accepted > 0 || self.refused_since.is_none() {
            self.refused_since = Some(Instant::now());
        }
        // It returns the number of accepted entries, or the error if it has accepted none.
        entered.and_then(|_| Err(Errno::AGAIN.into()))
    }

    /// Whether the kernel has accepted no request for so long that blocking calls have to do the work.
    fn is_refused_for_long(&self) -> bool {
        let patience = self.patience;
        self.refused_since
            .is_some_and(|since| since.elapsed() >= patience)
    }

    /// Carries out with blocking calls what the kernel has refused with this error.
    fn carry_out_refused(&mut self, error: io::Error) {
        self.retire(Retired::Refused(error));
        for request in std::mem::take(&mut self.unaccepted) {
            // SAFETY: the submitter keeps the file and the memory until the completion, and the kernel never gets the request: a
            // retired ring submits nothing.
            let result = unsafe { carry_out(&request) };
            self.ended.push((request.slot, result));
        }
    }

    /// The entry for a request.
    fn entry(&self, request: &RawRequest) -> squeue::Entry {
        let file = types::Fd(request.file);
        let length = u32::try_from(request.length).expect("a request is shorter than 4 GiB");
        let (start, offset) = (request.start, request.offset);
        let fixed = self.fixed.index(start, request.length);
        let entry = match (request.call, fixed) {
            (Call::Read, Some(buffer)) => opcode::ReadFixed::new(file, start, length, buffer)
                .offset(offset)
                .build(),
            (Call::Read, None) => opcode::Read::new(file, start, length)
                .offset(offset)
                .build(),
            (Call::Write, Some(buffer)) => opcode::WriteFixed::new(file, start, length, buffer)
                .offset(offset)
                .build(),
            (Call::Write, None) => opcode::Write::new(file, start, length)
                .offset(offset)
                .build(),
        };
        entry.user_data(request.slot as u64)
    }
}

/// The registered buffers of a ring.
struct Registrations<'a>(Submitter<'a>);

impl Registrations<'_> {
    /// Places without memory. Before Linux 5.13, the kernel refuses them (EFAULT).
    const NO_BUFFER: libc::iovec = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };

    fn buffer(addresses: &Range<usize>) -> libc::iovec {
        libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(addresses.start),
            iov_len: addresses.len(),
        }
    }

    /// # Safety
    ///
    /// As [`BufferTable::fill`].
    unsafe fn update(&self, place: usize, buffer: libc::iovec) -> io::Result<()> {
        let place = u32::try_from(place).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller keeps the memory.
        unsafe { self.0.register_buffers_update(place, &[buffer], None) }
    }
}

impl BufferTable for Registrations<'_> {
    fn open(&mut self, places: usize) -> io::Result<()> {
        // SAFETY: they have no memory.
        unsafe { self.0.register_buffers(&vec![Self::NO_BUFFER; places]) }
    }

    unsafe fn fill(&mut self, place: usize, buffer: &Range<usize>) -> io::Result<Duration> {
        let before = cpu_time();
        // SAFETY: the caller keeps the memory.
        unsafe { self.update(place, Self::buffer(buffer)) }?;
        Ok(cpu_time().saturating_sub(before))
    }

    /// Kernels before 6.13 unpin the pages up to a second later.
    fn clear(&mut self, place: usize) -> io::Result<()> {
        // SAFETY: it has no memory.
        unsafe { self.update(place, Self::NO_BUFFER) }
    }

    unsafe fn open_whole(&mut self, buffer: &Range<usize>) -> io::Result<()> {
        // SAFETY: the caller keeps the memory.
        unsafe { self.0.register_buffers(&[Self::buffer(buffer)]) }
    }

    fn close_whole(&mut self) -> io::Result<()> {
        self.0.unregister_buffers()
    }
}

impl<E> fmt::Debug for Ring<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// Whether the kernel has `IORING_OP_READ` and `IORING_OP_WRITE` (Linux 5.6).
fn reads_and_writes(queues: &IoUring) -> bool {
    let mut probe = Probe::new();
    queues.submitter().register_probe(&mut probe).is_ok()
        && probe.is_supported(opcode::Read::CODE)
        && probe.is_supported(opcode::Write::CODE)
}

impl<E: Enter> Backend for Ring<E> {
    unsafe fn submit(&mut self, request: RawRequest) {
        if self.retired.is_some() {
            // SAFETY: the caller keeps the file and the memory until the completion.
            let result = unsafe { carry_out(&request) };
            self.ended.push((request.slot, result));
            return;
        }
        let entry = self.entry(&request);
        // SAFETY: the caller keeps the file and the memory until the completion.
        let pushed = unsafe { self.queues.submission().push(&entry) };
        pushed.expect("the submission queue has an entry for each slot");
        self.unaccepted.push_back(request);
        // A request that the kernel does not accept now is submitted again by the next `reap`, and `retry_in` says when.
        let _ = self.enter(0);
    }

    fn reap(&mut self, waits: bool, ended: &mut dyn FnMut(usize, Result<usize, Errno>)) {
        // What has ended already is not waited for.
        let waits = waits && self.ended.is_empty();
        let entered = match (waits, self.unaccepted.is_empty()) {
            (true, _) => self.enter(1),
            (false, false) => self.enter(0),
            (false, true) => Ok(0),
        };
        for completion in self.queues.completion() {
            // The user data of every request is its slot.
            let slot = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            let result = completion.result();
            ended(
                slot,
                usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)),
            );
        }
        match entered {
            Err(error) if self.is_refused_for_long() => self.carry_out_refused(error),
            Err(error) if waits && error.kind() != io::ErrorKind::Interrupted => {
                std::thread::sleep(RETRY_DELAY);
            }
            Ok(_) | Err(_) => {}
        }
        for (slot, result) in self.ended.drain(..) {
            ended(slot, result);
        }
    }

    fn withdraw(&mut self, ended: &mut dyn FnMut(usize, Result<usize, Errno>)) {
        if self.unaccepted.is_empty() {
            return;
        }
        self.retire(Retired::Withdrawn);
        for request in self.unaccepted.drain(..) {
            ended(request.slot, Err(Errno::CANCELED));
        }
    }

    /// io_uring(7): it is readable while there are completions.
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: it stays open while `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.queues.as_raw_fd()) }
    }

    fn retry_in(&self) -> Option<Duration> {
        let is_quiet = self.unaccepted.is_empty() && self.ended.is_empty();
        (!is_quiet).then_some(RETRY_DELAY)
    }
}

#[cfg(test)]
mod tests;
