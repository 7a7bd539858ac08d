//! The command line.
//!
//! ```text
//!   cat, files, trees, rdma, bench     the other commands for files
//!   choices                           options with a fixed set of values
//!   data                              options that several commands share
//!   hosts                             options of logins by server
//!   passwords                         whom a password file is for
//!   rate                              the value of --rate
//! ```

mod bench;
mod cat;
mod choices;
mod data;
mod files;
mod hosts;
mod passwords;
mod rate;
mod rdma;
mod trees;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgAction, Args, Parser, Subcommand};
use gridhaul_protocol::command::{AlgorithmName, Password, SiteCommand};
use gridhaul_protocol::stack::StackSpec;
use gridhaul_storage::ChecksumAlgorithm;

pub(super) use self::bench::{BenchArguments, Varied};
pub(super) use self::cat::CatArguments;
pub(super) use self::choices::{ProgressArgument, StripeArgument, SyncArgument};
pub(super) use self::data::{
    Authentication, ChannelArguments, DataArguments, ModeArgument, Parallel,
};
pub(super) use self::files::{
    ListArguments, MakeArguments, MoveArguments, RemoveArguments, StatArguments, SumArguments,
};
pub(super) use self::hosts::{HostOptions, is_login};
pub(super) use self::passwords::{NotForUser, PasswordOf};
pub(super) use self::rdma::{OverRdma, RDMA_DRIVER, RdmaArguments, RdmaWay};
pub(super) use self::trees::{ChmodArguments, TreeArguments, UsageArguments};
use super::plan::Plan;
use super::proxy::ProxyCommand;
use super::telling::Telling;
use crate::control::AddressFamily;
use crate::location::{End, Server, as_text};
use crate::session::DataCredential;
use crate::transfer::FilePart;

