//! The framing of tokens: whole TLS records.

use super::error::ContextError;
use crate::tls::record_length;

/// The maximum length of a token. A chain of VOMS proxies takes 10 KiB, the longest command or reply less.
pub const MAX_TOKEN: usize = 1 << 18;

/// Checks that a token consists of whole records.
pub(super) fn check_whole(token: &[u8]) -> Result<(), ContextError> {
    if token.len() > MAX_TOKEN {
        return Err(ContextError::protocol("a token is too long"));
    }
    let mut rest = token;
    while !rest.is_empty() {
        rest = record_length(rest)
            .and_then(|length| rest.get(length..))
            .ok_or_else(|| ContextError::protocol("a token ends in the middle of a TLS record"))?;
    }
    Ok(())
}
