//! MPA: how iWARP frames messages in a TCP stream (RFC 5044, and RFC 6581 for revision 2).
//!
//! Two frames open a connection; then every byte belongs to an FPDU: a length, a payload, padding
//! and a checksum. Markers are not supported: neither the Linux kernel nor common hardware asks for
//! them, and a request for them is refused.

pub(crate) mod fpdu;
pub(crate) mod frame;

pub use self::frame::FrameError;
