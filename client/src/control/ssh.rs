//! A control channel over ssh: the program ssh runs the server on the other machine (`sshftp`).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use tokio::net::UnixStream;

use crate::location::Server;

/// How ssh is run.
#[derive(Debug, Clone)]
pub struct SshSettings {
    /// The program, with the arguments of OpenSSH.
    pub program: String,
    /// The command that starts the server, for the shell of the other machine.
    pub server: String,
    /// Whether ssh may ask the user.
    pub may_ask: bool,
}

/// The running program, which ends with the control channel.
pub(super) struct SshProcess(Child);

impl Drop for SshProcess {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether ssh takes this for the name of a user. Its configuration may pass the name to a shell (`ProxyCommand` with `%r`).
pub(crate) fn is_user(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

impl SshSettings {
    /// The scripts that globus-url-copy starts, in its order.
    pub const SERVER: &'static str = "exec /bin/sh -c 'for script in \"$HOME/.globus/sshftp\" \
        /etc/grid-security/sshftp; do test -f \"$script\" && exec \"$script\"; done; \
        printf \"500 This host has neither ~/.globus/sshftp nor /etc/grid-security/sshftp.\\r\\n\"'";

    /// Starts ssh. `peer` decides the address family, so that data connections take the same.
    pub(super) fn start(
        &self,
        server: &Server,
        peer: IpAddr,
    ) -> io::Result<(UnixStream, SshProcess)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (input, output) = (theirs.try_clone()?, theirs);
        let child = self
            .command(server, peer)
            .stdin(OwnedFd::from(input))
            .stdout(OwnedFd::from(output))
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok((UnixStream::from_std(ours)?, SshProcess(child)))
    }

    fn command(&self, server: &Server, peer: IpAddr) -> Command {
        let mut command = Command::new(&self.program);
        // No terminal, and nothing of this machine for the other one.
        command.args(["-T", "-a", "-x", "-oClearAllForwardings=yes"]);
        command.arg(match peer.is_ipv6() {
            true => "-6",
            false => "-4",
        });
        if !self.may_ask {
            command.arg("-oBatchMode=yes");
        }
        if server.port != server.scheme.port() {
            command.args(["-p", &server.port.to_string()]);
        }
        if let Some(user) = &server.user {
            command.args(["-l", user]);
        }
        // No host is an option after this.
        command.args(["--", &server.host, &self.server]);
        command
    }
}

/// The addresses of the server and of this machine for data connections, which do not go through ssh.
pub(super) fn ends(addresses: &[SocketAddr]) -> io::Result<(SocketAddr, SocketAddr)> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match source(*address) {
            Ok(local) => return Ok((*address, local)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The address of this machine towards another one. Sends nothing.
fn source(peer: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    socket.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    fn arguments(url: &str, may_ask: bool) -> Vec<String> {
        let Location::Remote(url) = Location::parse(url).expect(url) else {
            panic!("{url} is a file");
        };
        let settings = SshSettings {
            program: "ssh".to_owned(),
            server: "serve".to_owned(),
            may_ask,
        };
        let command = settings.command(&url.server, [127, 0, 0, 1].into());
        let arguments = command.get_args();
        arguments
            .map(|argument| argument.to_str().expect("text").to_owned())
            .collect()
    }

    #[test]
    fn the_host_is_never_an_option() {
        let all = arguments("sshftp://ada@dtn.example.org:2222/a", false);
        let (options, rest) = all.split_at(all.iter().position(|one| one == "--").expect("it is"));
        assert_eq!(rest, ["--", "dtn.example.org", "serve"]);
        assert!(options.ends_with(&["-p", "2222", "-l", "ada"].map(str::to_owned)));
        assert!(options.contains(&"-oBatchMode=yes".to_owned()));
        let asking = arguments("sshftp://dtn.example.org/a", true);
        assert!(!asking.contains(&"-oBatchMode=yes".to_owned()));
        for wrong in ["sshftp://-oProxyCommand=x/", "sshftp://-h/", "ftp://-h/"] {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn users_are_plain_names() {
        for good in ["ada", "ada.l", "ada@site", "a_b-c"] {
            assert!(is_user(good), "{good}");
        }
        for bad in ["", "-oProxyCommand=x", "a b", "a;b", "$(id)", "a`b", "a\nb"] {
            assert!(!is_user(bad), "{bad}");
        }
    }
}
