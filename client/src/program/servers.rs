//! Sessions by server, and how to log in.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gridhaul_protocol::command::{Command, Password, Text};
use gridhaul_security::host_name::HostNameError;
use gridhaul_security::tls::{NamedServer, Principal, TlsVersions};
use gridhaul_security::trust::TrustStore;
use tokio::sync::Mutex as AsyncMutex;
use zeroize::Zeroizing;

use super::arguments::{LoginArguments, NotForUser};
use super::identities::Identities;
use super::output::Pause;
use super::secret;
use crate::control::{SshSettings, is_user};
use crate::location::{Scheme, Server};
use crate::login::{self, Account, ExpectedServer, Identity, IdentityPlaces, Login};
use crate::session::{Session, SessionConfig, SessionError};

/// Opens sessions. Each one has the identity that the user has when it is opened.
pub(super) struct Servers {
    arguments: LoginArguments,
    identities: Identities,
    /// The authorities for ftps, by the options for a directory and a file.
    roots: Mutex<HashMap<Places, Arc<TrustStore>>>,
    /// Passwords that were read, with the file, or typed. Locked while the user types.
    passwords: AsyncMutex<HashMap<Server, Known>>,
}

/// Two options that name files.
type Places = (Option<PathBuf>, Option<PathBuf>);

struct Known {
    password: Zeroizing<Vec<u8>>,
    file: Option<PathBuf>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Session(Box<SessionError>),
    #[error(transparent)]
    Identity(#[from] login::IdentityError),
    #[error("{0}: a user for ssh has letters, digits and . _ - + @ only, and - not first")]
    SshUser(String),
    #[error(transparent)]
    Host(#[from] HostNameError),
    #[error("{server}: a user needs a password: give --password-file FILE, or use a terminal")]
    NoPassword { server: String },
    #[error(
        "{server}: the user is that of a [[host]] in a configuration file, and --password-file may be for another server: give --user NAME, name the file in the [[host]], or use a terminal"
    )]
    OwnUser { server: String },
    #[error(
        "{server}: {file} is the password-file of a [[host]] {}: name the user and the file in one [[host]], or give --password-file", of_owner(.owner.as_deref())
    )]
    OtherUser {
        server: String,
        file: String,
        owner: Option<String>,
    },
    #[error(
        "{server}: --password-file has the password for {first}, and is not sent to another server or user: copy in two steps, or leave --password-file out and type the passwords"
    )]
    SecondPassword { server: String, first: String },
    #[error(
        "{0} does not offer RDMA to this user: there is no RADR in its FEAT. Its administrator allows it with allowed-drivers, and to anonymous users with anonymous-drivers; with --or-tcp the files go over TCP"
    )]
    NoRdma(String),
    #[error("the password cannot be read at the terminal: {0}")]
    Terminal(std::io::Error),
    #[error("{file}: {error}")]
    PasswordFile { file: String, error: std::io::Error },
    #[error("{0}: the user or the password has a character that FTP cannot send")]
    Unsendable(String),
}

impl OpenError {
    /// Whether the same may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Session(failure) => failure.error.is_transient(false),
            _ => false,
        }
    }
}

impl Servers {
    pub(super) fn new(arguments: LoginArguments) -> Self {
        Self {
            arguments,
            identities: Identities::default(),
            roots: Mutex::default(),
            passwords: AsyncMutex::default(),
        }
    }

    pub(super) async fn open(&self, server: &Server) -> Result<Session, OpenError> {
        let arguments = self.arguments.for_host(&server.host);
        let (mut arguments, own) = arguments.for_end(server.end);
        arguments.has_own_user &= server.user.is_none();
        let named = Server {
            user: server.user.clone().or_else(|| arguments.user.clone()),
            ..server.clone()
        };
        let login = self.login(&named, &arguments).await?;
        let config = SessionConfig {
            family: arguments.family(),
            patience: arguments.timeout,
            // It is the same for all hosts, and `for_host` does not keep it.
            observer: self.arguments.telling.observer(),
        };
        // ssh itself asks for passwords, passphrases and unknown keys of hosts, at any time until the server greets.
        let pause = match &login {
            Login::Ssh(ssh) if ssh.may_ask => Some(Pause::begin()),
            _ => None,
        };
        let opened = Session::open(&named, login, config).await;
        drop(pause);
        let mut session = opened.map_err(|error| OpenError::Session(Box::new(error)))?;
        self.arguments.telling.opened(&session);
        session.serve(server.clone());
        session.prefer_stack(own.stack);
        let failed = |error| {
            let server = server.clone();
            OpenError::Session(Box::new(SessionError { server, error }))
        };
        for command in own.site {
            let command = Command::Site(command);
            session.control().must(&command).await.map_err(failed)?;
        }
        if let Some(own) = &arguments.data_credential {
            session.use_for_data(own).await.map_err(failed)?;
        }
        Ok(session)
    }

