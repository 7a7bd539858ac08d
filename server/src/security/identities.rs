//! The secrets and files of the process that decides logins: the host's key, the maps, the rules, the keys of delegations.
//!
//! The files change while the server runs. They are examined when they are needed, at most once a second, so that a new
//! certificate, revocation list or grid-mapfile counts for the next login without a signal. If a certificate, a trust directory
//! or a vomsdir becomes unusable, its last content stays in use. An unusable grid-mapfile gives no accounts, and an unusable ban list
//! refuses all users with certificates.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use gridhaul_security::credential::Credential;
use gridhaul_security::delegation::DelegationKeys;
use gridhaul_security::files::{BanListFile, GridmapFile, TrustDirectory, VomsDirectory};
use gridhaul_security::gridmap::Gridmap;
use gridhaul_security::name::Name;
use gridhaul_security::tls::TlsSettings;
use gridhaul_security::trust::Peer;
use gridhaul_security::voms::{self, Fqan, Membership, VomsError};
use tracing::{error, info, warn};

use crate::callout::{CalloutError, Claim, Permission};
use crate::config::{self, KeyKind};
use crate::locks::lock;
use crate::status::utc;
use crate::telemetry::Repeats;

use super::authorization::{self, Authorized, Denied, Map};
use super::files::{Source, Told};
use super::gsi_authz::{self, GsiAuthz};
use super::host::HostCredential;
use super::keys::LoginKeys;
use super::pools::Pools;
use super::{Opener, REPEAT_INTERVAL, SecurityError};

/// What a file has, or why it cannot be used.
fn of_file<S: Source>(kind: &str, file: &Told<S>, count: impl Fn(&S::Content) -> String) -> String {
    let path = file.path().display();
    match file.usable() {
        Ok(content) => format!("{kind} {path}: {}", count(&content)),
        Err(error) => format!("{kind} {path}: cannot be used: {error}"),
    }
}

