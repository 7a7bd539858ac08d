//! The programs that the packages have.

use clap::{Command, CommandFactory as _};
use gridhaul_server::config::CommandLine;

use crate::manual::Manual;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `gridhaul-server`.
    Server,
    /// `gridhaul`.
    Client,
}

/// What the page of the server has after its options, as roff.
const OF_SERVER: &str = r"
.SH SIGNALS
.TP
\fBSIGTERM\fR, \fBSIGINT\fR
Accept no new connections; running transfers have \fBgrace\fR seconds to finish.
.TP
\fBSIGHUP\fR
Read the configuration again, and reopen the log files.
.SH EXIT STATUS
0 after success, 1 after an error, 2 for wrong arguments.
.SH FILES
.TP
\fI/etc/gridhaul/gridhaul.toml\fR
The configuration file of the service. The server reads it only because the unit names it with \fB\-\-config\fR.
.TP
\fI/etc/grid\-security/\fR
The host certificate, the trusted authorities and the grid\-mapfile, as for other grid services.
.TP
\fI/run/gridhaul/admin.sock\fR
The socket of the commands status, top, kick, drain and reload.
.TP
\fI/var/log/gridhaul/\fR
The logs that the configuration names. Other messages are in the journal.
";

/// What the page of the client has after its options, as roff.
const OF_CLIENT: &str = r"
.SH EXIT STATUS
0 if everything is complete, 1 after an error, 2 for wrong arguments or a wrong configuration file, 130 after an interrupt, 141 if the reader of standard output
has ended.
.SH ENVIRONMENT
.TP
\fBX509_USER_PROXY\fR, \fBX509_USER_CERT\fR, \fBX509_USER_KEY\fR
The proxy, or the certificate and its key.
.TP
\fBX509_CERT_DIR\fR
The directory with trusted authorities.
.TP
\fBGRIDHAUL_CONFIG\fR
The configuration file of the user.
.SH FILES
.TP
\fI~/.config/gridhaul/config.toml\fR, \fI/etc/gridhaul/client.toml\fR
Defaults for options, for all servers or by host.
.TP
\fI/tmp/x509up_uUID\fR
The proxy of the user.
.TP
\fI~/.globus/\fR
The certificate of the user and its key, and trusted authorities.
.TP
\fI~/.local/state/gridhaul/\fR
What interrupted copies have done.
";

impl Program {
    pub(crate) fn of(is_client: bool) -> Self {
        match is_client {
            true => Self::Client,
            false => Self::Server,
        }
    }

    /// The name of its file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "gridhaul-server",
            Self::Client => "gridhaul",
        }
    }

    /// The name of its crate.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Server => "gridhaul-server",
            Self::Client => "gridhaul-client",
        }
    }

    /// Its commands and options.
    pub(crate) fn command(self) -> Command {
        match self {
            Self::Server => CommandLine::command(),
            Self::Client => gridhaul_client::program::command_line(),
        }
    }

    /// Its manual pages: administrators run the server, all users the client.
    pub(crate) fn manual(self) -> Manual {
        let (section, more) = match self {
            Self::Server => ("8", OF_SERVER),
            Self::Client => ("1", OF_CLIENT),
        };
        Manual {
            command: self.command(),
            section,
            more,
        }
    }
}
