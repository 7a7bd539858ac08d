//! libibverbs and librdmacm as C declares them, opened at first use.
//!
//! The program is built without their headers and starts without the libraries. Only what is used
//! is declared, from `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44; these parts of the
//! structures have not changed since symbol version IBVERBS_1.1. Sizes and offsets below are those
//! of a C compiler on a 64-bit machine.
//!
//! This module contains no safe functions and no decisions: `objects` and `connection_manager` are
//! the interface for others.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::OnceLock;

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("{file} cannot be loaded ({reason}); on Debian it comes with: apt install {packages}")]
    Missing {
        file: &'static str,
        packages: &'static str,
        reason: String,
    },
    #[error("{file} has no {function}; rdma-core 17 or later is needed")]
    Old {
        file: &'static str,
        function: &'static str,
    },
}

/// Declares the functions of a library and their lookup.
macro_rules! library {
    (
        $(#[$attribute:meta])* $library:ident, $file:literal, $packages:literal;
        $(fn $function:ident($($argument:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        pub(super) struct $library {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $library {
            /// The library, which is loaded once and stays loaded.
            ///
            /// # Errors
            ///
            /// When it is missing or too old.
            pub(super) fn get() -> Result<&'static Self, LibraryError> {
                static LOADED: OnceLock<Result<$library, LibraryError>> = OnceLock::new();
                LOADED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
            }

            fn load() -> Result<Self, LibraryError> {
                let library = Handle::open(concat!($file, "\0"), $file, $packages)?;
                Ok(Self {
                    $($function: {
                        let symbol = library.find(concat!(stringify!($function), "\0"))?;
                        // SAFETY: this is the function's type in the header named above.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

pub(super) use library;

library! {
    /// libibverbs(7). Its manual pages describe the functions.
    Verbs, "libibverbs.so.1", "libibverbs1 ibverbs-providers";
    fn ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    fn ibv_free_device_list(*mut *mut Device);
    fn ibv_get_device_name(*mut Device) -> *const c_char;
    fn ibv_open_device(*mut Device) -> *mut Context;
    fn ibv_close_device(*mut Context) -> c_int;
    fn ibv_query_device(*mut Context, *mut DeviceAttributes) -> c_int;
    fn ibv_query_port(*mut Context, u8, *mut PortAttributes) -> c_int;
    fn ibv_get_async_event(*mut Context, *mut AsyncEvent) -> c_int;
    fn ibv_ack_async_event(*mut AsyncEvent);
    fn ibv_event_type_str(c_int) -> *const c_char;
    fn ibv_alloc_pd(*mut Context) -> *mut c_void;
    fn ibv_dealloc_pd(*mut c_void) -> c_int;
    fn ibv_reg_mr(*mut c_void, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    fn ibv_dereg_mr(*mut MemoryRegion) -> c_int;
    fn ibv_create_comp_channel(*mut Context) -> *mut CompletionChannel;
    fn ibv_destroy_comp_channel(*mut CompletionChannel) -> c_int;
    fn ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut c_void;
    fn ibv_destroy_cq(*mut c_void) -> c_int;
    fn ibv_get_cq_event(*mut CompletionChannel, *mut *mut c_void, *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(*mut c_void, c_uint);
    fn ibv_create_qp(*mut c_void, *mut QueuePairInit) -> *mut QueuePair;
    fn ibv_modify_qp(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    fn ibv_destroy_qp(*mut QueuePair) -> c_int;
    fn ibv_wc_status_str(c_int) -> *const c_char;
}

/// A loaded library.
pub(super) struct Handle {
    handle: *mut c_void,
    file: &'static str,
}

impl Handle {
    /// `name` is `file` with a zero at its end.
    pub(super) fn open(
        name: &'static str,
        file: &'static str,
        packages: &'static str,
    ) -> Result<Self, LibraryError> {
        // SAFETY: the name ends with a zero. The library's initialisation is trusted, as by any
        // program that is linked with it.
        let handle = unsafe { libc::dlopen(name.as_ptr().cast(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: dlerror(3) returns a string or null.
            let reason = text(unsafe { libc::dlerror() });
            return Err(LibraryError::Missing {
                file,
                packages,
                reason,
            });
        }
        Ok(Self { handle, file })
    }

    /// The newest version of a function, whose name ends with a zero.
    pub(super) fn find(&self, name: &'static str) -> Result<*mut c_void, LibraryError> {
        // SAFETY: the library is open, and the name ends with a zero.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr().cast()) };
        if symbol.is_null() {
            return Err(LibraryError::Old {
                file: self.file,
                function: name.trim_end_matches('\0'),
            });
        }
        Ok(symbol)
    }
}

/// A string of a library, which may be null.
pub(super) fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: the library returns strings that end with a zero and stay valid until the same thread
    // asks again.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// `struct ibv_device`, which is opaque here.
#[repr(C)]
pub(super) struct Device {
    _opaque: [u8; 0],
}

type Unused<const COUNT: usize> = [*mut c_void; COUNT];

/// The head of `struct ibv_context`, with the `ibv_context_ops` in it: these four functions are no
/// symbols of the library.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    before_poll: Unused<11>,
    pub(super) poll_cq: unsafe extern "C" fn(*mut c_void, c_int, *mut WorkCompletion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    before_send: Unused<12>,
    pub(super) post_send:
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(super) post_recv: unsafe extern "C" fn(
        *mut QueuePair,
        *mut ReceiveRequest,
        *mut *mut ReceiveRequest,
    ) -> c_int,
    after_receive: Unused<5>,
    command: c_int,
    pub(super) async_descriptor: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Context, poll_cq) == 96);
    assert!(offset_of!(Context, post_send) == 208);
    assert!(offset_of!(Context, async_descriptor) == 268);
};

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceAttributes {
    firmware: [u8; 64],
    guids: [u64; 2],
    max_region_bytes: u64,
    page_sizes: u64,
    vendor: [u32; 3],
    pub(super) max_queue_pairs: c_int,
    pub(super) max_requests: c_int,
    capabilities: c_uint,
    max_segments: [c_int; 2],
    max_completion_queues: c_int,
    pub(super) max_completions: c_int,
    max_regions: c_int,
    max_domains: c_int,
    pub(super) max_reads_answered: c_int,
    other_reads: [c_int; 2],
    pub(super) max_reads: c_int,
    others: [c_int; 16],
    max_partition_keys: u16,
    acknowledge_delay: u8,
    pub(super) ports: u8,
    padding: u32,
}

const _: () = {
    assert!(size_of::<DeviceAttributes>() == 232);
    assert!(offset_of!(DeviceAttributes, max_requests) == 112);
    assert!(offset_of!(DeviceAttributes, max_completions) == 132);
    assert!(offset_of!(DeviceAttributes, max_reads_answered) == 144);
    assert!(offset_of!(DeviceAttributes, max_reads) == 156);
    assert!(offset_of!(DeviceAttributes, ports) == 227);
};

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PortAttributes {
    pub(super) state: c_int,
    max_mtu: c_int,
    pub(super) active_mtu: c_int,
    gids: c_int,
    capabilities: u32,
    pub(super) max_message_bytes: u32,
    violations: [u32; 2],
    partition_keys: u16,
    pub(super) lid: u16,
    manager_lid: u16,
    masks: [u8; 7],
    physical_state: u8,
    pub(super) link_layer: u8,
    flags: u8,
    more_capabilities: u16,
}

const _: () = {
    assert!(size_of::<PortAttributes>() == 52);
    assert!(offset_of!(PortAttributes, lid) == 34);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
};

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct AsyncEvent {
    element: *mut c_void,
    pub(super) kind: c_int,
}

const _: () = assert!(offset_of!(AsyncEvent, kind) == 8);

impl AsyncEvent {
    /// An empty event.
    pub(super) const EMPTY: Self = Self {
        element: ptr::null_mut(),
        kind: 0,
    };
}

/// `IBV_EVENT_DEVICE_FATAL`
pub(super) const EVENT_DEVICE_FATAL: c_int = 8;

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct MemoryRegion {
    context: *mut Context,
    domain: *mut c_void,
    address: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

const _: () = assert!(offset_of!(MemoryRegion, remote_key) == 40);

// enum ibv_access_flags
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(super) const ACCESS_REMOTE_READ: c_int = 4;

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct CompletionChannel {
    context: *mut Context,
    pub(super) descriptor: c_int,
}

/// `struct ibv_qp`, up to what is read of it.
#[repr(C)]
pub(super) struct QueuePair {
    pub(super) context: *mut Context,
    pointers: Unused<5>,
    handle: u32,
    pub(super) number: u32,
}

const _: () = assert!(offset_of!(QueuePair, number) == 52);

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Capacity {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) send_segments: u32,
    pub(super) receive_segments: u32,
    pub(super) inline_bytes: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct QueuePairInit {
    pub(super) owner: *mut c_void,
    pub(super) send_queue: *mut c_void,
    pub(super) receive_queue: *mut c_void,
    pub(super) shared_receives: *mut c_void,
    pub(super) capacity: Capacity,
    pub(super) kind: c_int,
    pub(super) signals_all: c_int,
}

const _: () = assert!(size_of::<QueuePairInit>() == 64);

/// `IBV_QPT_RC`: a reliable connection.
pub(super) const RELIABLE_CONNECTION: c_int = 2;

/// `struct ibv_ah_attr`, with the `ibv_global_route` in it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Address {
    pub(super) gid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) own_gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) lid: u16,
    pub(super) service_level: u8,
    pub(super) source_path: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
    pub(super) padding: [u8; 1],
}

const _: () = {
    assert!(size_of::<Address>() == 32);
    assert!(offset_of!(Address, lid) == 24);
    assert!(offset_of!(Address, port) == 30);
};

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueuePairAttributes {
    pub(super) state: c_int,
    pub(super) current_state: c_int,
    pub(super) mtu: c_int,
    pub(super) migration: c_int,
    pub(super) key: u32,
    pub(super) first_received: u32,
    pub(super) first_sent: u32,
    pub(super) peer: u32,
    pub(super) access: c_uint,
    pub(super) capacity: Capacity,
    pub(super) address: Address,
    pub(super) alternative: Address,
    pub(super) partition_index: u16,
    pub(super) alternative_partition: u16,
    pub(super) drains: [u8; 2],
    pub(super) reads: u8,
    pub(super) reads_answered: u8,
    pub(super) not_ready_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) not_ready_retries: u8,
    pub(super) alternative_port: [u8; 2],
    pub(super) rate_limit: u32,
}

const _: () = {
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, address) == 56);
    assert!(offset_of!(QueuePairAttributes, partition_index) == 120);
    assert!(offset_of!(QueuePairAttributes, timeout) == 130);
};

// enum ibv_qp_state
pub(super) const STATE_INIT: c_int = 1;
pub(super) const STATE_READY_TO_RECEIVE: c_int = 2;
pub(super) const STATE_READY_TO_SEND: c_int = 3;

// enum ibv_qp_attr_mask
pub(super) const SET_STATE: c_int = 1;
pub(super) const SET_ACCESS: c_int = 1 << 3;
pub(super) const SET_PARTITION: c_int = 1 << 4;
pub(super) const SET_PORT: c_int = 1 << 5;
pub(super) const SET_ADDRESS: c_int = 1 << 7;
pub(super) const SET_MTU: c_int = 1 << 8;
pub(super) const SET_TIMEOUT: c_int = 1 << 9;
pub(super) const SET_RETRIES: c_int = 1 << 10;
pub(super) const SET_NOT_READY_RETRIES: c_int = 1 << 11;
pub(super) const SET_FIRST_RECEIVED: c_int = 1 << 12;
pub(super) const SET_READS: c_int = 1 << 13;
pub(super) const SET_NOT_READY_TIMER: c_int = 1 << 15;
pub(super) const SET_FIRST_SENT: c_int = 1 << 16;
pub(super) const SET_READS_ANSWERED: c_int = 1 << 17;
pub(super) const SET_PEER: c_int = 1 << 20;

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) local_key: u32,
}

impl Segment {
    pub(super) const EMPTY: Self = Self {
        address: 0,
        length: 0,
        local_key: 0,
    };
}

/// `struct ibv_send_wr`, with the part of its unions that RDMA uses.
#[repr(C)]
#[derive(Debug)]
pub(super) struct SendRequest {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) segments: *mut Segment,
    pub(super) segment_count: c_int,
    pub(super) operation: c_int,
    pub(super) flags: c_uint,
    pub(super) immediate: u32,
    pub(super) remote_address: u64,
    pub(super) remote_key: u32,
    pub(super) rest: [u64; 9],
}

const _: () = {
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, remote_address) == 40);
    assert!(offset_of!(SendRequest, remote_key) == 48);
};

// enum ibv_wr_opcode
pub(super) const OPERATION_WRITE: c_int = 0;
pub(super) const OPERATION_WRITE_WITH_IMMEDIATE: c_int = 1;
pub(super) const OPERATION_SEND: c_int = 2;
pub(super) const OPERATION_READ: c_int = 4;

/// `IBV_SEND_SIGNALED`
pub(super) const SEND_SIGNALED: c_uint = 2;

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ReceiveRequest {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) segments: *mut Segment,
    pub(super) segment_count: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkCompletion {
    pub(super) id: u64,
    pub(super) status: c_int,
    pub(super) operation: c_int,
    vendor_error: u32,
    pub(super) length: u32,
    pub(super) immediate: u32,
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
    pub(super) const EMPTY: Self = Self {
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
pub(super) const COMPLETED_WRITE_OF_PEER: c_int = 129;

// enum ibv_wc_status
pub(super) const STATUS_SUCCESS: c_int = 0;
pub(super) const STATUS_FLUSHED: c_int = 5;
