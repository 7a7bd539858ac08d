//! The program `bench` in small: that it measures, and cleans up.

use std::process::Command;

#[test]
fn a_quick_run_prints_a_table_and_leaves_nothing() {
    let rows = ["put-p4", "tpc-stream", "tpc-pp", "memory", "logins"];
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .arg("--quick")
        .args(rows.iter().flat_map(|row| ["--row", row]))
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    for row in [
        "put-p4",
        "tpc-stream",
        "few-tpc-pp",
        "memory-session",
        "memory-channel",
        "logins",
    ] {
        assert!(
            table
                .lines()
                .any(|line| line.starts_with(&format!("{row} "))),
            "{row}: {table}"
        );
    }
    assert!(table.contains("s/GB"), "{table}");
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
