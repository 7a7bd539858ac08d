//! The frames that open a connection.

use crate::mpa::frame::{FRAME_BYTES, Frame, FrameKind};

/// A frame of the connecting or the accepting end.
pub fn frame(input: &[u8]) {
    let Some((head, rest)) = input.split_first_chunk::<FRAME_BYTES>() else {
        return;
    };
    for kind in [FrameKind::Request, FrameKind::Reply] {
        let Ok(length) = Frame::tail_bytes(kind, head) else {
            continue;
        };
        let tail = &rest[..length.min(rest.len())];
        if let Ok(frame) = Frame::decode(kind, head, tail) {
            let bytes = frame.encode();
            let (head, tail) = bytes.split_first_chunk().expect("a frame has a head");
            assert_eq!(Frame::decode(kind, head, tail), Ok(frame));
        }
    }
}
