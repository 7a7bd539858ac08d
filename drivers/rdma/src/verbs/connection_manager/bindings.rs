//! librdmacm as C declares it.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

use crate::verbs::bindings::{Context, Handle, LibraryError, library};

library! {
    /// librdmacm, `rdma_cm(7)`. Its manual pages describe the functions.
    ConnectionManager, "librdmacm.so.1", "librdmacm1";
    fn rdma_create_event_channel() -> *mut EventChannel;
    fn rdma_destroy_event_channel(*mut EventChannel);
    fn rdma_create_id(*mut EventChannel, *mut *mut Id, *mut c_void, c_int) -> c_int;
    fn rdma_destroy_id(*mut Id) -> c_int;
    fn rdma_bind_addr(*mut Id, *const libc::sockaddr) -> c_int;
    fn rdma_resolve_addr(*mut Id, *const libc::sockaddr, *const libc::sockaddr, c_int) -> c_int;
    fn rdma_resolve_route(*mut Id, c_int) -> c_int;
    fn rdma_connect(*mut Id, *mut Parameters) -> c_int;
    fn rdma_listen(*mut Id, c_int) -> c_int;
    fn rdma_accept(*mut Id, *mut Parameters) -> c_int;
    fn rdma_reject(*mut Id, *const c_void, u8) -> c_int;
    fn rdma_get_cm_event(*mut EventChannel, *mut *mut Event) -> c_int;
    fn rdma_ack_cm_event(*mut Event) -> c_int;
    fn rdma_event_str(c_int) -> *const c_char;
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) descriptor: c_int,
}

/// The head of `struct rdma_cm_id`, with the `rdma_route` in it.
#[repr(C)]
pub(super) struct Id {
    pub(super) verbs: *mut Context,
    pointers: [*mut c_void; 3],
    /// `struct rdma_addr`.
    addresses: [u64; 37],
    pub(super) paths: *mut PathRecord,
    pub(super) path_count: c_int,
}

/// `struct ibv_sa_path_rec`; numbers of several bytes are in network byte order.
#[repr(C)]
pub(super) struct PathRecord {
    pub(super) peer_gid: [u8; 16],
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    source_lid: u16,
    is_raw: c_int,
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    is_reversible: c_int,
    path_count: u8,
    partition: u16,
    pub(super) service_level: u8,
    mtu_selector: u8,
    pub(super) mtu: u8,
    rest: [u8; 5],
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    pub(super) private: *const u8,
    pub(super) private_length: u8,
    pub(super) reads_answered: u8,
    pub(super) reads: u8,
    pub(super) flow_control: u8,
    pub(super) retries: u8,
    pub(super) not_ready_retries: u8,
    pub(super) shared_receives: u8,
    pub(super) queue_pair: u32,
}

/// `struct rdma_cm_event`, with the part of its union that connections use.
#[repr(C)]
pub(super) struct Event {
    pub(super) id: *mut Id,
    listener: *mut Id,
    pub(super) kind: c_int,
    pub(super) status: c_int,
    pub(super) parameters: Parameters,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Parameters>() == 24);
    assert!(offset_of!(Parameters, queue_pair) == 16);
    assert!(offset_of!(Event, status) == 20);
    assert!(offset_of!(Event, parameters) == 24);
    assert!(offset_of!(Id, paths) == 328);
    assert!(size_of::<PathRecord>() == 64);
};

/// `RDMA_PS_TCP`
pub(super) const PORT_SPACE: c_int = 0x0106;

// enum rdma_cm_event_type
pub(super) const ADDRESS_RESOLVED: c_int = 0;
pub(super) const ROUTE_RESOLVED: c_int = 2;
pub(super) const CONNECT_REQUEST: c_int = 4;
pub(super) const ESTABLISHED: c_int = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::bindings::layout::{Row, compare_with_header, compare_with_records, layout};

    fn rows() -> Vec<Row> {
        let mut rows =
            layout!("struct rdma_event_channel", EventChannel, size_of, { "fd": descriptor });
        rows.extend(layout!("struct rdma_cm_id", Id, {
            "verbs": verbs, "route.path_rec": paths, "route.num_paths": path_count,
        }));
        rows.extend(layout!("struct ibv_sa_path_rec", PathRecord, size_of, {
            "dlid": lid, "flow_label": flow_label, "hop_limit": hop_limit, "traffic_class": traffic_class,
            "sl": service_level, "mtu": mtu,
        }));
        rows.extend(layout!("struct rdma_conn_param", Parameters, size_of, {
            "private_data": private, "private_data_len": private_length, "responder_resources": reads_answered,
            "initiator_depth": reads, "flow_control": flow_control, "retry_count": retries,
            "rnr_retry_count": not_ready_retries, "srq": shared_receives, "qp_num": queue_pair,
        }));
        rows.extend(layout!("struct rdma_cm_event", Event, {
            "id": id, "listen_id": listener, "event": kind, "status": status, "param.conn": parameters,
        }));
        let numbers = [
            ("RDMA_PS_TCP", PORT_SPACE),
            ("RDMA_CM_EVENT_ADDR_RESOLVED", ADDRESS_RESOLVED),
            ("RDMA_CM_EVENT_ROUTE_RESOLVED", ROUTE_RESOLVED),
            ("RDMA_CM_EVENT_CONNECT_REQUEST", CONNECT_REQUEST),
            ("RDMA_CM_EVENT_ESTABLISHED", ESTABLISHED),
        ];
        rows.extend(
            numbers.map(|(name, value)| (name.to_owned(), u64::from(value.unsigned_abs()))),
        );
        rows
    }

    #[test]
    fn the_declarations_are_those_of_all_versions() {
        compare_with_records(&rows());
    }

    #[test]
    fn the_declarations_are_those_of_the_header() {
        compare_with_header("rdma/rdma_cma.h", &rows());
    }
}
