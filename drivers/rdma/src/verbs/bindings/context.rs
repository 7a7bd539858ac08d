//! Objects that the library allocates.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};

use super::attributes::ExtendedAttributes;
use super::requests::{ReceiveRequest, SendRequest, WorkCompletion};

/// `struct ibv_device`, which is opaque here.
#[repr(C)]
pub(in crate::verbs) struct Device {
    _opaque: [u8; 0],
}

type Unused<const COUNT: usize> = [*mut c_void; COUNT];

/// The head of `struct ibv_context`, with the `ibv_context_ops` in it: these four functions are no
/// symbols of the library.
#[repr(C)]
pub(in crate::verbs) struct Context {
    pub(in crate::verbs) device: *mut Device,
    before_poll: Unused<11>,
    pub(in crate::verbs) poll_cq:
        unsafe extern "C" fn(*mut c_void, c_int, *mut WorkCompletion) -> c_int,
    pub(in crate::verbs) req_notify_cq: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    before_send: Unused<12>,
    pub(in crate::verbs) post_send:
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(in crate::verbs) post_recv: unsafe extern "C" fn(
        *mut QueuePair,
        *mut ReceiveRequest,
        *mut *mut ReceiveRequest,
    ) -> c_int,
    after_receive: Unused<5>,
    command: c_int,
    pub(in crate::verbs) async_descriptor: c_int,
    pub(in crate::verbs) completion_vectors: c_int,
    mutex: libc::pthread_mutex_t,
    /// [`EXTENDED`] if an [`Extension`] is in front of the context.
    pub(in crate::verbs) abi_compat: *mut c_void,
}

/// `__VERBS_ABI_IS_EXTENDED`
pub(in crate::verbs) const EXTENDED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// `modify_qp_rate_limit` of `struct verbs_context`.
pub(in crate::verbs) type LimitQueuePair =
    unsafe extern "C" fn(*mut QueuePair, *mut RateLimit) -> c_int;

/// `query_device_ex` of `struct verbs_context`.
pub(in crate::verbs) type QueryDevice =
    unsafe extern "C" fn(*mut Context, *const c_void, *mut ExtendedAttributes, usize) -> c_int;

/// The end of `struct verbs_context`, which is in front of a context. New fields are added at its beginning, so that offsets from
/// the context stay. Only the fields that `size` covers are there.
#[repr(C)]
pub(in crate::verbs) struct Extension {
    /// Since rdma-core 18.
    pub(in crate::verbs) modify_qp_rate_limit: Option<LimitQueuePair>,
    before_query: Unused<13>,
    pub(in crate::verbs) query_device_ex: Option<QueryDevice>,
    after_query: Unused<11>,
    /// The size of `struct verbs_context` with its context, where the library was built.
    pub(in crate::verbs) size: usize,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Extension>() == 216);
    assert!(offset_of!(Extension, query_device_ex) == 216 - 104);
    assert!(offset_of!(Extension, size) == 216 - 8);
};

/// `struct ibv_qp_rate_limit_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::verbs) struct RateLimit {
    /// In kilobits per second.
    pub(in crate::verbs) rate: u32,
    pub(in crate::verbs) burst_bytes: u32,
    pub(in crate::verbs) packet_bytes: u16,
    pub(in crate::verbs) mask: u32,
}

const _: () = assert!(size_of::<RateLimit>() == 16);

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Context, poll_cq) == 96);
    assert!(offset_of!(Context, post_send) == 208);
    assert!(offset_of!(Context, async_descriptor) == 268);
    assert!(offset_of!(Context, completion_vectors) == 272);
};

/// `struct ibv_mr`.
#[repr(C)]
pub(in crate::verbs) struct MemoryRegion {
    context: *mut Context,
    domain: *mut c_void,
    address: *mut c_void,
    length: usize,
    handle: u32,
    pub(in crate::verbs) local_key: u32,
    pub(in crate::verbs) remote_key: u32,
}

const _: () = assert!(offset_of!(MemoryRegion, remote_key) == 40);

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(in crate::verbs) struct CompletionChannel {
    context: *mut Context,
    pub(in crate::verbs) descriptor: c_int,
}

/// The head of `struct ibv_qp`.
#[repr(C)]
pub(in crate::verbs) struct QueuePair {
    pub(in crate::verbs) context: *mut Context,
    pointers: Unused<5>,
    handle: u32,
    pub(in crate::verbs) number: u32,
}

const _: () = assert!(offset_of!(QueuePair, number) == 52);
