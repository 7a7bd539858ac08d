//! The command line.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::as_node;
use super::invite_command::EnrolArguments;
use super::nodes_command::NodesArguments;
use super::problem::WrongFlag;
use super::settings::Settings;
use super::socket_arguments::SocketArguments;
use super::source_file::SourceFile;

/// Serves a directory over GridFTP.
///
/// `cargo run`, without any argument and not as root, serves the current directory, read-only, to anonymous users on
/// 127.0.0.1:2811.
#[derive(Debug, Parser)]
#[command(
    name = "gridhaul-server",
    version,
    args_conflicts_with_subcommands = true
)]
pub struct CommandLine {
    /// The command; `serve` if there is none.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of `serve`, which need no subcommand.
    #[command(flatten)]
    pub serve: ServeArguments,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory; the default
    Serve(Box<ServeArguments>),
    /// Serve the user who logged in with ssh, on standard input and output (sshftp://)
    ///
    /// Takes the flags of `serve`, and its file, and ignores those about listening and logging in. Without --root the user
    /// sees the whole machine and begins at home.
    Ssh(Box<ServeArguments>),
    /// Serve data channels for control servers on other machines, as a data node
    ///
    /// Takes flags of `serve` that are about files and data channels, and its file. Control servers connect with mutual TLS.
    #[command(mut_args = as_node::argument)]
    Node(Box<NodeServeArguments>),
    /// Check what serving depends on: certificates, trust, maps, accounts, ports, limits
    ///
    /// Takes the flags of `serve`, and its file, and starts nothing. Each finding is a line that begins with ok, warning,
    /// error or unknown; if there is an error, the exit status is 1.
    Check(Box<CheckArguments>),
    /// Examine the running server as its clients see it: names, ports, path, clock, speeds, and what limits transfers
    ///
    /// Takes the flags of `serve`, and its file, as the server runs with them. Each finding is a line that begins with ok,
    /// warning or error; if there is an error, the exit status is 1.
    Doctor(Box<DoctorArguments>),
    /// Show what a running server does
    Status(StatusArguments),
    /// Show the sessions and transfers of a running server, again and again; q ends it
    Top(TopArguments),
    /// End sessions of a running server, or a transfer
    Kick(KickArguments),
    /// Have a running server accept no more connections, and let its transfers finish; a second time ends the server
    Drain(SocketArguments),
    /// Show the data nodes of a running server, drain and resume them, and invite new ones
    Nodes(NodesArguments),
    /// Have a running server read its configuration again, and tell what took effect
    Reload(SocketArguments),
    /// Have the program that is installed now take over from a running server, which finishes its transfers
    ///
    /// The new version first checks the configuration. If it does not serve, the running one goes on, and the exit status is 1.
    Upgrade(SocketArguments),
    /// Add a user to a password file, change a user's password, delete or list users
    ///
    /// A running server reads the file again at SIGHUP.
    Passwd(PasswdArguments),
    /// Translate the configuration of globus-gridftp-server, and print it as a configuration file
    ///
    /// Each line has its origin, and a remark if something differs. The exit status is 0 if everything that limits access was
    /// carried over, 3 if the output has lines with ATTENTION, which name what was not, and 1 if there is no output.
    Import(ImportArguments),
    /// Serve with the command line, the files and the environment of globus-gridftp-server
    ///
    /// The same happens if the program is started by that name, as by a symbolic link. `gct -help` prints all options.
    #[command(disable_help_flag = true)]
    Gct(GctArguments),
}

/// The arguments of `serve`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct ServeArguments {
    /// A TOML file with settings; its keys are the names of these flags, and flags win over it
    #[arg(long, value_name = "FILE", help_heading = "Configuration file")]
    pub config: Option<PathBuf>,
    /// The settings that are given as flags.
    #[command(flatten)]
    pub settings: Settings,
    /// Flags that cannot be used.
    #[arg(skip)]
    pub wrong: Vec<WrongFlag>,
    /// Files of globus-gridftp-server that the settings come from.
    #[arg(skip)]
    pub translated: Vec<SourceFile>,
}