/// Asks the callout about a client. The claim has no address; the function adds it.
pub(crate) type AskCallout<'a> = &'a dyn Fn(Claim<'_>) -> Result<Permission, CalloutError>;

/// Everything that decides logins with certificates.
#[derive(Debug)]
pub(crate) struct Identities {
    pools: Arc<Pools>,
    callout_failures: Mutex<Repeats>,
    host: Arc<HostCredential>,
    gsi: Option<Gsi>,
    keys: Arc<LoginKeys>,
}

/// Who may log in with a certificate.
#[derive(Debug)]
struct Gsi {
    config: config::Gsi,
    trust: Arc<Told<TrustDirectory>>,
    gridmap: Option<Arc<Told<GridmapFile>>>,
    vomsdir: Option<Arc<Told<VomsDirectory>>>,
    bans: Vec<Arc<Told<BanListFile>>>,
}

impl Identities {
    /// Reads the files that a configuration names. Files that `previous` has read are not read again here, but when they are
    /// needed. `None` without a certificate.
    pub(crate) fn load(
        config: &config::Security,
        has_callout: bool,
        opener: &Opener,
        previous: Option<&Self>,
    ) -> Result<Option<Arc<Self>>, SecurityError> {
        let Some(files) = &config.host else {
            return Ok(None);
        };
        let running = previous.map(|previous| &previous.host);
        let host = match running.filter(|host| host.files() == files) {
            Some(host) => Arc::clone(host),
            None => Arc::new(HostCredential::open(
                files,
                opener.clone(),
                running.map(|host| &**host),
            )?),
        };
        let gsi = match &config.gsi {
            Some(gsi) => {
                tell(&gsi_authz::read(gsi, has_callout, opener)?);
                let previous = previous.and_then(|previous| previous.gsi.as_ref());
                Some(Gsi::load(gsi, opener, previous)?)
            }
            None => None,
        };
        let kind = config
            .gsi
            .as_ref()
            .map_or_else(KeyKind::default, |gsi| gsi.delegation_keys);
        let keys = match previous.filter(|previous| previous.keys.kind() == kind) {
            Some(previous) => Arc::clone(&previous.keys),
            None => Arc::new(LoginKeys::new(kind)),
        };
        let pools = match previous {
            Some(previous) => Arc::clone(&previous.pools),
            None => Arc::new(Pools::new(opener.monitor())),
        };
        Ok(Some(Arc::new(Self {
            pools,
            callout_failures: Mutex::new(Repeats::new(REPEAT_INTERVAL)),
            host,
            gsi,
            keys,
        })))
    }

    /// Begins to generate keys in advance. Must not be called before the process may have threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        match &self.gsi {
            Some(_) => self.keys.start(),
            None => Ok(()),
        }
    }

    /// Why a server with this configuration would not start now: files that were usable before and stay in use. Blocks on
    /// files.
    pub(crate) fn unusable(&self, opener: &Opener) -> Vec<String> {
        let host = self.host.check().err().map(|error| error.to_string());
        let Some(gsi) = &self.gsi else {
            return host.into_iter().collect();
        };
        let config = &gsi.config;
        // A server that root starts can read a directory that is closed to this account.
        let is_closed = std::fs::read_dir(&config.trust)
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let trust = unreadable::<TrustDirectory>("trust", &config.trust, opener);
        let trust = trust.filter(|_| !is_closed);
        let gridmap = config.gridmap.as_deref();
        let gridmap = gridmap.and_then(|path| unreadable::<GridmapFile>("gridmap", path, opener));
        let bans = config.ban_lists.iter();
        let bans = bans.filter_map(|path| unreadable::<BanListFile>("ban-list", path, opener));
        host.into_iter()
            .chain(trust)
            .chain(gridmap)
            .chain(bans)
            .collect()
    }

    /// What the files have now, a line for each. Blocks on files.
    pub(crate) fn files_in_force(&self) -> Vec<String> {
        let ends = utc(self.host.current().expires());
        let host = self.host.files().certificates.display();
        let mut lines = vec![format!("certificate {host}: valid until {ends}")];
        if let Some(gsi) = &self.gsi {
            lines.push(of_file("trust", &gsi.trust, |trust| {
                let (authorities, lists) = (
                    trust.authorities().count(),
                    trust.revocation_lists().count(),
                );
                format!("{authorities} authorities, {lists} revocation lists")
            }));
            let gridmap = gsi.gridmap.iter();
            lines.extend(gridmap.map(|map| {
                of_file("grid-mapfile", map, |map| {
                    format!("{} entries", map.entries().len())
                })
            }));
            let bans = gsi.bans.iter();
            lines.extend(
                bans.map(|list| {
                    of_file("ban list", list, |list| format!("{} entries", list.len()))
                }),
            );
        }
        lines
    }

    /// The present certificate and key. Blocks on files.
    pub(crate) fn host(&self) -> Arc<Credential> {
        self.host.current()
    }

    /// The present settings of a GSI login; `None` without GSI. Blocks on files.
    pub(crate) fn login(&self) -> Option<TlsSettings> {
        let gsi = self.gsi.as_ref()?;
        Some(TlsSettings {
            versions: gsi.config.tls_versions,
            ..TlsSettings::new(self.host.current(), gsi.trust.current())
        })
    }

    /// The keys of delegated credentials.
    pub(crate) fn delegation_keys(&self) -> Arc<dyn DelegationKeys> {
        Arc::clone(&self.keys) as Arc<dyn DelegationKeys>
    }

    /// The authorization of an identity. `requested` is the name after `USER`, `None` for `:globus-mapping:`. A limited
    /// proxy counts as a full one, because clients delegate limited proxies for file transfers. `callout` asks the callout, if
    /// one is configured, about clients whom neither a ban list nor a rule refuses. Blocks on files.
    pub(crate) fn authorize(
        &self,
        peer: &Peer,
        requested: Option<&str>,
        callout: Option<AskCallout<'_>>,
    ) -> Result<Authorized, Denied> {
        let identity = peer.identity.one_line();
        let Some(gsi) = &self.gsi else {
            return Err(Denied::NotMapped {
                identity: identity.to_owned(),
            });
        };
        if let Some(proxy) = peer.independent_proxy()
            && !gsi.config.allow_independent_proxies
        {
            return Err(Denied::IndependentProxy {
                proxy: proxy.one_line().to_owned(),
            });
        }
        let (memberships, problems) = self.memberships(gsi, peer);
        let subjects: Vec<&str> = peer.subjects().map(Name::one_line).collect();
        let client = Client {
            identity,
            subjects: &subjects,
            memberships: &memberships,
            requested,
        };
        match self.decide(gsi, &client, callout) {
            Ok(authorized) => Ok(Authorized {
                notes: problems.iter().map(ToString::to_string).collect(),
                ..authorized
            }),
            Err(denied) => {
                // They may be the reason.
                for problem in problems {
                    info!(identity, %problem, "VOMS attributes do not count");
                }
                Err(denied)
            }
        }
    }

    /// Whether a ban list or a rule refuses an authenticated client now, whom it may have admitted before.
    pub(crate) fn is_refused(&self, peer: &Peer) -> bool {
        let Some(gsi) = &self.gsi else {
            return true;
        };
        let (memberships, _) = self.memberships(gsi, peer);
        let subjects: Vec<&str> = peer.subjects().map(Name::one_line).collect();
        let client = Client {
            identity: peer.identity.one_line(),
            subjects: &subjects,
            memberships: &memberships,
            requested: None,
        };
        let denied = gsi
            .check_bans(&client)
            .and_then(|()| gsi.decide_by_rules(&client, gsi.map().as_map()).map(drop));
        matches!(denied, Err(Denied::Banned { .. } | Denied::ByRule { .. }))
    }

    /// The verified memberships, and why others do not count.
    fn memberships(&self, gsi: &Gsi, peer: &Peer) -> (Vec<Membership>, Vec<VomsError>) {
        let Some(vomsdir) = &gsi.vomsdir else {
            return (Vec::new(), Vec::new());
        };
        let servers = vomsdir.current();
        let host = self.host.current();
        let names = host.leaf().dns_names();
        let trust = gsi.trust.current();
        voms::memberships(peer, &trust, &servers, names, SystemTime::now())
    }

    fn decide(
        &self,
        gsi: &Gsi,
        client: &Client<'_>,
        callout: Option<AskCallout<'_>>,
    ) -> Result<Authorized, Denied> {
        gsi.check_bans(client)?;
        let map = gsi.map();
        let decided = gsi.decide_by_rules(client, map.as_map());
        let decided = match callout {
            None => decided,
            Some(_) if matches!(decided, Err(Denied::ByRule { .. })) => decided,
            Some(callout) => match client.ask(callout, &self.callout_failures)?.account {
                None => decided,
                Some(account) => gsi.decide_by_rules(client, Map::Named(&account)),
            },
        };
        let authorized = decided?;
        let Some(pool) = authorization::pool_of(&authorized.account) else {
            return Ok(authorized);
        };
        let account = self.pools.lease(client.identity, pool)?;
        if client
            .requested
            .is_some_and(|requested| requested != account)
        {
            return Err(Denied::AccountNotAllowed {
                identity: client.identity.to_owned(),
                account: client.requested.unwrap_or_default().to_owned(),
            });
        }
        Ok(Authorized {
            account,
            ..authorized
        })
    }
}