    async fn login(&self, server: &Server, arguments: &LoginArguments) -> Result<Login, OpenError> {
        Ok(match server.scheme {
            Scheme::GsiFtp => Login::Certificate {
                identity: self.identity(arguments)?,
                expected: match &arguments.subject {
                    Some(subject) => ExpectedServer::Subject(subject.clone()),
                    None => ExpectedServer::Host,
                },
            },
            Scheme::Ftps => Login::Tls {
                server: self.named(server, arguments)?,
                account: self.account(server, arguments).await?,
            },
            Scheme::Ftp => Login::Clear(self.account(server, arguments).await?),
            Scheme::SshFtp => Login::Ssh(ssh(server, arguments)?),
        })
    }

    async fn account(
        &self,
        server: &Server,
        arguments: &LoginArguments,
    ) -> Result<Account, OpenError> {
        let Some(user) = &server.user else {
            return Ok(Account::Anonymous);
        };
        let unsendable = || OpenError::Unsendable(server.to_string());
        let password = self.password(server, arguments).await?;
        Ok(Account::User {
            name: Text::new(user.as_str()).ok_or_else(unsendable)?,
            password: Password::new(password.to_vec()).ok_or_else(unsendable)?,
        })
    }

    /// The server of an ftps URL.
    fn named(&self, server: &Server, arguments: &LoginArguments) -> Result<NamedServer, OpenError> {
        let principal = match &arguments.subject {
            Some(subject) => Principal::Subject(subject.clone()),
            None => Principal::Host(server.host.parse()?),
        };
        let places = (arguments.trust.clone(), arguments.ca.clone());
        let mut known = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let trust = match known.get(&places) {
            Some(trust) => Arc::clone(trust),
            None => {
                let found = login::roots(places.0.as_deref(), places.1.as_deref())?;
                Arc::clone(known.entry(places).or_insert(found))
            }
        };
        Ok(NamedServer {
            trust,
            principal,
            versions: TlsVersions::default(),
        })
    }

    fn identity(&self, arguments: &LoginArguments) -> Result<Identity, OpenError> {
        Ok(self.identities.get(IdentityPlaces {
            proxy: arguments.proxy.clone(),
            trust: arguments.trust.clone(),
        })?)
    }

    /// The password for a server: that of the file, which is for the first server only, or one that the user types.
    async fn password(
        &self,
        server: &Server,
        arguments: &LoginArguments,
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let mut known = self.passwords.lock().await;
        if let Some(known) = known.get(server) {
            return Ok(known.password.clone());
        }
        let named = || server.to_string();
        let given = arguments
            .passwords
            .iter()
            .find(|(one, _)| one.is_same(server));
        if let Some((_, password)) = given {
            return Ok(Zeroizing::new(password.as_bytes().to_vec()));
        }
        let user = server.user.as_deref().unwrap_or_default();
        let (password_file, refused) = match arguments.password_file_for(user) {
            Ok(file) => (file, None),
            Err(NotForUser::CommandLine) => (None, Some(OpenError::OwnUser { server: named() })),
            Err(NotForUser::Section { file, owner }) => {
                let server = named();
                return Err(OpenError::OtherUser {
                    server,
                    file,
                    owner,
                });
            }
        };
        let password = match password_file {
            Some(file) => {
                let mut same = known
                    .iter()
                    .filter(|(_, one)| one.file.as_ref() == Some(file));
                if let Some((first, _)) = same.next() {
                    let (server, first) = (named(), first.to_string());
                    return Err(OpenError::SecondPassword { server, first });
                }
                secret::read(file).map_err(|error| OpenError::PasswordFile {
                    file: file.display().to_string(),
                    error,
                })?
            }
            None => {
                let typed = secret::ask(format!("Password for {server}: ")).await;
                let typed = typed.map_err(OpenError::Terminal)?;
                let none = || OpenError::NoPassword { server: named() };
                typed.ok_or_else(|| refused.unwrap_or_else(none))?
            }
        };
        let with_file = Known {
            password: password.clone(),
            file: password_file.cloned(),
        };
        known.insert(server.clone(), with_file);
        Ok(password)
    }
}

/// Whom a password of the configuration is for.
fn of_owner(owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("for the user {owner}"),
        None => "that does not name this user, as another one does".to_owned(),
    }
}

fn ssh(server: &Server, arguments: &LoginArguments) -> Result<SshSettings, OpenError> {
    if server.user.as_deref().is_some_and(|user| !is_user(user)) {
        return Err(OpenError::SshUser(server.to_string()));
    }
    // globus-url-copy takes the command from there, too.
    let command = std::env::var("GLOBUS_REMOTE_SSHFTP").ok();
    Ok(SshSettings {
        program: arguments.ssh.clone(),
        server: command
            .filter(|command| !command.is_empty())
            .unwrap_or_else(|| SshSettings::SERVER.to_owned()),
        may_ask: std::io::stdin().is_terminal(),
    })
}
