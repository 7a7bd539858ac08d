//! `OPTS`: options of other commands (RFC 2389 4).

use super::{StripeLayout, Text};

/// One `OPTS` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptsCommand {
    /// `OPTS RETR`: how files are sent (GFD.20, options to RETR).
    Retrieve(RetrieveOptions),
    /// `OPTS PASV AllowDelayed=`, `OPTS SPAS AllowDelayed=`: whether the address of a passive data
    /// channel may come with the transfer only.
    DelayedPassive(bool),
    /// `OPTS MLST`: the facts that listings shall show (RFC 3659 7.9); may be none.
    Facts(Vec<Text>),
    /// `OPTS UTF8`: switches UTF-8 names, which are always on (draft-ietf-ftpext-utf-8-option).
    Utf8(bool),
    /// `OPTS CKSM Markers=`: seconds between markers while a checksum is made; 0 is never.
    ChecksumMarkers(u32),
}

/// The options of `RETR`; what is absent stays as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetrieveOptions {
    /// `Parallelism=`.
    pub parallelism: Option<Parallelism>,
    /// `StripeLayout=` and `BlockSize=`.
    pub layout: Option<StripeLayout>,
    /// `Markers=`: seconds between performance markers while sending; 0 is never.
    pub marker_seconds: Option<u32>,
    /// `PacketSize=`: the size of blocks on the wire, in bytes, not zero.
    pub packet_bytes: Option<u64>,
}

/// How many data channels to each stripe a client would like (GFD.20, options to RETR). None of them is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// What to start with.
    pub starting: u32,
    /// Not fewer.
    pub minimum: u32,
    /// Not more.
    pub maximum: u32,
}