/// An authenticated client.
struct Client<'a> {
    identity: &'a str,
    subjects: &'a [&'a str],
    memberships: &'a [Membership],
    requested: Option<&'a str>,
}

impl Client<'_> {
    fn ask(
        &self,
        callout: AskCallout<'_>,
        failures: &Mutex<Repeats>,
    ) -> Result<Permission, Denied> {
        let attributes = self.memberships.iter();
        let attributes = attributes.flat_map(|membership| &membership.attributes);
        let fqans: Vec<&str> = attributes.map(Fqan::as_str).collect();
        let claim = Claim {
            identity: self.identity,
            subjects: self.subjects,
            fqans: &fqans,
            address: None,
            requested: self.requested,
        };
        callout(claim).map_err(|error| match error {
            CalloutError::Denied(reason) => Denied::ByCallout {
                identity: self.identity.to_owned(),
                reason,
            },
            CalloutError::Failed(reason) => {
                if let Some(untold) = lock(failures).due() {
                    let identity = self.identity;
                    error!(
                        identity,
                        reason, untold, "authz-callout failed: the login is refused"
                    );
                }
                Denied::CalloutFailed
            }
        })
    }
}

/// The grid-mapfile as it is now.
enum CurrentMap {
    Usable(Arc<Gridmap>),
    Unusable,
}

impl CurrentMap {
    fn as_map(&self) -> Map<'_> {
        match self {
            Self::Usable(gridmap) => Map::Gridmap(gridmap),
            Self::Unusable => Map::Unusable,
        }
    }
}

