//! The environment of a measurement: the machine, its kernel, and the versions of the programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::cpus::Cpus;
use crate::support::Kind;

/// Name and value of each fact about the machine.
pub fn facts() -> Vec<(&'static str, String)> {
    vec![
        ("date", date()),
        ("command", command()),
        ("machine", machine()),
        ("load at the beginning", load()),
        ("processors used", processors()),
        ("kernel", release()),
        ("TCP", tcp()),
    ]
}

/// Name and version of the programs of a benchmark of servers.
pub fn programs() -> Vec<(&'static str, String)> {
    vec![
        ("ours", server(Kind::Gridhaul, "--version")),
        ("theirs", server(Kind::Globus, "-version")),
        ("client", version("globus-url-copy", "-version")),
    ]
}

/// The command line without the directory of the program.
fn command() -> String {
    let mut words = std::env::args();
    let program = PathBuf::from(words.next().unwrap_or_default());
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let words = std::iter::once(name.into_owned()).chain(words);
    words.collect::<Vec<_>>().join(" ")
}

/// The version of the kernel, without the name of its build.
fn release() -> String {
    let release = kernel("kernel/osrelease");
    let version = release.split('-').next().unwrap_or_default();
    format!("Linux {version}")
}

/// The load average of the last minute, which should be small.
fn load() -> String {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = averages.split_whitespace().next();
    minute.unwrap_or("unknown").to_owned()
}

fn date() -> String {
    let output = Command::new("date")
        .args(["-u", "+%Y-%m-%d %H:%M UTC"])
        .output();
    let words = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&words).trim().to_owned()
}

fn machine() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let lines = processors.lines();
    let models: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("model name"))
        .map(|line| line.trim_start_matches(['\t', ' ', ':']))
        .collect();
    let model = models.first().copied().unwrap_or("unknown processor");
    let gibibytes = memory("MemTotal").unwrap_or_default() >> 30;
    format!("{} x {model}, {gibibytes} GiB of memory", models.len())
}

/// A value of proc_meminfo(5), in bytes.
pub(super) fn memory(name: &str) -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let line = all
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn processors() -> String {
    Cpus::allowed().map_or_else(|error| error.to_string(), |cpus| cpus.words())
}

fn tcp() -> String {
    format!(
        "{}, tcp_rmem {}, tcp_wmem {}",
        kernel("net/ipv4/tcp_congestion_control"),
        kernel("net/ipv4/tcp_rmem"),
        kernel("net/ipv4/tcp_wmem"),
    )
}

/// A sysctl value, on one line.
fn kernel(name: &str) -> String {
    let value = fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn server(kind: Kind, option: &str) -> String {
    kind.program().map_or_else(
        |error| error.to_string(),
        |program| version(&program.display().to_string(), option),
    )
}

/// The first line of a program's version output.
fn version(program: &str, option: &str) -> String {
    let output = Command::new(program).arg(option).output();
    let words = output
        .map(|output| [output.stdout, output.stderr].concat())
        .unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    words.lines().next().unwrap_or(program).trim().to_owned()
}
