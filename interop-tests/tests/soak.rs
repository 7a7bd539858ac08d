//! The short versions of the program `soak`.

use std::time::Duration;

use gridhaul_interop::Kind;
use gridhaul_interop::bench::small_files::SmallFiles;
use gridhaul_interop::bench::soak::Soak;
use gridhaul_interop::support::scratch::Scratch;

#[test]
fn a_hundred_sessions_leak_no_resources() {
    let scratch = Scratch::beneath(&std::env::temp_dir()).unwrap();
    let soak = Soak {
        kind: Kind::Gridhaul,
        sessions: 100,
        transferring: 20,
        duration: Duration::from_secs(5),
    };
    let outcome = soak.run(scratch.path()).unwrap();
    assert!(outcome.problems().is_empty(), "{outcome}");
}

#[test]
fn a_thousand_small_files_leak_no_resources() {
    let scratch = Scratch::beneath(&std::env::temp_dir()).unwrap();
    let many = SmallFiles {
        files: 1000,
        bytes: 1024,
    };
    let copied = many.run(scratch.path()).unwrap();
    assert!(copied.problems().is_empty(), "{copied}");
}
