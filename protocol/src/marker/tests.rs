use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ranges::MAX_OFFSET;

/// Observed from globus-gridftp-server 13.24.
const RECORDED: &str = "112-Perf Marker\r\n Timestamp:  1795166206.2\r\n Stripe Index: 0\r\n \
    Stripe Bytes Transferred: 1000000\r\n Total Stripe Count: 1\r\n112 End.\r\n";

fn recorded() -> PerformanceMarker {
    PerformanceMarker {
        timestamp: Timestamp::from_millisecond(1_795_166_206_200).unwrap(),
        stripe_index: 0,
        stripe_bytes: 1_000_000,
        stripe_count: 1,
    }
}

fn ranges(text: &str) -> RangeSet {
    RangeSet::parse_rest(text.as_bytes()).expect("a list of ranges")
}

#[test]
fn a_performance_marker_looks_as_recorded() {
    let reply = recorded().reply();
    assert_eq!(String::from_utf8(reply.encode()).unwrap(), RECORDED);
    assert_eq!(PerformanceMarker::from_reply(&reply), Ok(recorded()));
}

#[test]
fn a_checksum_marker_looks_as_recorded() {
    let marker = ChecksumMarker {
        timestamp: Timestamp::from_millisecond(1_795_293_843_900).unwrap(),
        bytes: 122_159_104,
    };
    // Observed from globus-gridftp-server 13.24.
    let recorded = "113-Status Marker\r\n Timestamp: 1795293843.9\r\n Bytes Processed: \
        122159104\r\n113 End.\r\n";
    assert_eq!(
        String::from_utf8(marker.reply().encode()).unwrap(),
        recorded
    );
}

#[test]
fn tenths_are_truncated() {
    let late = PerformanceMarker {
        timestamp: Timestamp::from_millisecond(1_999).unwrap(),
        ..recorded()
    };
    assert!(late.reply().inner()[0].ends_with(b" 1.9"));
}

#[test]
fn markers_of_other_servers_are_read() {
    let lines = [
        "timestamp: 1795166206.2499",
        "Something: else",
        "Stripe index : 4",
        "STRIPE INDEX: 0",
        "Stripe Bytes Transferred:1000000 ",
        "  Total Stripe Count: 1",
    ];
    let reply = Reply::spaced(112, "Perf Marker", lines, "End");
    let expected = PerformanceMarker {
        timestamp: Timestamp::from_millisecond(1_795_166_206_249).unwrap(),
        ..recorded()
    };
    assert_eq!(PerformanceMarker::from_reply(&reply), Ok(expected));
}

#[test]
fn errors_of_performance_markers_name_the_cause() {
    let refused = |lines: &[&str]| {
        let reply = Reply::spaced(112, "Perf Marker", lines, "End.");
        let error = PerformanceMarker::from_reply(&reply).expect_err("no marker");
        error.to_string()
    };
    let (time, index) = ("Timestamp: 1.0", "Stripe Index: 1");
    let (bytes, count) = ("Stripe Bytes Transferred: 0", "Total Stripe Count: 1");
    assert_eq!(
        refused(&[time, index, bytes]),
        "the performance marker has no line 'Total Stripe Count:'"
    );
    assert_eq!(
        refused(&[time, index, bytes, count]),
        "the performance marker is of stripe 1, but there are only 1"
    );
    assert_eq!(
        refused(&[time, "Stripe Index: -1", bytes, count]),
        "the performance marker has '-1' as its Stripe Index, which is no number"
    );
    for time in [
        "Timestamp: x",
        "Timestamp: 1.x",
        "Timestamp: 99999999999999999999",
    ] {
        assert!(refused(&[time, index, bytes, count]).contains("is no number"));
    }
    let other = PerformanceMarker::from_reply(&Reply::new(226, "Transfer Complete."));
    assert_eq!(other, Err(MarkerError::Code(226)));
}

#[test]
fn a_restart_marker_looks_as_recorded() {
    let text = "0-1048576,2097152-3145728,4194304-5000000";
    let marker = RestartMarker(ranges(text));
    let replies: Vec<Reply> = marker.replies().collect();
    assert_eq!(replies.len(), 1);
    assert_eq!(
        replies[0].encode(),
        format!("111 Range Marker {text}\r\n").into_bytes()
    );
    assert_eq!(RestartMarker::from_reply(&replies[0]), Ok(marker));
}

#[test]
fn an_empty_set_is_no_marker() {
    assert_eq!(RestartMarker(RangeSet::new()).replies().count(), 0);
}

#[test]
fn bad_restart_markers_are_refused() {
    for text in ["Range Marker", "Range Marker 0-1;2-3", "Range Marker 5-3"] {
        let error = RestartMarker::from_reply(&Reply::new(111, text)).expect_err("no marker");
        assert!(
            error
                .to_string()
                .starts_with("the restart marker is wrong: ")
        );
    }
    let other = RestartMarker::from_reply(&recorded().reply());
    assert_eq!(other, Err(MarkerError::Code(112)));
}

#[test]
fn many_ranges_go_into_several_markers() {
    let count = RestartMarker::MAX_RANGES as u64 * 2 + 1;
    let last = MAX_OFFSET - 2 * count;
    let all: RangeSet = (0..count).map(|n| last + 2 * n..last + 2 * n + 1).collect();
    let replies: Vec<Reply> = RestartMarker(all.clone()).replies().collect();
    assert_eq!(replies.len(), 3);
    let mut read = RangeSet::new();
    for reply in replies {
        assert!(reply.encode().len() <= MAX_LINE_BYTES);
        read.extend_from(&RestartMarker::from_reply(&reply).expect("a marker").0);
    }
    assert_eq!(read, all);
}

proptest! {
    #[test]
    fn a_written_performance_marker_reads_the_same(
        tenths in 0..=20_000_000_000_i64,
        index in 0..64_usize,
        more in 1..64_usize,
        bytes: u64,
    ) {
        let marker = PerformanceMarker {
            timestamp: Timestamp::from_millisecond(tenths * 100).unwrap(),
            stripe_index: index,
            stripe_bytes: bytes,
            stripe_count: index + more,
        };
        prop_assert_eq!(PerformanceMarker::from_reply(&marker.reply()), Ok(marker));
    }

    #[test]
    fn a_written_restart_marker_reads_the_same(
        bounds in vec((0..=MAX_OFFSET, 0..=MAX_OFFSET), 1..20),
    ) {
        let set: RangeSet = bounds.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect();
        for reply in RestartMarker(set.clone()).replies() {
            prop_assert_eq!(RestartMarker::from_reply(&reply), Ok(RestartMarker(set.clone())));
        }
    }

    #[test]
    fn any_reply_is_a_marker_or_an_error(
        code in 111..=112_u16,
        lines in vec("(Timestamp|Stripe Index|Range Marker)?:? ?[0-9.,-]{0,24}.{0,3}", 1..6),
    ) {
        let reply = Reply::spaced(code, &lines[0], &lines, "End.");
        let _ = PerformanceMarker::from_reply(&reply);
        let _ = RestartMarker::from_reply(&reply);
    }
}