/// Copy files to, from and between GridFTP servers
#[derive(Debug, Parser)]
#[command(name = "gridhaul", version, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Copy files
    #[command(args_override_self = true)]
    Copy(CopyArguments),
    /// Copy files of this machine to a server over RDMA, with the options of copy
    #[command(args_override_self = true, mut_arg("stack", rdma::stack_help))]
    Rput(RdmaArguments),
    /// Copy files of servers to this machine over RDMA, with the options of copy
    #[command(args_override_self = true, mut_arg("stack", rdma::stack_help))]
    Rget(RdmaArguments),
    /// Write files of servers to standard output
    Cat(CatArguments),
    /// Print the checksum of a file of a server
    Sum(SumArguments),
    /// Log in at a server, and show what it is and how fast it answers
    Ping(PingArguments),
    /// Measure how fast bytes move from or to a server, or between two, and recommend the options of copies
    Bench(BenchArguments),
    /// List directories of servers
    Ls(ListArguments),
    /// Show what servers say about files and directories
    Stat(StatArguments),
    /// Make directories
    Mkdir(MakeArguments),
    /// Remove files and, with --recursive, directories
    #[command(mut_group("ChannelArguments", |group| group.requires("recursive")))]
    Rm(RemoveArguments),
    /// Rename a file or a directory of a server; an existing file with the new name is replaced if the server does so
    Mv(MoveArguments),
    /// Make, show and remove the proxy with which you log in
    Proxy {
        #[command(subcommand)]
        command: ProxyCommand,
    },
    /// Change the permissions of files and directories
    #[command(mut_group("ChannelArguments", |group| group.requires("recursive")))]
    Chmod(ChmodArguments),
    /// Print how many bytes files and directories have
    #[command(disable_help_flag = true)]
    Du(UsageArguments),
    /// Show a directory with all that it has
    Tree(TreeArguments),
    /// Show what the configuration files set for a server, and where
    Config {
        /// The server, or a file of it. Default: what holds for all servers
        #[arg(value_name = "URL")]
        url: Option<String>,
    },
    /// Copy with the options of globus-url-copy
    #[command(disable_help_flag = true)]
    Guc {
        /// The options and URLs of globus-url-copy
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGUMENT"
        )]
        words: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub(super) struct PingArguments {
    /// The server: gsiftp://HOST, ftps://HOST, ftp://HOST or sshftp://HOST
    #[arg(value_name = "URL")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) login: LoginArguments,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(super) struct CopyArguments {
    /// The sources and, last, the destination: paths and URLs like gsiftp://HOST/PATH, ftp://HOST/PATH;
    /// - is standard input or standard output
    #[arg(required_unless_present = "from_file", conflicts_with = "from_file", num_args = 1.., value_names = ["SRC", "DST"],
        value_parser = OsStringValueParser::new().map(|word| as_text(word.as_bytes())))]
    pub(super) locations: Vec<String>,
    /// Copy the files of a list: a source and a destination on each line, in double quotes if they have
    /// spaces; # begins a comment. - is standard input
    #[arg(long, value_name = "FILE")]
    pub(super) from_file: Option<PathBuf>,
    /// Copy directories with all that they contain: the content of SRC becomes the content of DST
    #[arg(long, short)]
    pub(super) recursive: bool,
    /// DST is the file itself, also if there is a directory with its name
    #[arg(long, short = 'T')]
    pub(super) no_target_directory: bool,
    /// Make the directory that DST is in, and those above it
    #[arg(long)]
    pub(super) create_dirs: bool,
    #[command(flatten)]
    pub(super) login: LoginArguments,
    #[command(flatten)]
    pub(super) data: DataArguments,
    /// Files that are copied at a time, 1 to 64
    #[arg(long, short, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) concurrency: u8,
    /// Files of less than 4 MiB whose commands are sent before earlier ones are complete, on each session in
    /// MODE E, 1 to 100; 1 sends none ahead
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) pipeline: u8,
    /// Move the bytes of copies between two servers through this machine, as a stream
    #[arg(long, conflicts_with = "resume")]
    pub(super) relay: bool,
    /// How often a file is tried again after a connection or a server has failed
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub(super) retry: u32,
    /// Give copies the modification times of their sources
    #[arg(long, short = 't')]
    pub(super) times: bool,
    /// Copy only files that differ, by size and time if HOW is not given. Keeps times
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "time")]
    pub(super) sync: Option<SyncArgument>,
    /// With --recursive, remove what the source does not have from the directories of the copy
    #[arg(long, requires = "recursive")]
    pub(super) delete: bool,
    /// Complete an earlier copy with the same sources and destination that was interrupted or had failures
    #[arg(long)]
    pub(super) resume: bool,
    /// Keep what has arrived of a file that is given up, so that --resume continues it; this is the default
    #[arg(long, overrides_with = "no_partial")]
    pub(super) partial: bool,
    /// Remove what has arrived of a file that is given up
    #[arg(long, overrides_with = "partial", conflicts_with_all = ["offset", "length"])]
    pub(super) no_partial: bool,
    /// The file that knows what is complete until everything is. Default: one for each sources and
    /// destination in $XDG_STATE_HOME/gridhaul or ~/.local/state/gridhaul
    #[arg(long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// Copy the file from this byte on, to the same place in DST, whose other bytes stay
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(..=FilePart::LARGEST),
        conflicts_with_all = ["recursive", "sync", "resume", "journal", "times", "from_file"])]
    pub(super) offset: Option<u64>,
    /// The highest rate of all files together, in bytes per second: 500k, 20M, 1.5G, in powers of 1000
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    pub(super) rate: Option<u64>,
    /// Copy at most this many bytes, from --offset or else from the beginning of the file
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(..=FilePart::LARGEST),
        conflicts_with_all = ["recursive", "sync", "resume", "journal", "times", "from_file"])]
    pub(super) length: Option<u64>,
    /// Copy and remove nothing; say what would be done
    #[arg(long, short = 'n')]
    pub(super) dry_run: bool,
    /// Verify the copies by this checksum, computed at both ends: MD5, ADLER32, CRC32C, SHA256, ...
    #[arg(long, value_name = "ALGORITHM")]
    pub(super) checksum: Option<ChecksumAlgorithm>,
    /// A checksum that only servers can compute, in the place of `checksum`, for options of globus-url-copy.
    #[arg(skip)]
    pub(super) checksum_of_servers: Option<AlgorithmName>,
    /// Where a dry run writes its copies, for options of globus-url-copy.
    #[arg(skip)]
    pub(super) plan: Option<Arc<Plan>>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    /// What progress bars, or the progress events of --json, are about
    #[arg(long, value_name = "WHAT", default_value = "files", conflicts_with_all = ["no_progress", "quiet", "dry_run"])]
    pub(super) progress: ProgressArgument,
    /// Print a line for each file in place of progress bars
    #[arg(long)]
    pub(super) no_progress: bool,
    /// Say more on standard error: the sessions, how each file goes, and its channels; with -vv also all
    /// commands and replies, without passwords
    #[arg(long, short, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(super) verbose: u8,
    /// Print errors only
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// For `rput` and `rget`.
    #[arg(skip)]
    pub(super) rdma: Option<OverRdma>,
}

impl CopyArguments {
    /// The part of a file that is copied.
    pub(super) fn part(&self) -> Option<FilePart> {
        let is_part = self.offset.is_some() || self.length.is_some();
        is_part.then_some(FilePart {
            offset: self.offset.unwrap_or(0),
            length: self.length,
        })
    }

