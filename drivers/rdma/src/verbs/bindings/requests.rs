//! Work requests and their completions.

use std::ffi::{c_int, c_uint};
use std::mem::{offset_of, size_of};

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct Segment {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) length: u32,
    pub(in crate::verbs) local_key: u32,
}

impl Segment {
    pub(in crate::verbs) const EMPTY: Self = Self {
        address: 0,
        length: 0,
        local_key: 0,
    };
}

/// `struct ibv_send_wr`, with the part of its unions that RDMA uses.
#[repr(C)]
#[derive(Debug)]
pub(in crate::verbs) struct SendRequest {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) next: *mut Self,
    pub(in crate::verbs) segments: *mut Segment,
    pub(in crate::verbs) segment_count: c_int,
    pub(in crate::verbs) operation: c_int,
    pub(in crate::verbs) flags: c_uint,
    pub(in crate::verbs) immediate: u32,
    pub(in crate::verbs) remote_address: u64,
    pub(in crate::verbs) remote_key: u32,
    pub(in crate::verbs) rest: [u64; 9],
}

const _: () = {
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, remote_address) == 40);
    assert!(offset_of!(SendRequest, remote_key) == 48);
};

// enum ibv_wr_opcode
pub(in crate::verbs) const OPERATION_WRITE: c_int = 0;
pub(in crate::verbs) const OPERATION_WRITE_WITH_IMMEDIATE: c_int = 1;
pub(in crate::verbs) const OPERATION_SEND: c_int = 2;
pub(in crate::verbs) const OPERATION_READ: c_int = 4;

/// `IBV_SEND_SIGNALED`
pub(in crate::verbs) const SEND_SIGNALED: c_uint = 2;

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Debug)]
pub(in crate::verbs) struct ReceiveRequest {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) next: *mut Self,
    pub(in crate::verbs) segments: *mut Segment,
    pub(in crate::verbs) segment_count: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct WorkCompletion {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) status: c_int,
    pub(in crate::verbs) operation: c_int,
    vendor_error: u32,
    pub(in crate::verbs) length: u32,
    pub(in crate::verbs) immediate: u32,
    queue_pair: u32,
    source: u32,
    flags: c_uint,
    addressing: [u16; 2],
    more_addressing: [u8; 2],
}

const _: () = {
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(offset_of!(WorkCompletion, immediate) == 24);
};

impl WorkCompletion {
    /// An empty completion.
    pub(in crate::verbs) const EMPTY: Self = Self {
        id: 0,
        status: 0,
        operation: 0,
        vendor_error: 0,
        length: 0,
        immediate: 0,
        queue_pair: 0,
        source: 0,
        flags: 0,
        addressing: [0; 2],
        more_addressing: [0; 2],
    };
}

// enum ibv_wc_opcode
pub(in crate::verbs) const COMPLETED_WRITE_OF_PEER: c_int = 129;

// enum ibv_wc_status
pub(in crate::verbs) const STATUS_SUCCESS: c_int = 0;
pub(in crate::verbs) const STATUS_FLUSHED: c_int = 5;