impl Gsi {
    /// Without a grid-mapfile there are only rules.
    fn map(&self) -> CurrentMap {
        match &self.gridmap {
            None => CurrentMap::Usable(Arc::default()),
            Some(file) => file
                .usable()
                .map_or(CurrentMap::Unusable, CurrentMap::Usable),
        }
    }

    fn check_bans(&self, client: &Client<'_>) -> Result<(), Denied> {
        for file in &self.bans {
            let list = file.usable().map_err(|_| Denied::BansUnusable)?;
            if let Some(line) = list.line_about(client.subjects, client.memberships) {
                let (identity, list) = (client.identity, file.path().display());
                info!(identity, %list, line, "the client is banned");
                return Err(Denied::Banned {
                    identity: identity.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn decide_by_rules(&self, client: &Client<'_>, map: Map<'_>) -> Result<Authorized, Denied> {
        authorization::decide(
            &self.config.rules,
            map,
            (client.identity, client.subjects),
            client.memberships,
            client.requested,
        )
    }

    fn load(
        config: &config::Gsi,
        opener: &Opener,
        previous: Option<&Self>,
    ) -> Result<Self, SecurityError> {
        let trust = previous.map(|gsi| &gsi.trust);
        let trust = read("trust", &config.trust, opener, trust)?;
        let gridmap = match &config.gridmap {
            Some(path) => {
                let previous = previous.and_then(|gsi| gsi.gridmap.as_ref());
                Some(read("gridmap", path, opener, previous)?)
            }
            None => None,
        };
        let vomsdir = match &config.vomsdir {
            Some(path) => {
                let previous = previous.and_then(|gsi| gsi.vomsdir.as_ref());
                Some(read("vomsdir", path, opener, previous)?)
            }
            None => None,
        };
        let mut bans = Vec::new();
        for path in &config.ban_lists {
            let mut known = previous.iter().flat_map(|gsi| &gsi.bans);
            let known = known.find(|list| list.path() == path);
            bans.push(read_bans(path, opener, known)?);
        }
        Ok(Self {
            config: config.clone(),
            trust,
            gridmap,
            vomsdir,
            bans,
        })
    }
}

fn tell(authz: &GsiAuthz) {
    match authz {
        GsiAuthz::NoCallouts => {}
        GsiAuthz::Replaced(line) => info!(
            file = %line.path.display(),
            line = line.number,
            "authz-callout takes the place of the callout in gsi-authz.conf"
        ),
        GsiAuthz::Ignored(line) => warn!(
            file = %line.path.display(),
            line = line.number,
            callout = line.text,
            "a callout is ignored (ignore-gsi-authz): users whom it bans may get in"
        ),
    }
}

/// Reads a ban list now, even if it was examined a moment ago: a reload ends the sessions of those whom it bans. A list that
/// has become unusable stays, and refuses all users.
fn read_bans(
    path: &Path,
    opener: &Opener,
    previous: Option<&Arc<Told<BanListFile>>>,
) -> Result<Arc<Told<BanListFile>>, SecurityError> {
    match (Told::open(path, opener), previous) {
        (Ok(opened), _) => Ok(Arc::new(opened)),
        (Err(error), None) => Err(SecurityError::File {
            setting: "ban-list",
            error,
        }),
        (Err(_), Some(previous)) => {
            previous.current();
            Ok(Arc::clone(previous))
        }
    }
}

fn unreadable<S: Source>(setting: &'static str, path: &Path, opener: &Opener) -> Option<String> {
    let error = Told::<S>::open(path, opener).err()?;
    Some(SecurityError::File { setting, error }.to_string())
}

/// Opens the file at `path`, or takes the previous one of the same path. `setting` names it in the log.
fn read<S: Source>(
    setting: &'static str,
    path: &Path,
    opener: &Opener,
    previous: Option<&Arc<Told<S>>>,
) -> Result<Arc<Told<S>>, SecurityError> {
    match previous.filter(|previous| previous.path() == path) {
        Some(previous) => {
            // The administrator expects the log to report a file that cannot be read.
            previous.current();
            Ok(Arc::clone(previous))
        }
        None => Told::open(path, opener)
            .map(Arc::new)
            .map_err(|error| SecurityError::File { setting, error }),
    }
}
