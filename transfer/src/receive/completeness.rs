//! Whether all announced bytes have arrived.

use gridhaul_protocol::ranges::RangeSet;

use crate::error::PeerError;

/// Compares the received ranges with the size in `ALLO`. By RFC 959 4.1.3 `ALLO` only reserves storage; GridFTP
/// clients announce the exact number of bytes that they will send, or the size of the file after a restart. In stream
/// mode a client that crashes ends its stream like one that has sent everything, and only the size shows the difference.
pub(super) fn check_complete(
    promised: u64,
    restart: &RangeSet,
    arrived: &RangeSet,
) -> Result<(), PeerError> {
    if arrived.covered() >= promised {
        return Ok(());
    }
    let mut present = restart.clone();
    present.extend_from(arrived);
    let missing = present.missing_in(0..promised).collect::<RangeSet>();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PeerError::Incomplete {
        promised,
        arrived: promised - missing.covered(),
        missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse_rest(text.as_bytes()).expect("ranges")
    }

    #[test]
    fn a_file_with_the_announced_bytes_is_complete() {
        assert!(check_complete(100, &RangeSet::new(), &ranges("0-100")).is_ok());
        assert!(check_complete(100, &ranges("0-40"), &ranges("40-100")).is_ok());
        assert!(check_complete(60, &ranges("0-40"), &ranges("40-100")).is_ok());
        assert!(check_complete(100, &RangeSet::new(), &ranges("0-200")).is_ok());
    }

    #[test]
    fn an_incomplete_file_is_an_error_with_the_missing_ranges() {
        let error = check_complete(100, &ranges("0-10"), &ranges("20-30,40-100"))
            .expect_err("20 bytes are missing");
        let text = error.to_string();
        assert!(text.contains("80 bytes arrived of 100"), "{text}");
        assert!(text.contains("10-20,30-40"), "{text}");
    }
}
