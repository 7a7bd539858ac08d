//! What a server that has started says on standard output: where it listens, and how to try it.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::server::Server;

/// Writes to standard output that the server listens, and how to try it. A failure to write is not an error.
pub(crate) fn announce(server: &Server) {
    let mut text = String::new();
    for address in server.addresses() {
        text.push_str(&format!("Server listening at {address}\n"));
    }
    if let Some(address) = server.metrics_address() {
        text.push_str(&format!("Metrics at http://{address}/metrics\n"));
    }
    if let Some(address) = server.admin_address() {
        let scheme = match server.config().admin.certificate {
            Some(_) => "https",
            None => "http",
        };
        text.push_str(&format!("Administration at {scheme}://{address}\n"));
    }
    let config = server.config();
    if let (Some(_), Some(address)) = (&config.anonymous, server.addresses().first()) {
        text.push_str("Try it:\n");
        for hint in hints(*address, &config.root) {
            text.push_str(&format!("    {hint}\n"));
        }
    }
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Command lines that fetch a file from this server: of the client of this project, and of that of Globus.
fn hints(listening: SocketAddr, root: &Path) -> [String; 2] {
    let host = match listening.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host => host,
    };
    let flag = if host.is_ipv6() { "-ipv6 " } else { "" };
    let server = SocketAddr::new(host, listening.port());
    match sample(root) {
        Some(name) => {
            let name = encode(&name);
            [
                format!("gridhaul copy ftp://{server}/{name} /tmp/"),
                format!("globus-url-copy {flag}ftp://{server}/{name} file:///tmp/{name}"),
            ]
        }
        None => [
            format!("gridhaul ls ftp://{server}/"),
            format!("globus-url-copy {flag}-list ftp://{server}/"),
        ],
    }
}

/// A file in the root that is readable for all users: a README if there is one, else the first by name.
fn sample(root: &Path) -> Option<String> {
    /// The search ends here in larger directories.
    const LOOKED_AT: usize = 1000;

    let readable = |path: &PathBuf| path.is_file() && std::fs::File::open(path).is_ok();
    let mut names: Vec<String> = std::fs::read_dir(root)
        .ok()?
        .take(LOOKED_AT)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_by_key(|name| (!name.starts_with("README"), name.clone()));
    names.into_iter().find(|name| readable(&root.join(name)))
}

/// Percent-encodes all characters that URLs or shells interpret.
fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hints_name_a_file_that_is_there() {
        let root = tempfile::tempdir().expect("a directory");
        let address = "0.0.0.0:2811".parse().expect("an address");
        assert_eq!(
            hints(address, root.path()),
            [
                "gridhaul ls ftp://127.0.0.1:2811/",
                "globus-url-copy -list ftp://127.0.0.1:2811/"
            ]
        );
        std::fs::write(root.path().join("a b;c"), "x").expect("written");
        std::fs::create_dir(root.path().join("README.d")).expect("made");
        assert_eq!(
            hints(address, root.path()),
            [
                "gridhaul copy ftp://127.0.0.1:2811/a%20b%3Bc /tmp/",
                "globus-url-copy ftp://127.0.0.1:2811/a%20b%3Bc file:///tmp/a%20b%3Bc"
            ]
        );
        std::fs::write(root.path().join("README.md"), "x").expect("written");
        let address = "[::1]:5000".parse().expect("an address");
        assert_eq!(
            hints(address, root.path()),
            [
                "gridhaul copy ftp://[::1]:5000/README.md /tmp/",
                "globus-url-copy -ipv6 ftp://[::1]:5000/README.md file:///tmp/README.md"
            ]
        );
    }
}
