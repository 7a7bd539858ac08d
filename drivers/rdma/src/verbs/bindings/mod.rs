//! libibverbs and librdmacm as C declares them, opened at first use.
//!
//! The program is built without their headers and starts without the libraries. Only the used parts
//! are declared, from `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44; these parts of the
//! structures have not changed since symbol version IBVERBS_1.1. Sizes and offsets below are those
//! of a C compiler on a 64-bit machine.
//!
//! This module contains no safe functions and no decisions: `objects` and `connection_manager` are
//! the interface for others.

mod attributes;
mod context;
#[cfg(test)]
pub(super) mod layout;
mod library;
mod requests;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub(super) use self::attributes::*;
pub(super) use self::context::*;
pub(crate) use self::library::LibraryError;
pub(super) use self::library::{Handle, library, text};
pub(super) use self::requests::*;

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
    fn ibv_query_qp(*mut QueuePair, *mut QueuePairAttributes, c_int, *mut QueuePairInit) -> c_int;
    fn ibv_destroy_qp(*mut QueuePair) -> c_int;
    fn ibv_wc_status_str(c_int) -> *const c_char;
    // Since rdma-core 28.
    optional fn ibv_reg_mr_iova2(*mut c_void, *mut c_void, usize, u64, c_uint) -> *mut MemoryRegion;
}
