//! The program `bench` with small sizes: every row has a result, and no file is left.
//!
//! Features that this machine or the real server lacks are reported in a line, and are no failure.

use std::fs;
use std::process::Command;

/// Parts of row names. Each list is a test: rows wait for servers and paths, so the tests run
/// concurrently.
const FILES: &[&str] = &[
    "tpc-",
    "get-p",
    "put-p",
    "get-stream",
    "put-stream",
    "logins",
    "disk-",
];
const MANY: &[&str] = &[
    "small-", "few-", "medium-", "crowd-", "cksm-", "mlsd", "memory-",
];
const DISTANT: &[&str] = &["wan-"];

#[test]
fn quick_runs_of_rows_with_large_files_write_a_record() {
    quick(
        FILES,
        &[
            "tpc-stream",
            "put-p4",
            "tpc-prot-p-p4",
            "logins",
            "disk-cold-p4",
        ],
        &["third-party.svg", "third-party-processor.svg"],
    );
}

#[test]
fn quick_runs_of_rows_with_many_files_and_clients_write_a_record() {
    quick(
        MANY,
        &[
            "small-tpc-cc4",
            "crowd-1000-get",
            "cksm-md5",
            "mlsd",
            "memory-channel",
        ],
        &["checksums.svg"],
    );
}

#[test]
fn quick_runs_of_rows_over_distances_write_a_record() {
    quick(DISTANT, &["wan-50ms-0.1%-p16"], &["distance.svg"]);
}

/// Runs the rows of a part once, and checks that these rows and charts exist.
fn quick(part: &[&str], rows: &[&str], charts: &[&str]) {
    let record = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .arg("--quick")
        .arg("--record")
        .arg(record.path())
        .args(part.iter().flat_map(|words| ["--row", words]))
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    for row in rows {
        let is_row = |line: &str| line.starts_with(&format!("{row} "));
        assert!(table.lines().any(is_row), "{row}: {table}");
    }
    let page = fs::read_to_string(record.path().join("measurements.md")).unwrap();
    assert!(page.contains("## Targets"), "{page}");
    for chart in charts {
        assert!(
            page.contains(chart) && record.path().join(chart).exists(),
            "{page}"
        );
    }
}

#[test]
fn a_quick_run_of_copies_over_rdma_writes_a_record() {
    let record = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench-rdma-files"))
        .arg("--quick")
        .arg("--record")
        .arg(record.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let page = fs::read_to_string(record.path().join("rdma-files.md")).unwrap();
    let is_row = |line: &&str| line.starts_with("| `") || line.starts_with("| 1");
    let rows: Vec<&str> = page.lines().filter(is_row).collect();
    // Eight stacks twice, the rows of 1 and 16 clients three ways, and six stacks on the disk.
    assert_eq!(rows.len(), 28, "{page}");
    for cell in rows.iter().flat_map(|row| row.split(" | ").skip(1)) {
        assert!(
            cell.starts_with(|first: char| first.is_ascii_digit()),
            "{cell}: {page}"
        );
    }
    for chart in [
        "rate",
        "processor",
        "clients-get",
        "clients-put",
        "clients-between",
    ] {
        let name = format!("rdma-files-{chart}.svg");
        assert!(
            page.contains(&name) && record.path().join(&name).exists(),
            "{page}"
        );
    }
}

#[test]
fn an_unknown_row_is_an_error_with_all_names() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--row", "nonsense"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, names) = errors.split_once("there are ").unwrap();
    assert!(names.contains("get-p1, "), "{errors}");
    for name in names.trim().split(", ") {
        let mut parts = [FILES, MANY, DISTANT].into_iter().flatten();
        assert!(parts.any(|words| name.contains(words)), "{name}");
    }
}
