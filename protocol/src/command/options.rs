//! `OPTS`: options of other commands (RFC 2389 4).

use std::fmt::Write as _;
use std::str::FromStr;

use super::arguments::{StripeLayout, Text};
use super::error::{ArgumentFault, CommandError};
use super::grammar::{Argument, Pair, decimal_value, pairs};
use crate::excerpt::Excerpt;

/// One `OPTS` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptsCommand {
    /// `OPTS RETR`: how files are sent (GFD.20, options to RETR).
    Retrieve(RetrieveOptions),
    /// `OPTS PASV AllowDelayed=`; `SPAS` and `EPSV` set the same option: whether the address of a passive data channel may be sent
    /// with the transfer.
    DelayedPassive(bool),
    /// `OPTS MLST`: the facts of listings (RFC 3659 7.9): 0 to 64 names.
    Facts(Vec<Text>),
    /// `OPTS UTF8`: switches UTF-8 names on or off (draft-ietf-ftpext-utf-8-option).
    Utf8(bool),
    /// `OPTS CKSM Markers=`: seconds between markers while a checksum is computed; 0 is never.
    ChecksumMarkers(u32),
}

/// The options of `RETR`. `None` leaves a setting unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetrieveOptions {
    /// `Parallelism=`.
    pub parallelism: Option<Parallelism>,
    /// `StripeLayout=` and `BlockSize=`.
    pub layout: Option<StripeLayout>,
    /// `Markers=`: seconds between performance markers while sending; 0 is never.
    pub marker_seconds: Option<u32>,
    /// `PacketSize=`: the size of blocks on the wire, in bytes; not zero.
    pub packet_bytes: Option<u64>,
}

/// The requested number of data channels for each stripe (GFD.20, options to RETR). No field is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// The initial number.
    pub starting: u32,
    /// The minimum.
    pub minimum: u32,
    /// The maximum.
    pub maximum: u32,
}

impl OptsCommand {
    /// The most facts that `OPTS MLST` may name.
    pub const MAX_FACTS: usize = 64;

    pub(super) fn parse(argument: Argument<'_>) -> Result<Self, CommandError> {
        let (command, options) = argument.split_word("the command")?;
        let pairs = options.read(pairs)?;
        match command.to_ascii_uppercase().as_slice() {
            b"RETR" => RetrieveOptions::parse(&pairs).map(Self::Retrieve),
            b"PASV" | b"SPAS" | b"EPSV" => parse_flag(&pairs).map(Self::DelayedPassive),
            b"MLST" => parse_facts(&pairs).map(Self::Facts),
            b"UTF8" => parse_switch(&pairs).map(Self::Utf8),
            b"CKSM" => parse_markers(&pairs).map(Self::ChecksumMarkers),
            _ => Err(ArgumentFault::Invalid {
                what: "the command",
                given: Excerpt::new(command),
                expected: "RETR, PASV, SPAS, EPSV, MLST, UTF8 or CKSM",
            }),
        }
        .map_err(|fault| argument.fault(fault))
    }

    /// The rest of the line after `OPTS`.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Retrieve(options) => options.encode(),
            Self::DelayedPassive(allowed) => format!("PASV AllowDelayed={};", u8::from(*allowed)),
            Self::Facts(facts) => {
                let names: String = facts.iter().map(|fact| format!("{fact};")).collect();
                format!("MLST {names}")
            }
            Self::Utf8(on) => String::from(if *on { "UTF8 ON" } else { "UTF8 OFF" }),
            Self::ChecksumMarkers(seconds) => format!("CKSM Markers={seconds};"),
        }
    }
}

