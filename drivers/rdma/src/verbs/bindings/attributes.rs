//! Attributes of devices, ports and queue pairs.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct DeviceAttributes {
    firmware: [u8; 64],
    guids: [u64; 2],
    max_region_bytes: u64,
    page_sizes: u64,
    vendor: [u32; 3],
    pub(in crate::verbs) max_queue_pairs: c_int,
    pub(in crate::verbs) max_requests: c_int,
    capabilities: c_uint,
    max_segments: [c_int; 2],
    max_completion_queues: c_int,
    pub(in crate::verbs) max_completions: c_int,
    max_regions: c_int,
    max_domains: c_int,
    pub(in crate::verbs) max_reads_answered: c_int,
    other_reads: [c_int; 2],
    pub(in crate::verbs) max_reads: c_int,
    others: [c_int; 16],
    max_partition_keys: u16,
    acknowledge_delay: u8,
    pub(in crate::verbs) ports: u8,
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

/// The head of `struct ibv_device_attr_ex`, and room for what newer versions have after it.
#[repr(C)]
pub(in crate::verbs) struct ExtendedAttributes {
    head: [u64; 41],
    other: u32,
    pub(in crate::verbs) pacing: PacingRates,
    rest: [u64; 64],
}

/// `struct ibv_packet_pacing_caps`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::verbs) struct PacingRates {
    /// In kilobits per second.
    pub(in crate::verbs) least: u32,
    pub(in crate::verbs) most: u32,
    /// A bit for each type of queue pair.
    pub(in crate::verbs) kinds: u32,
}

impl ExtendedAttributes {
    pub(in crate::verbs) const EMPTY: Self = Self {
        head: [0; 41],
        other: 0,
        pacing: PacingRates {
            least: 0,
            most: 0,
            kinds: 0,
        },
        rest: [0; 64],
    };

    /// The part that the library fills.
    pub(in crate::verbs) const KNOWN_BYTES: usize = offset_of!(Self, rest);
}

const _: () = {
    assert!(size_of::<PacingRates>() == 12);
    assert!(offset_of!(ExtendedAttributes, pacing) == 332);
    assert!(ExtendedAttributes::KNOWN_BYTES == 344);
};

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct PortAttributes {
    pub(in crate::verbs) state: c_int,
    max_mtu: c_int,
    pub(in crate::verbs) active_mtu: c_int,
    gids: c_int,
    capabilities: u32,
    pub(in crate::verbs) max_message_bytes: u32,
    violations: [u32; 2],
    partition_keys: u16,
    pub(in crate::verbs) lid: u16,
    manager_lid: u16,
    masks: [u8; 7],
    physical_state: u8,
    pub(in crate::verbs) link_layer: u8,
    pub(in crate::verbs) flags: u8,
    more_capabilities: u16,
}

const _: () = {
    assert!(size_of::<PortAttributes>() == 52);
    assert!(offset_of!(PortAttributes, lid) == 34);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
};

/// `IBV_QPF_GRH_REQUIRED`: packets need a global route header (GRH), also within the subnet.
pub(in crate::verbs) const PORT_NEEDS_GLOBAL_ROUTES: u8 = 1;

/// `struct ibv_async_event`.
#[repr(C)]
pub(in crate::verbs) struct AsyncEvent {
    pub(in crate::verbs) element: EventElement,
    pub(in crate::verbs) kind: c_int,
}

/// The `element` of `struct ibv_async_event`: what the event is about.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::verbs) union EventElement {
    object: *mut c_void,
    /// The number of a port.
    pub(in crate::verbs) port: c_int,
}

const _: () = assert!(offset_of!(AsyncEvent, kind) == 8);

impl AsyncEvent {
    /// An empty event.
    pub(in crate::verbs) const EMPTY: Self = Self {
        element: EventElement {
            object: ptr::null_mut(),
        },
        kind: 0,
    };
}

/// `IBV_EVENT_CQ_ERR`: a completion queue was overrun.
pub(in crate::verbs) const EVENT_QUEUE_OVERRUN: c_int = 0;

/// `IBV_EVENT_DEVICE_FATAL`
pub(in crate::verbs) const EVENT_DEVICE_FATAL: c_int = 8;

/// `IBV_EVENT_PORT_ERR`: a port is no longer active.
pub(in crate::verbs) const EVENT_PORT_DOWN: c_int = 10;

