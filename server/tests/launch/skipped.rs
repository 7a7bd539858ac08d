//! Tests that this machine cannot run. Other test programs have this module too.

/// Says that the test is skipped.
pub(crate) fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}