/// The arguments of `node`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct NodeServeArguments {
    /// How the node gets a certificate.
    #[command(flatten)]
    pub enrol: EnrolArguments,
    /// The arguments of `serve`.
    #[command(flatten)]
    pub serve: ServeArguments,
}

/// The arguments of `check`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct CheckArguments {
    /// Check only what data channels over RDMA need (devices, libraries, memory), and examine each adapter
    #[arg(long, help_heading = "What to check")]
    pub rdma: bool,
    /// The arguments of `serve`.
    #[command(flatten)]
    pub serve: ServeArguments,
}

/// The arguments of `doctor`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct DoctorArguments {
    /// Examine the path to this host: its distance and its packet size. Default port: 2811
    #[arg(long, value_name = "HOST[:PORT]")]
    pub peer: Option<String>,
    /// Compare the TCP buffers with a round-trip time of this many milliseconds
    #[arg(long, value_name = "MILLISECONDS")]
    pub rtt: Option<f64>,
    /// Measure the disk of this directory with a temporary file of at most 256 MiB, for at most 10 s
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,
    /// Explain the last transfers in this log of the server. Default: audit-log, or log-file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log in as this user to ask for data ports. Default: the anonymous user
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub login: Option<String>,
    /// The file whose first line is the password of that user
    #[arg(long, value_name = "FILE", requires = "login")]
    pub password_file: Option<PathBuf>,
    /// Only measure RDMA from memory to memory, to a machine where doctor listens for that. It shows the port, and a word, which is
    /// read from standard input here
    #[arg(
        long,
        value_name = "HOST:PORT",
        help_heading = "RDMA between two machines"
    )]
    pub rdma: Option<String>,
    /// Only let one peer that knows the word measure RDMA to this machine, at this port or at any; ends by itself
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", conflicts_with = "rdma",
        help_heading = "RDMA between two machines")]
    pub rdma_listen: Option<u16>,
    /// The time of each measurement with --rdma, from 1 to 10. Default: 3
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=10), requires = "rdma",
        help_heading = "RDMA between two machines")]
    pub rdma_seconds: Option<u8>,
    /// The arguments of `serve`.
    #[command(flatten)]
    pub serve: ServeArguments,
}

impl DoctorArguments {
    /// Whether only RDMA between two machines is examined.
    pub fn is_about_rdma(&self) -> bool {
        self.rdma.is_some() || self.rdma_listen.is_some()
    }
}

/// The arguments of `status`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct StatusArguments {
    /// How to reach the server.
    #[command(flatten)]
    pub server: SocketArguments,
    /// The whole document, as the administration page gets it
    #[arg(long)]
    pub json: bool,
    /// List the administration sockets in the default directories, and whether a server answers there
    #[arg(long, conflicts_with_all = ["json", "socket", "config"])]
    pub list: bool,
}

/// The arguments of `top`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct TopArguments {
    /// How to reach the server.
    #[command(flatten)]
    pub server: SocketArguments,
    /// One table, for scripts
    #[arg(long)]
    pub once: bool,
}

/// The arguments of `kick`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct KickArguments {
    /// How to reach the server.
    #[command(flatten)]
    pub server: SocketArguments,
    #[command(flatten)]
    /// Whom to end.
    pub whom: Whom,
}

/// What `kick` ends: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[group(required = true, multiple = false)]
pub struct Whom {
    /// The number of a session, as in the log and in `status`
    #[arg(value_name = "SESSION")]
    pub session: Option<u64>,
    /// All sessions of a user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// All sessions from an address
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<IpAddr>,
    /// A transfer, by its number in `status`; its session stays
    #[arg(long, value_name = "NUMBER")]
    pub transfer: Option<u64>,
}