// enum ibv_access_flags
pub(in crate::verbs) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(in crate::verbs) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(in crate::verbs) const ACCESS_REMOTE_READ: c_int = 4;
/// In the range of flags that a kernel or device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
pub(in crate::verbs) const ACCESS_RELAXED_ORDERING: c_int = 1 << 20;

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::verbs) struct Capacity {
    pub(in crate::verbs) sends: u32,
    pub(in crate::verbs) receives: u32,
    pub(in crate::verbs) send_segments: u32,
    pub(in crate::verbs) receive_segments: u32,
    pub(in crate::verbs) inline_bytes: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub(in crate::verbs) struct QueuePairInit {
    pub(in crate::verbs) owner: *mut c_void,
    pub(in crate::verbs) send_queue: *mut c_void,
    pub(in crate::verbs) receive_queue: *mut c_void,
    pub(in crate::verbs) shared_receives: *mut c_void,
    pub(in crate::verbs) capacity: Capacity,
    pub(in crate::verbs) kind: c_int,
    pub(in crate::verbs) signals_all: c_int,
}

const _: () = assert!(size_of::<QueuePairInit>() == 64);

/// `IBV_QPT_RC`: a reliable connection.
pub(in crate::verbs) const RELIABLE_CONNECTION: c_int = 2;

/// `struct ibv_ah_attr`, with the `ibv_global_route` in it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::verbs) struct Address {
    pub(in crate::verbs) gid: [u64; 2],
    pub(in crate::verbs) flow_label: u32,
    pub(in crate::verbs) own_gid_index: u8,
    pub(in crate::verbs) hop_limit: u8,
    pub(in crate::verbs) traffic_class: u8,
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) service_level: u8,
    pub(in crate::verbs) source_path: u8,
    pub(in crate::verbs) static_rate: u8,
    pub(in crate::verbs) is_global: u8,
    pub(in crate::verbs) port: u8,
    pub(in crate::verbs) padding: [u8; 1],
}

const _: () = {
    assert!(size_of::<Address>() == 32);
    assert!(offset_of!(Address, lid) == 24);
    assert!(offset_of!(Address, port) == 30);
};

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::verbs) struct QueuePairAttributes {
    pub(in crate::verbs) state: c_int,
    pub(in crate::verbs) current_state: c_int,
    pub(in crate::verbs) mtu: c_int,
    pub(in crate::verbs) migration: c_int,
    pub(in crate::verbs) key: u32,
    pub(in crate::verbs) first_received: u32,
    pub(in crate::verbs) first_sent: u32,
    pub(in crate::verbs) peer: u32,
    pub(in crate::verbs) access: c_uint,
    pub(in crate::verbs) capacity: Capacity,
    pub(in crate::verbs) address: Address,
    pub(in crate::verbs) alternative: Address,
    pub(in crate::verbs) partition_index: u16,
    pub(in crate::verbs) alternative_partition: u16,
    pub(in crate::verbs) drains: [u8; 2],
    pub(in crate::verbs) reads: u8,
    pub(in crate::verbs) reads_answered: u8,
    pub(in crate::verbs) not_ready_timer: u8,
    pub(in crate::verbs) port: u8,
    pub(in crate::verbs) timeout: u8,
    pub(in crate::verbs) retries: u8,
    pub(in crate::verbs) not_ready_retries: u8,
    pub(in crate::verbs) alternative_port: [u8; 2],
    pub(in crate::verbs) rate_limit: u32,
}

const _: () = {
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, address) == 56);
    assert!(offset_of!(QueuePairAttributes, partition_index) == 120);
    assert!(offset_of!(QueuePairAttributes, timeout) == 130);
};

// enum ibv_qp_state
pub(in crate::verbs) const STATE_RESET: c_int = 0;
pub(in crate::verbs) const STATE_INIT: c_int = 1;
pub(in crate::verbs) const STATE_READY_TO_RECEIVE: c_int = 2;
pub(in crate::verbs) const STATE_READY_TO_SEND: c_int = 3;

// enum ibv_qp_attr_mask
pub(in crate::verbs) const SET_STATE: c_int = 1;
pub(in crate::verbs) const SET_ACCESS: c_int = 1 << 3;
pub(in crate::verbs) const SET_PARTITION: c_int = 1 << 4;
pub(in crate::verbs) const SET_PORT: c_int = 1 << 5;
pub(in crate::verbs) const SET_ADDRESS: c_int = 1 << 7;
pub(in crate::verbs) const SET_MTU: c_int = 1 << 8;
pub(in crate::verbs) const SET_TIMEOUT: c_int = 1 << 9;
pub(in crate::verbs) const SET_RETRIES: c_int = 1 << 10;
pub(in crate::verbs) const SET_NOT_READY_RETRIES: c_int = 1 << 11;
pub(in crate::verbs) const SET_FIRST_RECEIVED: c_int = 1 << 12;
pub(in crate::verbs) const SET_READS: c_int = 1 << 13;
pub(in crate::verbs) const SET_NOT_READY_TIMER: c_int = 1 << 15;
pub(in crate::verbs) const SET_FIRST_SENT: c_int = 1 << 16;
pub(in crate::verbs) const SET_READS_ANSWERED: c_int = 1 << 17;
pub(in crate::verbs) const SET_PEER: c_int = 1 << 20;
