//! Sorts commands by the part of the session that carries them out.
//!
//! [`Group::from`] names every command and has no wildcard. So the compiler points here when a command is added.

use std::net::SocketAddr;

use gridhaul_protocol::address::StripeAddresses;
use gridhaul_protocol::command::{Command, EpsvRequest, ListPath, RdmaCommand, SiteCommand, Text};
use gridhaul_protocol::negotiated::{PassiveRequest, ProtectionSetting, Setting};
use gridhaul_protocol::path::PathArgument;
use gridhaul_transfer::Placement;

use super::data::DataPortCommand;
use super::foreign::ForeignCommand;
use super::listing::Form;
use super::login::LoginCommand;
use super::namespace::NamespaceCommand;
use super::query::QueryCommand;
use super::security::SecurityCommand;
use super::transfer::{Motion, TransferCommand};
use crate::transfer_verb::TransferVerb;

#[derive(Debug)]
pub(super) enum Group {
    Session(SessionCommand),
    Login(LoginCommand),
    Security(SecurityCommand),
    /// Commands that need a login.
    User(UserGroup),
}

#[derive(Debug)]
pub(super) enum UserGroup {
    /// A command that only changes what was negotiated: [`Setting`].
    Setting(Setting),
    Server(ServerCommand),
    DataPort(DataPortCommand),
    Transfer(TransferCommand),
    Namespace(NamespaceCommand),
    Query(QueryCommand),
    Foreign(ForeignCommand),
}

/// Commands about the session, also before login.
#[derive(Debug)]
pub(super) enum SessionCommand {
    Quit,
    Rein,
    Noop,
    Feat,
    /// `HELP` and `SITE HELP`.
    Help(Option<Text>),
}

/// Questions about the server and the session, and information about the client.
#[derive(Debug)]
pub(super) enum ServerCommand {
    /// `ABOR` when no command is under way.
    Abor,
    Syst,
    Lang(Option<Text>),
    /// `STAT` without a path.
    Status,
    /// `SITE WHOAMI`.
    Whoami,
    /// `SITE VERSION`.
    Version,
    /// `SITE CLIENTINFO`.
    ClientInfo(Text),
}

impl Group {
    /// Whether `ABOR` ends the command while it waits to be carried out.
    pub(super) fn takes_long(&self) -> bool {
        match self {
            Self::User(UserGroup::Transfer(TransferCommand::Move(..))) => true,
            Self::User(UserGroup::Query(query)) => query.takes_long(),
            _ => false,
        }
    }

    /// Whether a client that has to authenticate may send it before.
    pub(super) fn precedes_authentication(&self) -> bool {
        matches!(
            self,
            Self::Session(SessionCommand::Quit | SessionCommand::Rein)
                | Self::Security(SecurityCommand::Auth(_) | SecurityCommand::Adat(_))
        )
    }
}

