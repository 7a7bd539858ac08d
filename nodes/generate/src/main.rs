//! `cargo run --manifest-path nodes/generate/Cargo.toml`, in the top directory: writes `nodes/src/generated.rs`. With `--check` it
//! fails if that file is not what it would write.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

const PROTO: &str = "nodes/proto/node.proto";
const GENERATED: &str = "nodes/src/generated.rs";

const HEAD: &str = "\
//! Made from `proto/node.proto` by `nodes/generate`. Do not edit.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, unnameable_types, unused_qualifications)]

";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = generated()?;
    if env::args().any(|argument| argument == "--check") {
        if fs::read_to_string(GENERATED)? != wanted {
            eprintln!("{GENERATED} does not fit {PROTO}: run this program without --check");
            return Ok(ExitCode::FAILURE);
        }
    } else {
        fs::write(GENERATED, wanted)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn generated() -> Result<String, Box<dyn Error>> {
    let directory = Path::new("nodes/generate/target/generated");
    fs::create_dir_all(directory)?;
    let descriptors = protox::compile([PROTO], ["nodes/proto"])?;
    tonic_prost_build::configure()
        .build_transport(false)
        // The value may be a private key.
        .skip_debug([".gridhaul.node.v1.SessionDriver"])
        .out_dir(directory)
        .compile_fds(descriptors)?;
    let made = directory.join("gridhaul.node.v1.rs");
    fs::write(&made, format!("{HEAD}{}", fs::read_to_string(&made)?))?;
    let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(&made).status()?;
    if !formatted.success() {
        return Err("rustfmt failed".into());
    }
    Ok(fs::read_to_string(made)?)
}
