//! Where a transfer resumes after `REST`.

use gridhaul_protocol::ranges::RangeSet;

use crate::error::SequenceError;

/// The offset at which a stream resumes. RFC 3659 5: there is one such offset, and all bytes before it are
/// present.
pub(crate) fn stream_start(restart: &RangeSet) -> Result<u64, SequenceError> {
    match (restart.len(), restart.iter().next()) {
        (0, _) => Ok(0),
        (1, Some(range)) if range.start == 0 => Ok(range.end),
        _ => Err(SequenceError::StreamRestart),
    }
}

/// Refuses to resume past the end of a file of `size` bytes: it cannot be the file that the receiver has a
/// part of.
pub(crate) fn check_within(restart: &RangeSet, size: u64) -> Result<(), SequenceError> {
    let offset = restart.end();
    if offset > size {
        return Err(SequenceError::RestartPastEnd { offset, size });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse_rest(text.as_bytes()).expect("ranges")
    }

    #[test]
    fn a_stream_resumes_after_one_range_from_the_start() {
        assert_eq!(stream_start(&RangeSet::new()), Ok(0));
        assert_eq!(stream_start(&ranges("0-40")), Ok(40));
        for restart in ["10-40", "0-10,20-30"] {
            let refused = Err(SequenceError::StreamRestart);
            assert_eq!(stream_start(&ranges(restart)), refused, "{restart}");
        }
    }

    #[test]
    fn a_restart_at_the_end_of_the_file_is_allowed() {
        assert_eq!(check_within(&ranges("0-40"), 40), Ok(()));
        let (offset, size) = (40, 39);
        let refused = Err(SequenceError::RestartPastEnd { offset, size });
        assert_eq!(check_within(&ranges("0-40"), 39), refused);
    }
}