impl From<Command> for Group {
    fn from(command: Command) -> Self {
        match command {
            Command::Quit => Self::Session(SessionCommand::Quit),
            Command::Rein => Self::Session(SessionCommand::Rein),
            Command::Noop => Self::Session(SessionCommand::Noop),
            Command::Feat => Self::Session(SessionCommand::Feat),
            Command::Help(topic) => Self::Session(SessionCommand::Help(topic)),

            Command::User(name) => Self::Login(LoginCommand::User(name)),
            Command::Pass(password) => Self::Login(LoginCommand::Pass(password)),
            Command::Acct(_) => Self::Login(LoginCommand::Acct),

            Command::Auth(mechanism) => Self::Security(SecurityCommand::Auth(mechanism)),
            Command::Adat(token) => Self::Security(SecurityCommand::Adat(token)),
            Command::Enc(_) | Command::Mic(_) | Command::Conf(_) => {
                Self::Security(SecurityCommand::Wrapped)
            }
            Command::Ccc => Self::Security(SecurityCommand::ClearChannel),
            Command::Pbsz(bytes) => protection(ProtectionSetting::BlockBytes(bytes)),
            Command::Prot(level) => protection(ProtectionSetting::Level(level)),

            Command::Dcau(peer) => setting(Setting::Authentication(peer)),
            Command::Opts(options) => setting(Setting::Options(options)),
            Command::Type(representation) => setting(Setting::Type(representation)),
            Command::Mode(mode) => setting(Setting::Mode(mode)),
            Command::Stru => setting(Setting::Structure),
            Command::Sbuf(bytes) => setting(Setting::Buffers(bytes)),
            Command::Trev { event, seconds } => setting(Setting::Markers { event, seconds }),
            Command::Allo { bytes, .. } => setting(Setting::Allocation(bytes)),
            Command::Rest(restart) => setting(Setting::Restart(restart)),
            Command::Epsv(EpsvRequest::All) => setting(Setting::OnlyEpsv),

            Command::Abor => server(ServerCommand::Abor),
            Command::Syst => server(ServerCommand::Syst),
            Command::Lang(language) => server(ServerCommand::Lang(language)),
            Command::Stat(None) => server(ServerCommand::Status),

            Command::Pasv => passive(PassiveRequest::Pasv),
            Command::Epsv(EpsvRequest::Same) => passive(PassiveRequest::Epsv(None)),
            Command::Epsv(EpsvRequest::Family(family)) => {
                passive(PassiveRequest::Epsv(Some(family)))
            }
            Command::Spas(family) => passive(PassiveRequest::Spas(family)),
            Command::Port(peer) => active(StripeAddresses::from(SocketAddr::from(peer))),
            Command::Eprt(peer) => active(StripeAddresses::from(peer)),
            Command::Spor(peers) => active(peers),
            Command::Dcsc(context) => data_port(DataPortCommand::Credential(context)),

            Command::Retr(path) => moves(TransferVerb::Retr, Motion::whole(path)),
            Command::Eret {
                offset,
                length,
                path,
            } => {
                let length = Some(length);
                let motion = Motion::Send {
                    path,
                    offset,
                    length,
                };
                moves(TransferVerb::Eret, motion)
            }
            Command::Stor(path) => receive(TransferVerb::Stor, path, Placement::Replace),
            Command::Appe(path) => receive(TransferVerb::Appe, path, Placement::Append),
            Command::Esto { offset, path } => {
                receive(TransferVerb::Esto, path, Placement::At(offset))
            }
            Command::Stou(path) => moves(TransferVerb::Stou, Motion::ReceiveNew { path }),
            Command::List(path) => list(TransferVerb::List, list_path(path), Form::Long),
            Command::Nlst(path) => list(TransferVerb::Nlst, list_path(path), Form::Names),
            Command::Mlsd(path) => list(TransferVerb::Mlsd, path, Form::Facts),
            Command::Mlsr(path) => list(TransferVerb::Mlsr, path, Form::Tree),
            Command::Scks {
                algorithm,
                checksum,
            } => transfer(TransferCommand::ExpectChecksum {
                algorithm,
                checksum,
            }),

            Command::Pwd => namespace(NamespaceCommand::CurrentDirectory),
            Command::Cwd(path) => namespace(NamespaceCommand::ChangeDirectory(path)),
            Command::Cdup => namespace(NamespaceCommand::ChangeDirectory(parent())),
            Command::Mkd(path) => namespace(NamespaceCommand::MakeDirectory(path)),
            Command::Rmd(path) => namespace(NamespaceCommand::RemoveDirectory(path)),
            Command::Dele(path) => namespace(NamespaceCommand::RemoveFile(path)),
            Command::Rnfr(path) => namespace(NamespaceCommand::RenameFrom(path)),
            Command::Rnto(path) => namespace(NamespaceCommand::RenameTo(path)),
            Command::Mfmt { modified, path } => {
                namespace(NamespaceCommand::SetModified { modified, path })
            }

            Command::Stat(Some(path)) => query(QueryCommand::Status(path)),
            Command::Size(path) => query(QueryCommand::Size(path)),
            Command::Mdtm(path) => query(QueryCommand::Modified(path)),
            Command::Mlst(path) => query(QueryCommand::Facts(path)),
            Command::Mlsc(path) => query(QueryCommand::List(path)),
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => query(QueryCommand::Checksum {
                algorithm,
                offset,
                length,
                path,
            }),

            Command::Rdma(command) => of_rdma(command),
            Command::Site(command) => of_site(command),
        }
    }
}

fn of_rdma(command: RdmaCommand) -> Group {
    match command {
        RdmaCommand::Address { peer, buffer } => {
            data_port(DataPortCommand::ActiveOverRdma { peer, buffer })
        }
        RdmaCommand::Passive { buffer } => passive(PassiveRequest::Rpsv(buffer)),
        RdmaCommand::Store(path) => receive(TransferVerb::Rstr, path, Placement::Replace),
        RdmaCommand::Retrieve(path) => moves(TransferVerb::Rrtr, Motion::whole(path)),
    }
}

