//! The program `bench` in small: that every row measures something, and that nothing is left.

use std::fs;
use std::process::Command;

/// What this machine or the real server cannot do is a line that says so, and no failure.
#[test]
fn a_quick_run_of_every_row_writes_a_record() {
    let record = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .arg("--quick")
        .arg("--record")
        .arg(record.path())
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    for row in [
        "tpc-stream",
        "put-p4",
        "tpc-prot-p-p4",
        "logins",
        "disk-cold-p4",
        "small-tpc-cc4",
        "crowd-1000-get",
        "cksm-md5",
        "mlsd",
        "wan-50ms-0.1%-p16",
        "memory-channel",
    ] {
        let is_row = |line: &str| line.starts_with(&format!("{row} "));
        assert!(table.lines().any(is_row), "{row}: {table}");
    }
    let page = fs::read_to_string(record.path().join("measurements.md")).unwrap();
    assert!(
        page.contains("## Targets") && page.contains("s/GB"),
        "{page}"
    );
    for chart in [
        "third-party.svg",
        "third-party-processor.svg",
        "checksums.svg",
    ] {
        assert!(
            page.contains(chart) && record.path().join(chart).exists(),
            "{page}"
        );
    }
}

#[test]
fn an_unknown_row_is_named_with_those_that_exist() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--row", "nonsense"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("get-p1") && errors.contains("memory-session"),
        "{errors}"
    );
}
