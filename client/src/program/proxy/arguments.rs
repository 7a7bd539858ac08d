//! The command line of `gridhaul proxy`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(in crate::program) enum ProxyCommand {
    /// Make a proxy from your certificate and its key
    Create(ProxyCreateArguments),
    /// Show a proxy. The exit status is 1 if it is missing or has expired
    Show(ProxyShowArguments),
    /// Overwrite and remove a proxy
    Destroy {
        /// The proxy. Default: $X509_USER_PROXY, /tmp/x509up_uUID
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct ProxyCreateArguments {
    /// The certificate, in PEM. Default: $X509_USER_CERT, ~/.globus/usercert.pem
    #[arg(long, value_name = "FILE")]
    pub(super) cert: Option<PathBuf>,
    /// Its key, which other users cannot read. Default: $X509_USER_KEY, ~/.globus/userkey.pem, or the file
    /// of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// A file whose first line is the passphrase of the key. Default: asked for at the terminal
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
    /// How long the proxy is valid; no longer than the certificate
    #[arg(long, value_name = "HOURS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    pub(super) hours: u32,
    /// The length of its RSA key
    #[arg(long, value_name = "BITS", default_value = "2048")]
    pub(super) bits: ProxyBits,
    /// Give it a key of the elliptic curve P-256, which is made faster. globus-gridftp-server refuses it
    #[arg(long, conflicts_with = "bits")]
    pub(super) ec: bool,
    /// Make a limited proxy, with which servers start no jobs
    #[arg(long)]
    pub(super) limited: bool,
    /// The file of the proxy. Default: $X509_USER_PROXY, /tmp/x509up_uUID
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct ProxyShowArguments {
    /// The proxy. Default: $X509_USER_PROXY, /tmp/x509up_uUID
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Exit with status 1 also if it is valid for less
    #[arg(long, value_name = "HOURS", default_value_t = 0)]
    pub(super) hours: u32,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProxyBits {
    #[value(name = "2048")]
    Rsa2048,
    #[value(name = "3072")]
    Rsa3072,
    #[value(name = "4096")]
    Rsa4096,
}
