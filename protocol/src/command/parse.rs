//! Parses lines.

use super::arguments::Checksum;
use super::commands::Command;
use super::error::CommandError;
use super::grammar::{
    Argument, algorithm, base64, last_path, list_path, number, path, text, timestamp, valid,
};
use super::options::OptsCommand;
use super::rdma::RdmaCommand;
use super::site::SiteCommand;
use super::syntax::{
    allocation, checksum, data_channel_authentication, data_channel_context, epsv_request,
    extended_port, family, marker_event, password, port, protection_level, representation, restart,
    retrieve_part, store_part, striped_port, structure, transfer_mode,
};
use crate::help;

/// Commands of standards and of other servers that are refused with a specific reply.
const UNSUPPORTED: &[&str] = &[
    "ABUF", "CLNT", "GET", "HOST", "LPRT", "LPSV", "MFCT", "MFF", "PUT", "SMNT",
];

impl Command {
    /// Parses a line, without its CRLF.
    ///
    /// The verb may be in any case. A path is the rest of the line after one space, including spaces and quotes (RFC 3659 2.2).
    ///
    /// # Errors
    ///
    /// When the line is not a valid command. [`CommandError::reply`] is the reply.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        if line.is_empty() {
            return Err(CommandError::Empty);
        }
        let (verb, bytes) = match line.iter().position(|&byte| byte == b' ') {
            Some(space) => (&line[..space], Some(&line[space + 1..])),
            None => (line, None),
        };
        let name = verb.to_ascii_uppercase();
        let name = std::str::from_utf8(&name).unwrap_or_default();
        if let Some(name) = UNSUPPORTED.iter().find(|&&known| known == name) {
            return Err(CommandError::Unsupported(name));
        }
        let (verb, syntax) =
            help::entry(modern(name)).ok_or_else(|| CommandError::unknown(verb))?;
        let argument = Argument {
            verb,
            syntax,
            bytes,
        };
        Self::parse_simple(argument)
            .or_else(|| Self::parse_file_command(argument))
            .or_else(|| Self::parse_security(argument))
            .or_else(|| Some(RdmaCommand::parse(argument)?.map(Self::Rdma)))
            .unwrap_or_else(|| Self::parse_negotiation(argument))
    }

    /// Commands without an argument, or with a text.
    fn parse_simple(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        let alone = |command| argument.none().map(|()| command);
        Some(match argument.verb {
            "USER" => argument.read(text("the name")).map(Self::User),
            "PASS" => password(argument).map(Self::Pass),
            "ACCT" => password(argument).map(Self::Acct),
            "REIN" => alone(Self::Rein),
            "QUIT" => alone(Self::Quit),
            "FEAT" => alone(Self::Feat),
            "HELP" => argument.read_optional(text("the command")).map(Self::Help),
            "OPTS" => OptsCommand::parse(argument).map(Self::Opts),
            "SITE" => SiteCommand::parse(argument).map(Self::Site),
            "SYST" => alone(Self::Syst),
            "NOOP" => alone(Self::Noop),
            "LANG" => argument.read_optional(text("the language")).map(Self::Lang),
            "PASV" => alone(Self::Pasv),
            "ABOR" => alone(Self::Abor),
            "PWD" => alone(Self::Pwd),
            "CDUP" => alone(Self::Cdup),
            _ => return None,
        })
    }

    /// Commands with a path.
    fn parse_file_command(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        let listing = || argument.read_optional(list_path).map(Option::flatten);
        Some(match argument.verb {
            "RETR" => argument.read(path).map(Self::Retr),
            "STOR" => argument.read(path).map(Self::Stor),
            "STOU" => argument.read_optional(path).map(Self::Stou),
            "APPE" => argument.read(path).map(Self::Appe),
            "ERET" => retrieve_part(argument),
            "ESTO" => store_part(argument),
            "LIST" => listing().map(Self::List),
            "NLST" => listing().map(Self::Nlst),
            "MLSD" => argument.read_optional(path).map(Self::Mlsd),
            "MLSR" => argument.read_optional(path).map(Self::Mlsr),
            "MLSC" => argument.read_optional(path).map(Self::Mlsc),
            "MLST" => argument.read_optional(path).map(Self::Mlst),
            "STAT" => argument.read_optional(path).map(Self::Stat),
            "SIZE" => argument.read(path).map(Self::Size),
            "MDTM" => argument.read(path).map(Self::Mdtm),
            "MFMT" => argument
                .read((timestamp, last_path))
                .map(|(modified, path)| Self::Mfmt { modified, path }),
            "CKSM" => checksum(argument),
            "CWD" => argument.read(path).map(Self::Cwd),
            "MKD" => argument.read(path).map(Self::Mkd),
            "RMD" => argument.read(path).map(Self::Rmd),
            "DELE" => argument.read(path).map(Self::Dele),
            "RNFR" => argument.read(path).map(Self::Rnfr),
            "RNTO" => argument.read(path).map(Self::Rnto),
            _ => return None,
        })
    }

    /// Commands of RFC 2228, and the security commands of GridFTP.
    fn parse_security(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        Some(match argument.verb {
            "AUTH" => argument.read(text("the mechanism")).map(Self::Auth),
            "ADAT" => argument.read(base64()).map(Self::Adat),
            "ENC" => argument.read(base64()).map(Self::Enc),
            "MIC" => argument.read(base64()).map(Self::Mic),
            "CONF" => argument.read(base64()).map(Self::Conf),
            "PBSZ" => argument.read(number("the size")).map(Self::Pbsz),
            "PROT" => protection_level(argument).map(Self::Prot),
            "DCAU" => data_channel_authentication(argument).map(Self::Dcau),
            "DCSC" => data_channel_context(argument).map(Self::Dcsc),
            "CCC" => argument.none().map(|()| Self::Ccc),
            _ => return None,
        })
    }

    /// Commands that set the parameters of transfers.
    fn parse_negotiation(argument: Argument<'_>) -> Result<Self, CommandError> {
        match argument.verb {
            "TYPE" => representation(argument).map(Self::Type),
            "MODE" => transfer_mode(argument).map(Self::Mode),
            "STRU" => structure(argument).map(|()| Self::Stru),
            "SBUF" => argument.read(number("the size")).map(Self::Sbuf),
            "TREV" => marker_event(argument),
            "EPSV" => epsv_request(argument).map(Self::Epsv),
            "SPAS" => argument.read_optional(family).map(Self::Spas),
            "PORT" => port(argument).map(Self::Port),
            "EPRT" => extended_port(argument).map(Self::Eprt),
            "SPOR" => striped_port(argument).map(Self::Spor),
            "ALLO" => allocation(argument),
            "REST" => restart(argument).map(Self::Rest),
            "SCKS" => argument
                .read((
                    algorithm(),
                    valid("the checksum", "hexadecimal", Checksum::parse),
                ))
                .map(|(algorithm, checksum)| Self::Scks {
                    algorithm,
                    checksum,
                }),
            verb => Err(CommandError::unknown(verb.as_bytes())),
        }
    }
}

/// Maps the directory commands of RFC 775 to their modern names.
fn modern(name: &str) -> &str {
    match name {
        "XPWD" => "PWD",
        "XCWD" => "CWD",
        "XCUP" => "CDUP",
        "XMKD" => "MKD",
        "XRMD" => "RMD",
        name => name,
    }
}
