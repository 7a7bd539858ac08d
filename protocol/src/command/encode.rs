//! Encodes a [`Command`] as a line, and as text for the log.

use std::fmt;

use super::arguments::{
    DataChannelAuthentication, DataChannelContext, EpsvRequest, ListPath, MarkerEvent,
    ProtectionLevel, Representation, Restart, TransferMode,
};
use super::commands::Command;
use super::site::SiteCommand;
use crate::address::{format_extended, format_host_port, format_stripe};
use crate::path::PathArgument;
use crate::time::TimeValue;

impl Command {
    /// The line without its CRLF. [`crate::line::encode_command_line`] encodes it for the network.
    pub fn encode(&self) -> Vec<u8> {
        let mut line = self.verb().as_bytes().to_vec();
        if let Some(argument) = self.argument() {
            line.push(b' ');
            line.extend_from_slice(&argument);
        }
        line
    }

    /// The first word of the line.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::User(_) => "USER",
            Self::Pass(_) => "PASS",
            Self::Acct(_) => "ACCT",
            Self::Rein => "REIN",
            Self::Quit => "QUIT",
            Self::Auth(_) => "AUTH",
            Self::Adat(_) => "ADAT",
            Self::Enc(_) => "ENC",
            Self::Mic(_) => "MIC",
            Self::Conf(_) => "CONF",
            Self::Pbsz(_) => "PBSZ",
            Self::Prot(_) => "PROT",
            Self::Dcau(_) => "DCAU",
            Self::Dcsc(_) => "DCSC",
            Self::Ccc => "CCC",
            Self::Feat => "FEAT",
            Self::Help(_) => "HELP",
            Self::Opts(_) => "OPTS",
            Self::Site(_) => "SITE",
            Self::Syst => "SYST",
            Self::Noop => "NOOP",
            Self::Lang(_) => "LANG",
            Self::Stat(_) => "STAT",
            Self::Type(_) => "TYPE",
            Self::Mode(_) => "MODE",
            Self::Stru => "STRU",
            Self::Sbuf(_) => "SBUF",
            Self::Trev { .. } => "TREV",
            Self::Pasv => "PASV",
            Self::Epsv(_) => "EPSV",
            Self::Spas(_) => "SPAS",
            Self::Port(_) => "PORT",
            Self::Eprt(_) => "EPRT",
            Self::Spor(_) => "SPOR",
            Self::Allo { .. } => "ALLO",
            Self::Rest(_) => "REST",
            Self::Retr(_) => "RETR",
            Self::Stor(_) => "STOR",
            Self::Stou(_) => "STOU",
            Self::Appe(_) => "APPE",
            Self::Eret { .. } => "ERET",
            Self::Esto { .. } => "ESTO",
            Self::Rdma(command) => command.verb(),
            Self::Abor => "ABOR",
            Self::List(_) => "LIST",
            Self::Nlst(_) => "NLST",
            Self::Mlsd(_) => "MLSD",
            Self::Mlsr(_) => "MLSR",
            Self::Mlsc(_) => "MLSC",
            Self::Mlst(_) => "MLST",
            Self::Size(_) => "SIZE",
            Self::Mdtm(_) => "MDTM",
            Self::Mfmt { .. } => "MFMT",
            Self::Cksm { .. } => "CKSM",
            Self::Scks { .. } => "SCKS",
            Self::Pwd => "PWD",
            Self::Cwd(_) => "CWD",
            Self::Cdup => "CDUP",
            Self::Mkd(_) => "MKD",
            Self::Rmd(_) => "RMD",
            Self::Dele(_) => "DELE",
            Self::Rnfr(_) => "RNFR",
            Self::Rnto(_) => "RNTO",
        }
    }

    fn argument(&self) -> Option<Vec<u8>> {
        Some(match self {
            Self::Quit
            | Self::Rein
            | Self::Ccc
            | Self::Feat
            | Self::Syst
            | Self::Noop
            | Self::Pasv
            | Self::Abor
            | Self::Pwd
            | Self::Cdup => return None,

            Self::User(text) | Self::Auth(text) => text.as_str().into(),
            Self::Help(text) | Self::Lang(text) => text.as_ref()?.as_str().into(),
            Self::Pass(password) | Self::Acct(password) => password.as_bytes().to_vec(),
            Self::Adat(base64) | Self::Enc(base64) | Self::Mic(base64) | Self::Conf(base64) => {
                base64.as_str().into()
            }
            Self::Pbsz(bytes) => bytes.to_string().into(),
            Self::Prot(ProtectionLevel::Clear) => b"C".to_vec(),
            Self::Prot(ProtectionLevel::Safe) => b"S".to_vec(),
            Self::Prot(ProtectionLevel::Private) => b"P".to_vec(),
            Self::Dcau(DataChannelAuthentication::None) => b"N".to_vec(),
            Self::Dcau(DataChannelAuthentication::User) => b"A".to_vec(),
            Self::Dcau(DataChannelAuthentication::Subject(name)) => format!("S {name}").into(),
            Self::Dcsc(DataChannelContext::Default) => b"D".to_vec(),
            Self::Dcsc(DataChannelContext::Credential(pem)) => format!("P {}", pem.as_str()).into(),

            Self::Opts(options) => options.encode().into(),
            Self::Site(command) => command.encode(),
            Self::Type(Representation::Ascii) => b"A".to_vec(),
            Self::Type(Representation::Image) => b"I".to_vec(),
            Self::Mode(TransferMode::Stream) => b"S".to_vec(),
            Self::Mode(TransferMode::Extended) => b"E".to_vec(),
            Self::Stru => b"F".to_vec(),
            Self::Sbuf(bytes) => bytes.to_string().into(),
            Self::Trev { event, seconds } => match event {
                MarkerEvent::Performance => format!("PERF {seconds}").into(),
                MarkerEvent::Restart => format!("RESTART {seconds}").into(),
            },

            Self::Epsv(EpsvRequest::Same) => return None,
            Self::Epsv(EpsvRequest::All) => b"ALL".to_vec(),
            Self::Epsv(EpsvRequest::Family(family)) => family.number().to_string().into(),
            Self::Spas(family) => (*family)?.number().to_string().into(),
            Self::Port(address) => format_host_port(*address).into(),
            Self::Eprt(address) => format_extended(*address).into(),
            Self::Spor(addresses) => {
                let addresses: Vec<_> = addresses
                    .as_slice()
                    .iter()
                    .copied()
                    .map(format_stripe)
                    .collect();
                addresses.join(" ").into()
            }

            Self::Allo {
                bytes,
                record_bytes: None,
            } => bytes.to_string().into(),
            Self::Allo {
                bytes,
                record_bytes: Some(record_bytes),
            } => format!("{bytes} R {record_bytes}").into(),
            Self::Rest(Restart::At(offset)) => offset.to_string().into(),
            Self::Rest(Restart::Ranges(ranges)) if ranges.is_empty() => b"0-0".to_vec(),
            Self::Rest(Restart::Ranges(ranges)) => ranges.to_string().into(),
            Self::Eret {
                offset,
                length,
                path,
            } => with_path(&format!("P {offset} {length}"), path),
            Self::Rdma(command) => return command.argument(),
            Self::Esto { offset, path } => with_path(&format!("A {offset}"), path),
            Self::List(path) | Self::Nlst(path) => {
                path.as_ref().map(ListPath::path)?.as_bytes().to_vec()
            }
            Self::Mlsd(path)
            | Self::Mlsr(path)
            | Self::Mlsc(path)
            | Self::Mlst(path)
            | Self::Stou(path)
            | Self::Stat(path) => path.as_ref()?.as_bytes().to_vec(),
            Self::Retr(path)
            | Self::Stor(path)
            | Self::Appe(path)
            | Self::Size(path)
            | Self::Mdtm(path)
            | Self::Cwd(path)
            | Self::Mkd(path)
            | Self::Rmd(path)
            | Self::Dele(path)
            | Self::Rnfr(path)
            | Self::Rnto(path) => path.as_bytes().to_vec(),
            Self::Mfmt { modified, path } => with_path(&TimeValue(*modified).to_string(), path),
            Self::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => {
                let algorithm = algorithm.as_str();
                let length = length.map_or_else(|| String::from("-1"), |length| length.to_string());
                with_path(&format!("{algorithm} {offset} {length}"), path)
            }
            Self::Scks {
                algorithm,
                checksum,
            } => format!("{} {checksum}", algorithm.as_str()).into(),
        })
    }
}

/// The line for the log, without passwords, tokens and credentials, and with control characters escaped.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(_) | Self::Acct(_) => write!(f, "{} ***", self.verb()),
            Self::Dcsc(DataChannelContext::Credential(_)) => f.write_str("DCSC P ***"),
            Self::Site(SiteCommand::AuthzAssert(_)) => f.write_str("SITE AUTHZ_ASSERT ***"),
            Self::Adat(token) | Self::Enc(token) | Self::Mic(token) | Self::Conf(token) => {
                write!(f, "{} {token:?}", self.verb())
            }
            _ => {
                for character in String::from_utf8_lossy(&self.encode()).chars() {
                    if character.is_control() {
                        write!(f, "{}", character.escape_default())?;
                    } else {
                        write!(f, "{character}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn with_path(words: &str, path: &PathArgument) -> Vec<u8> {
    [words.as_bytes(), b" ", path.as_bytes()].concat()
}
