//! Objects that the library allocates.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

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
}

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
