//! Functions that libibverbs keeps in front of a context, and finds by their offsets from it.

use std::ffi::c_int;
use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};

use super::errno::check;
use crate::verbs::bindings::{
    Context, EXTENDED, ExtendedAttributes, Extension, LimitQueuePair, QueryDevice, QueuePair,
    RELIABLE_CONNECTION, RateLimit,
};

/// The rates to which a device can limit a queue pair, in kilobits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct RateRange {
    pub(in crate::verbs) least: u32,
    pub(in crate::verbs) most: u32,
}

/// Whether a context has a function at this offset of the [`Extension`] in front of it (`verbs_get_ctx_op` in verbs.h).
fn has(context: NonNull<Context>, offset: usize) -> bool {
    // SAFETY: the context is open.
    if unsafe { context.as_ref() }.abi_compat != EXTENDED {
        return false;
    }
    let needed = size_of::<Extension>() - offset + size_of::<Context>();
    // SAFETY: an extended context has at least the size in front of it.
    let size: usize = unsafe { field(context, offset_of!(Extension, size)) };
    size >= needed
}

/// The field at this offset of the [`Extension`] in front of a context.
///
/// # Safety
///
/// The context is open and has the field, which is of this type.
unsafe fn field<T>(context: NonNull<Context>, offset: usize) -> T {
    // SAFETY: the field is in the same allocation, and the extension ends where the context begins.
    let field = unsafe { context.byte_sub(size_of::<Extension>() - offset) };
    // SAFETY: the caller vouches for the field.
    unsafe { field.cast::<T>().read() }
}

/// The rates to which the device limits reliable connections, if it does.
pub(super) fn rate_range(context: NonNull<Context>) -> Option<RateRange> {
    let offset = offset_of!(Extension, query_device_ex);
    if !has(context, offset) {
        return None;
    }
    // SAFETY: the context has it, and the type is that of the structure.
    let query: Option<QueryDevice> = unsafe { field(context, offset) };
    let query = query?;
    let mut attributes = ExtendedAttributes::EMPTY;
    // SAFETY: the context is open; the library fills at most the size that it is told.
    let code = unsafe {
        query(
            context.as_ptr(),
            ptr::null(),
            &raw mut attributes,
            ExtendedAttributes::KNOWN_BYTES,
        )
    };
    let pacing = attributes.pacing;
    let is_supported = pacing.kinds & (1 << RELIABLE_CONNECTION) != 0 && pacing.most > 0;
    (code == 0 && is_supported).then_some(RateRange {
        least: pacing.least,
        most: pacing.most,
    })
}

/// Limits a queue pair to a rate in kilobits per second.
///
/// # Errors
///
/// When the library has no such function, or the device refuses the rate.
pub(super) fn limit_rate(
    context: NonNull<Context>,
    queue_pair: NonNull<QueuePair>,
    rate: u32,
) -> io::Result<()> {
    let offset = offset_of!(Extension, modify_qp_rate_limit);
    if !has(context, offset) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the context has it, and the type is that of the structure.
    let modify: Option<LimitQueuePair> = unsafe { field(context, offset) };
    let modify = modify.ok_or(io::ErrorKind::Unsupported)?;
    // Some devices accept only their own burst and packet size, which are zeros (bnxt_re of rdma-core).
    let mut limit = RateLimit {
        rate,
        ..RateLimit::default()
    };
    // SAFETY: the queue pair belongs to the context, and the structure has the size of the C one.
    let code: c_int = unsafe { modify(queue_pair.as_ptr(), &raw mut limit) };
    check(code)
}
