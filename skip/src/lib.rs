//! Tests that this machine cannot run, because it lacks a kernel feature, a program or a right.

/// Says why the test, or a part of it, is skipped.
///
/// # Panics
///
/// If the environment has `GRIDHAUL_NO_SKIP=1`, as in continuous integration: cargo hides what a test that passes has printed, so a machine with
/// everything installed would not show a test that has stopped running.
pub fn skipped(reason: &str) {
    let may_skip = std::env::var_os("GRIDHAUL_NO_SKIP").is_none_or(|value| value != "1");
    assert!(may_skip, "GRIDHAUL_NO_SKIP is 1: {reason}");
    eprintln!("skipped: {reason}");
}
