//! Protection domains, and memory registered in them.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::OpenDevice;
use crate::memory::{Memory, Span, release_later};
use crate::provider::Access;
use crate::verbs::bindings::{
    ACCESS_LOCAL_WRITE, ACCESS_RELAXED_ORDERING, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE,
    MemoryRegion, Segment,
};

/// A protection domain: keys of one domain are invalid in another.
#[derive(Debug)]
pub(in crate::verbs) struct Domain {
    pub(super) domain: NonNull<c_void>,
    pub(super) device: Arc<OpenDevice>,
    /// Relaxed ordering is not used: ibv_reg_mr(3) defines it for InfiniBand and RoCE. Or the device has
    /// refused it.
    is_strict: AtomicBool,
}

// SAFETY: as for the device.
unsafe impl Send for Domain {}
// SAFETY: as for the device.
unsafe impl Sync for Domain {}

impl Domain {
    /// `is_strict`: without relaxed ordering.
    pub(in crate::verbs) fn new(device: &Arc<OpenDevice>, is_strict: bool) -> io::Result<Self> {
        // SAFETY: the device is open.
        let domain = unsafe { (device.verbs.ibv_alloc_pd)(device.context.as_ptr()) };
        Ok(Self {
            domain: NonNull::new(domain).ok_or_else(io::Error::last_os_error)?,
            device: Arc::clone(device),
            is_strict: AtomicBool::new(is_strict),
        })
    }

    /// Registers memory with relaxed ordering, or without it where library or device cannot do that.
    ///
    /// Relaxed ordering lets the network's writes reach memory in any order, which adapters need for their
    /// full rate behind some PCI Express bridges. It is safe for this driver. According to ibv_reg_mr(3) of
    /// rdma-core it leaves completions as they are: with one, the data of its operation and of all earlier
    /// ones is visible. The engine counts bytes as arrived only when the completion of a message, of
    /// immediate data or of a READ says so, and lets the peer write to their place again only after that.
    /// Bytes that are sent twice, after a loss, are the same.
    ///
    /// # Safety
    ///
    /// The bytes are mapped until the region is deregistered, and no slice of them exists.
    unsafe fn register(
        &self,
        start: *mut u8,
        length: usize,
        access: c_int,
    ) -> io::Result<NonNull<MemoryRegion>> {
        let verbs = self.device.verbs;
        let (domain, start) = (self.domain.as_ptr(), start.cast::<c_void>());
        let relaxed = verbs.ibv_reg_mr_iova2;
        if let Some(register) = relaxed.filter(|_| !self.is_strict.load(Ordering::Relaxed)) {
            let access = (access | ACCESS_RELAXED_ORDERING).unsigned_abs();
            let address = start.expose_provenance() as u64;
            // SAFETY: the domain is valid; for the memory, see above.
            let region = unsafe { register(domain, start, length, address, access) };
            if let Some(region) = NonNull::new(region) {
                return Ok(region);
            }
            let error = io::Error::last_os_error();
            if !refuses_flags(&error) {
                return Err(error);
            }
        }
        // SAFETY: as above.
        let region = unsafe { (verbs.ibv_reg_mr)(domain, start, length, access) };
        let region = NonNull::new(region).ok_or_else(io::Error::last_os_error)?;
        self.is_strict.store(true, Ordering::Relaxed);
        Ok(region)
    }
}

/// A driver that does not know the flag should ignore it; some refuse it.
fn refuses_flags(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
    )
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything that depends on the domain holds this value, so none is left.
        unsafe { (self.device.verbs.ibv_dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Memory registered in a domain. When it is dropped, a long ring is deregistered by a thread of its own, and is held until then.
#[derive(Debug)]
pub(in crate::verbs) struct Registration {
    /// `None` only while it is dropped.
    registered: Option<Registered>,
}

#[derive(Debug)]
struct Registered {
    region: NonNull<MemoryRegion>,
    memory: Arc<Memory>,
    domain: Arc<Domain>,
}

// SAFETY: as for the device.
unsafe impl Send for Registered {}
// SAFETY: as for the device.
unsafe impl Sync for Registered {}

impl Registration {
    pub(in crate::verbs) fn new(
        domain: &Arc<Domain>,
        memory: &Arc<Memory>,
        access: Access,
    ) -> io::Result<Self> {
        let all = Span::new(0, memory.length());
        // All memory that a device may write to counts as used, because the device does not report
        // where it wrote.
        let (access, start) = match access {
            // Pages of a file that is open for reading can only be registered in this way.
            Access::Local => (0, memory.pointer_to_read(all).cast_mut()),
            // The device writes the responses of READs there.
            Access::Sink => (ACCESS_LOCAL_WRITE, memory.pointer(all)),
            // ibv_reg_mr(3): remote writing needs local writing.
            Access::RemoteWrite => (
                ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
                memory.pointer(all),
            ),
            Access::RemoteRead => (ACCESS_REMOTE_READ, memory.pointer_to_read(all).cast_mut()),
        };
        // SAFETY: the memory is mapped while the registration holds it, and no slice of it exists.
        let region = unsafe { domain.register(start, all.length, access) }?;
        let registered = Registered {
            region,
            memory: Arc::clone(memory),
            domain: Arc::clone(domain),
        };
        Ok(Self {
            registered: Some(registered),
        })
    }

    fn registered(&self) -> &Registered {
        self.registered
            .as_ref()
            .expect("registered, until it is dropped")
    }

    /// What the device knows of it.
    fn region(&self) -> &MemoryRegion {
        // SAFETY: the region lives as long as this value, and nothing writes to it.
        unsafe { self.registered().region.as_ref() }
    }

    pub(in crate::verbs) fn memory(&self) -> &Memory {
        &self.registered().memory
    }

    /// The key with which peers prove their right.
    pub(in crate::verbs) fn remote_key(&self) -> u32 {
        self.region().remote_key
    }

    /// A part of it, for a request.
    ///
    /// # Panics
    ///
    /// When the span is outside the memory, as [`Memory::pointer`].
    pub(super) fn segment(&self, span: Span) -> Segment {
        Segment {
            address: self.memory().pointer_to_read(span).expose_provenance() as u64,
            length: u32::try_from(span.length)
                .expect("a message is no longer than Limits::message_bytes"),
            local_key: self.region().local_key,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(registered) = self.registered.take() else {
            return;
        };
        // Memory for messages and sections of files have no part of the pool that would count until then.
        if registered.memory.counts() {
            release_later(registered.memory.length(), registered);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it is registered, and this is the only place that ends that.
        let code = unsafe { (self.domain.device.verbs.ibv_dereg_mr)(self.region.as_ptr()) };
        if code != 0 {
            // The device can still access the pages, which must not go to another channel.
            self.memory.keep_pinned();
        }
    }
}