impl RetrieveOptions {
    fn parse(pairs: &[Pair<'_>]) -> Result<Self, ArgumentFault> {
        let mut options = Self::default();
        for pair in pairs {
            options.set(pair)?;
        }
        Ok(options)
    }

    fn set(&mut self, pair: &Pair<'_>) -> Result<(), ArgumentFault> {
        match pair.key.to_ascii_lowercase().as_slice() {
            b"parallelism" => self.parallelism = Some(Parallelism::parse(pair.value)?),
            b"stripelayout" => self.layout = Some(self.parse_layout(pair.value)?),
            b"blocksize" => {
                let block_bytes = not_zero("the block size", pair.value)?;
                if self.layout != Some(StripeLayout::Partitioned) {
                    self.layout = Some(StripeLayout::Blocked { block_bytes });
                }
            }
            b"markers" => self.marker_seconds = Some(decimal_value("Markers", pair.value)?),
            b"packetsize" => self.packet_bytes = Some(not_zero("the packet size", pair.value)?),
            _ => {
                return Err(unknown_option(
                    pair,
                    "Parallelism=, StripeLayout=, BlockSize=, Markers= or PacketSize=",
                ));
            }
        }
        Ok(())
    }

    /// A preceding `BlockSize=` is kept.
    fn parse_layout(&self, layout: &[u8]) -> Result<StripeLayout, ArgumentFault> {
        match (layout.to_ascii_lowercase().as_slice(), self.layout) {
            (b"partitioned", _) => Ok(StripeLayout::Partitioned),
            (b"blocked", Some(blocked @ StripeLayout::Blocked { .. })) => Ok(blocked),
            (b"blocked", _) => Ok(StripeLayout::default()),
            _ => Err(ArgumentFault::Invalid {
                what: "the stripe layout",
                given: Excerpt::new(layout),
                expected: "Blocked or Partitioned",
            }),
        }
    }

    fn encode(&self) -> String {
        let mut line = String::from("RETR ");
        match self.layout {
            Some(StripeLayout::Partitioned) => line.push_str("StripeLayout=Partitioned;"),
            Some(StripeLayout::Blocked { block_bytes }) => {
                let _ = write!(line, "StripeLayout=Blocked;BlockSize={block_bytes};");
            }
            None => {}
        }
        if let Some(Parallelism {
            starting,
            minimum,
            maximum,
        }) = self.parallelism
        {
            let _ = write!(line, "Parallelism={starting},{minimum},{maximum};");
        }
        if let Some(seconds) = self.marker_seconds {
            let _ = write!(line, "Markers={seconds};");
        }
        if let Some(bytes) = self.packet_bytes {
            let _ = write!(line, "PacketSize={bytes};");
        }
        line
    }
}

impl Parallelism {
    /// The same number in all fields, as globus-url-copy 10.12 sends it.
    pub fn fixed(channels: u32) -> Self {
        Self {
            starting: channels,
            minimum: channels,
            maximum: channels,
        }
    }

    /// `starting,minimum,maximum`, or `starting` alone as in globus-gridftp-server 13.24.
    fn parse(value: &[u8]) -> Result<Self, ArgumentFault> {
        let numbers: Vec<u32> = value
            .splitn(4, |&byte| byte == b',')
            .map(|number| not_zero("the parallelism", number))
            .collect::<Result<_, _>>()?;
        match *numbers.as_slice() {
            [starting] => Ok(Self::fixed(starting)),
            [starting, minimum, maximum] => Ok(Self {
                starting,
                minimum,
                maximum,
            }),
            _ => Err(ArgumentFault::Invalid {
                what: "the parallelism",
                given: Excerpt::new(value),
                expected: "starting,minimum,maximum",
            }),
        }
    }
}

fn parse_flag(pairs: &[Pair<'_>]) -> Result<bool, ArgumentFault> {
    let expected = "AllowDelayed=0 or AllowDelayed=1";
    match pairs {
        [pair] if pair.key.eq_ignore_ascii_case(b"AllowDelayed") => match pair.value {
            b"0" => Ok(false),
            b"1" => Ok(true),
            _ => Err(unknown_option(pair, expected)),
        },
        [pair, ..] => Err(unknown_option(pair, expected)),
        [] => Err(ArgumentFault::Missing { what: expected }),
    }
}

fn parse_facts(pairs: &[Pair<'_>]) -> Result<Vec<Text>, ArgumentFault> {
    let expected = "at most 64 names of facts, with a semicolon after each";
    if pairs.len() > OptsCommand::MAX_FACTS {
        return Err(ArgumentFault::Invalid {
            what: "the list",
            given: Excerpt::new(pairs[OptsCommand::MAX_FACTS].key),
            expected,
        });
    }
    let fact = |pair: &Pair<'_>| {
        let name = std::str::from_utf8(pair.key).ok().and_then(Text::new);
        name.filter(|_| pair.value.is_empty())
            .ok_or_else(|| unknown_option(pair, expected))
    };
    pairs.iter().map(fact).collect()
}

fn parse_switch(pairs: &[Pair<'_>]) -> Result<bool, ArgumentFault> {
    match pairs {
        [pair] if pair.key.eq_ignore_ascii_case(b"ON") => Ok(true),
        [pair] if pair.key.eq_ignore_ascii_case(b"OFF") => Ok(false),
        [pair, ..] => Err(unknown_option(pair, "ON or OFF")),
        [] => Err(ArgumentFault::Missing { what: "ON or OFF" }),
    }
}

fn parse_markers(pairs: &[Pair<'_>]) -> Result<u32, ArgumentFault> {
    match pairs {
        [pair] if pair.key.eq_ignore_ascii_case(b"Markers") => decimal_value("Markers", pair.value),
        [pair, ..] => Err(unknown_option(pair, "Markers=seconds")),
        [] => Err(ArgumentFault::Missing {
            what: "Markers=seconds",
        }),
    }
}

fn not_zero<T: FromStr + Default + PartialEq>(
    what: &'static str,
    value: &[u8],
) -> Result<T, ArgumentFault> {
    let number = decimal_value(what, value)?;
    if number == T::default() {
        return Err(ArgumentFault::Invalid {
            what,
            given: Excerpt::new(value),
            expected: "at least 1",
        });
    }
    Ok(number)
}

fn unknown_option(pair: &Pair<'_>, expected: &'static str) -> ArgumentFault {
    ArgumentFault::Invalid {
        what: "the option",
        given: Excerpt::new(pair.key),
        expected,
    }
}