/// The arguments of `passwd`. The password comes from the terminal, or from standard input.
#[derive(Debug, Args)]
pub struct PasswdArguments {
    /// The password file, which is created if it does not exist
    pub file: PathBuf,
    /// The user to add, or whose password to change
    #[arg(required_unless_present_any = ["list", "delete"])]
    pub name: Option<String>,
    /// The directory that this user sees as `/`. Default: the server's root; an existing user keeps the directory
    #[arg(long, value_name = "DIR", requires = "name")]
    pub root: Option<PathBuf>,
    /// This user may read only
    #[arg(long, requires = "root")]
    pub read_only: bool,
    /// List the users with their directories and access, and no hashes
    #[arg(long, conflicts_with_all = ["name", "delete"])]
    pub list: bool,
    /// Delete a user
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub delete: Option<String>,
}

/// The arguments of `import`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct ImportArguments {
    /// A configuration file, or a directory of them; of two values the later counts. Default: /etc/gridftp.d, then
    /// /etc/gridftp.conf, else /etc/grid-security/gridftp.conf
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A directory of configuration files, which the files override; may be given several times
    #[arg(long, value_name = "DIR")]
    pub config_dir: Vec<PathBuf>,
    /// A file with variables, as NAME=value; may be given several times. Default, without files:
    /// /etc/sysconfig/globus-gridftp-server and /etc/default/globus-gridftp-server
    #[arg(long, value_name = "FILE")]
    pub environment: Vec<PathBuf>,
    /// Print all options of globus-gridftp-server, and what becomes of them
    #[arg(long, conflicts_with_all = ["files", "config_dir", "environment"])]
    pub options: bool,
}

/// The arguments of `gct`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct GctArguments {
    /// The command line of globus-gridftp-server
    #[arg(
        value_name = "OPTION",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<OsString>,
}

/// What the help of an option says of its default.
pub(super) fn default(command: &clap::Command, name: &str) -> String {
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|argument| argument.get_id().as_str() == name);
    let help = argument
        .and_then(clap::Arg::get_help)
        .map(ToString::to_string);
    let default = help.and_then(|help| {
        let (_, default) = help.rsplit_once("Default: ")?;
        Some(default.trim_matches(['.', '`']).to_owned())
    });
    let is_switch = argument
        .and_then(clap::Arg::get_value_names)
        .is_some_and(|names| names.iter().any(|name| name == "BOOL"));
    default.unwrap_or_else(|| if is_switch { "false" } else { "none" }.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn serve(arguments: &[&str]) -> ServeArguments {
        let line =
            CommandLine::try_parse_from([&["gridhaul-server"], arguments].concat()).expect("valid");
        match line.command {
            Some(Command::Serve(serve)) => *serve,
            None => line.serve,
            Some(_) => panic!("not serve"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn serve_is_what_is_meant_when_nothing_is_said() {
        assert_eq!(serve(&[]), ServeArguments::default());
        let flags = ["--root", "/srv", "--listen", "127.0.0.1:0", "--anonymous"];
        assert_eq!(serve(&flags), serve(&[&["serve"], &flags[..]].concat()));
    }

    #[test]
    fn switches_need_no_value_and_lists_may_be_repeated() {
        let settings = serve(&[
            "--anonymous",
            "--anonymous-write=false",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "[::1]:0",
            "--allowed-drivers",
            "tcp,null",
        ])
        .settings;
        assert_eq!(settings.anonymous, Some(true));
        assert_eq!(settings.anonymous_write, Some(false));
        assert_eq!(settings.listen.map(|listen| listen.len()), Some(2));
        assert_eq!(
            settings.allowed_drivers,
            Some(vec!["tcp".to_owned(), "null".to_owned()])
        );
    }

    #[test]
    fn every_setting_is_a_flag_and_a_key_of_the_same_name() {
        let command = CommandLine::command();
        let serve = command.find_subcommand("serve").expect("serve");
        let error = toml::from_str::<Settings>("no-such-key = 1")
            .expect_err("unknown")
            .to_string();
        for argument in serve.get_arguments() {
            let name = argument.get_long().expect("all are long");
            if !["config", "help"].contains(&name) {
                assert!(
                    error.contains(&format!("`{name}`")),
                    "{name} is no key of the file"
                );
            }
        }
    }
}