fn of_site(command: SiteCommand) -> Group {
    match command {
        SiteCommand::Help(topic) => Group::Session(SessionCommand::Help(topic)),
        SiteCommand::BufferSize { verb, bytes } => setting(Setting::SiteBuffers { verb, bytes }),

        SiteCommand::Whoami => server(ServerCommand::Whoami),
        SiteCommand::Version => server(ServerCommand::Version),
        SiteCommand::ClientInfo(info) => server(ServerCommand::ClientInfo(info)),

        SiteCommand::SetNetStack(request) => data_port(DataPortCommand::Stack(request)),
        SiteCommand::GetNetStack => transfer(TransferCommand::DescribeChannels),
        SiteCommand::StorAttr(attributes) => transfer(TransferCommand::StoreAttributes(attributes)),
        SiteCommand::TaskId(id) => transfer(TransferCommand::TaskId(id)),

        SiteCommand::Chmod { mode, path } => namespace(NamespaceCommand::SetMode { mode, path }),
        SiteCommand::Chgrp { group, path } => namespace(NamespaceCommand::SetGroup { group, path }),
        SiteCommand::Utime { modified, path } => {
            namespace(NamespaceCommand::SiteUtime { modified, path })
        }
        SiteCommand::Rdel(path) => namespace(NamespaceCommand::RemoveTree(path)),
        SiteCommand::Trnc { length, path } => {
            namespace(NamespaceCommand::Truncate { length, path })
        }
        SiteCommand::SymlinkFrom(target) => namespace(NamespaceCommand::SymlinkFrom(target)),
        SiteCommand::SymlinkTo(link) => namespace(NamespaceCommand::SymlinkTo(link)),

        SiteCommand::AuthzAssert(_) => foreign(ForeignCommand::Assertion),
        SiteCommand::SetDiskStack(request) => foreign(ForeignCommand::DiskStack(request)),
        SiteCommand::Dsi(_) => foreign(ForeignCommand::StorageInterface),
        SiteCommand::Upas(_) | SiteCommand::Uprt(_) => foreign(ForeignCommand::Udt),
        SiteCommand::Restrict(_)
        | SiteCommand::Chroot(_)
        | SiteCommand::Sharing(_)
        | SiteCommand::Http(_)
        | SiteCommand::Fault(_) => foreign(ForeignCommand::NotSupported),
    }
}

fn protection(setting: ProtectionSetting) -> Group {
    Group::Security(SecurityCommand::DataProtection(setting))
}

fn setting(setting: Setting) -> Group {
    Group::User(UserGroup::Setting(setting))
}

fn server(command: ServerCommand) -> Group {
    Group::User(UserGroup::Server(command))
}

fn data_port(command: DataPortCommand) -> Group {
    Group::User(UserGroup::DataPort(command))
}

fn passive(request: PassiveRequest) -> Group {
    data_port(DataPortCommand::Passive(request))
}

fn active(peers: StripeAddresses) -> Group {
    data_port(DataPortCommand::Active(peers))
}

fn transfer(command: TransferCommand) -> Group {
    Group::User(UserGroup::Transfer(command))
}

fn moves(verb: TransferVerb, motion: Motion) -> Group {
    transfer(TransferCommand::Move(verb, motion))
}

fn receive(verb: TransferVerb, path: PathArgument, placement: Placement) -> Group {
    moves(verb, Motion::Receive { path, placement })
}

fn list(verb: TransferVerb, path: Option<PathArgument>, form: Form) -> Group {
    moves(verb, Motion::List { path, form })
}

fn namespace(command: NamespaceCommand) -> Group {
    Group::User(UserGroup::Namespace(command))
}

fn query(command: QueryCommand) -> Group {
    Group::User(UserGroup::Query(command))
}

fn foreign(command: ForeignCommand) -> Group {
    Group::User(UserGroup::Foreign(command))
}

fn list_path(path: Option<ListPath>) -> Option<PathArgument> {
    path.map(ListPath::into_path)
}

fn parent() -> PathArgument {
    PathArgument::new("..").expect("two dots are a path")
}
