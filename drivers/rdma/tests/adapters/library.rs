//! Compiles the libraries of `library/`.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use gridhaul_skip::skipped;

/// Each library with its sources.
const LIBRARIES: [(&str, &[&str]); 2] = [
    (
        "libibverbs.so.1",
        &["devices.c", "objects.c", "pairs.c", "wire.c"],
    ),
    ("librdmacm.so.1", &["rdmacm.c"]),
];

/// The directory of the compiled libraries; `None` if the headers of rdma-core are missing.
pub(crate) fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY.get_or_init(compile).as_deref()
}

fn compile() -> Option<PathBuf> {
    if !has_headers() {
        skipped("there is no infiniband/verbs.h (apt install libibverbs-dev librdmacm-dev)");
        return None;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-adapters");
    std::fs::create_dir_all(&directory).expect("a directory of the target directory");
    for (name, sources) in LIBRARIES {
        // Another run of these tests may use the present library.
        let new = directory.join(format!("{name}.{}", process::id()));
        let sources = sources
            .iter()
            .map(|source| sources_directory().join(source));
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-g"])
            .args(["-shared", "-fPIC", "-pthread", "-Wl,-Bsymbolic"])
            .arg(format!("-Wl,-soname,{name}"))
            .arg("-o")
            .arg(&new)
            .args(sources)
            .output()
            .expect("cc, which the workspace needs as well");
        let words = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{name}: {words}");
        std::fs::rename(&new, directory.join(name)).expect("renamed");
    }
    Some(directory)
}

fn sources_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters/library")
}

/// Whether the compiler finds the headers of rdma-core.
fn has_headers() -> bool {
    let program = "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n";
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("headers.c");
    std::fs::write(&source, program).expect("written");
    let checked = Command::new("cc")
        .arg("-fsyntax-only")
        .arg(&source)
        .output();
    checked.expect("cc").status.success()
}