    /// Whether what has arrived of a file that is given up stays.
    pub(super) fn keeps_partial(&self) -> bool {
        self.partial || !self.no_partial
    }

    /// Whether copies get the modification times of their sources.
    pub(super) fn keeps_times(&self) -> bool {
        use SyncArgument::{Checksum, Size, Time};

        self.times || matches!(self.sync, Some(Size | Time | Checksum))
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct LoginArguments {
    /// The proxy, or the certificate with its key. Default: $X509_USER_PROXY, /tmp/x509up_uUID,
    /// $X509_USER_CERT and $X509_USER_KEY, ~/.globus
    #[arg(long, value_name = "FILE")]
    pub(super) proxy: Option<PathBuf>,
    /// The directory with trusted authorities. Default: $X509_CERT_DIR, ~/.globus/certificates,
    /// /etc/grid-security/certificates; for ftps the authorities of this system
    #[arg(long, value_name = "DIR")]
    pub(super) trust: Option<PathBuf>,
    /// A PEM file with the authorities for ftps, in place of those of this system
    #[arg(long, value_name = "FILE", conflicts_with = "trust")]
    pub(super) ca: Option<PathBuf>,
    /// The subject that the certificates of servers must have, in place of the name of the host
    #[arg(long, value_name = "SUBJECT")]
    pub(super) subject: Option<String>,
    /// The user at servers whose URL names none. Default: anonymous with ftp and ftps, the account that the
    /// server has for the certificate with gsiftp, and that of ssh with sshftp
    #[arg(long, value_name = "NAME", value_parser = user)]
    pub(super) user: Option<String>,
    /// A file whose first line is the password of the user, for one server. Default: asked for at the terminal
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// The program for sshftp, with the arguments of OpenSSH
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    pub(super) ssh: String,
    /// Use IPv4 addresses only
    #[arg(long, short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 addresses only
    #[arg(long, short = '6')]
    ipv6: bool,
    /// The longest wait for a connection or a reply
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: Duration,
    /// What holds for the sources and for the destinations only, for options of globus-url-copy.
    #[arg(skip)]
    pub(super) ends: [EndOptions; 2],
    /// Passwords that were in URLs, for options of globus-url-copy.
    #[arg(skip)]
    pub(super) passwords: Vec<(Server, Password)>,
    /// The credential of data channels in place of that of the user, for options of globus-url-copy.
    #[arg(skip)]
    pub(super) data_credential: Option<Arc<DataCredential>>,
    /// `user` is that of a `[[host]]`.
    #[arg(skip)]
    pub(super) has_own_user: bool,
    /// Who has set `password_file`.
    #[arg(skip)]
    pub(super) password_of: PasswordOf,
    /// What configuration files set for each server.
    #[arg(skip)]
    pub(super) hosts: Option<HostOptions>,
    /// What is said about sessions.
    #[arg(skip)]
    pub(super) telling: Telling,
}

/// What holds for the servers of one end of copies.
#[derive(Debug, Clone, Default)]
pub(super) struct EndOptions {
    /// In place of `proxy`.
    pub(super) proxy: Option<PathBuf>,
    /// In place of `subject`.
    pub(super) subject: Option<String>,
    /// The driver stack of data channels, in place of `stack`.
    pub(super) stack: Option<StackSpec>,
    /// What servers are sent after the login.
    pub(super) site: Vec<SiteCommand>,
}

impl LoginArguments {
    /// The options for one end.
    pub(super) fn for_end(mut self, end: Option<End>) -> (Self, EndOptions) {
        // Where ends are not told apart, both have the same options.
        let end = end.unwrap_or(End::Source);
        let own = std::mem::take(&mut self.ends[end as usize]);
        if own.proxy.is_some() {
            self.proxy.clone_from(&own.proxy);
        }
        if own.subject.is_some() {
            self.subject.clone_from(&own.subject);
        }
        (self, own)
    }

    pub(super) fn family(&self) -> AddressFamily {
        match (self.ipv4, self.ipv6) {
            (true, _) => AddressFamily::Ipv4,
            (_, true) => AddressFamily::Ipv6,
            _ => AddressFamily::Any,
        }
    }
}

/// A user, as it could be in a URL.
fn user(text: &str) -> Result<String, String> {
    if text.contains(':') {
        return Err("a password is read from --password-file, or typed".to_owned());
    }
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err("a name is not empty, and has no control characters".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.into())),
        _ => Err("a number of seconds, at least 1".to_owned()),
    }
}
