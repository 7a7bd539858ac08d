//! The listeners of a server: those that it was started with, and those that it opens.
//!
//! Sockets of a service manager replace what the configuration would have the server open, and must fit it. Those of a running
//! version are used as far as the configuration has their addresses, because it may have changed.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::SockRef;
use tracing::info;

use super::activation_error::ActivationError;
use super::sockets::listen_and_tell;
use super::start_error::StartError;
use crate::admin::path_of;
use crate::config::Config;
use crate::service::{BOUND, CONTROL, INETD, Passed};

/// A listener, and its address, whose port the kernel may have chosen.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    origin: Origin,
}

/// All listeners. They do not accept yet.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// For control connections.
    pub(crate) control: Vec<Listening>,
    pub(crate) metrics: Option<Listening>,
    pub(crate) admin: Option<Listening>,
    /// The Unix socket of the administration, if the server was started with it.
    pub(crate) admin_socket: Option<(UnixListener, Origin)>,
}

/// Who opened a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Manager,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Control,
    Metrics,
    Admin,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Control => CONTROL,
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }

    /// The purpose of a name. systemd gives sockets without a name that of their unit.
    fn of(name: &str) -> Self {
        let all = [Self::Metrics, Self::Admin];
        let named = all.into_iter().find(|purpose| purpose.name() == name);
        named.unwrap_or(Self::Control)
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Control => "listen",
            Self::Metrics => "metrics-listen",
            Self::Admin => "admin-listen",
        }
    }
}

/// What a name of a passed socket says.
fn meaning(name: &str) -> (Origin, Purpose) {
    match name.strip_prefix(BOUND) {
        Some(name) => (Origin::Server, Purpose::of(name)),
        None => (Origin::Manager, Purpose::of(name)),
    }
}

/// The name by which a socket is kept for the next version.
fn kept_name(purpose: Purpose, origin: Origin) -> String {
    match origin {
        Origin::Manager => purpose.name().to_owned(),
        Origin::Server => format!("{BOUND}{}", purpose.name()),
    }
}

/// The name by which the Unix socket of the administration is kept for the next version.
pub(crate) fn kept_admin_socket(origin: Origin) -> String {
    kept_name(Purpose::Admin, origin)
}

/// A socket that the server was started with.
struct Offer {
    name: String,
    purpose: Purpose,
    origin: Origin,
    socket: Offered,
}

enum Offered {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, Option<PathBuf>),
}

impl Listeners {
    /// Opens the listeners of a configuration, except the Unix socket.
    ///
    /// # Errors
    ///
    /// When one of them cannot be opened.
    pub(super) fn open(config: &Config) -> Result<Self, StartError> {
        Self::open_with(config, Vec::new())
    }

    /// As [`Listeners::open`], with the sockets that the server was started with.
    ///
    /// # Errors
    ///
    /// When a socket cannot be used, does not fit the configuration, or cannot be opened.
    pub(crate) fn open_with(config: &Config, passed: Vec<Passed>) -> Result<Self, StartError> {
        let offers = passed.into_iter().map(Offer::new);
        let mut offers = Offers(offers.collect::<Result<_, _>>()?);
        let listeners = Self {
            control: offers.control(config)?,
            metrics: offers.one(Purpose::Metrics, config.metrics_listen)?,
            admin: offers.one(Purpose::Admin, config.admin.listen)?,
            admin_socket: offers.admin_socket(path_of(config).as_deref())?,
        };
        offers.check_none_left()?;
        Ok(listeners)
    }

    /// The addresses of control connections.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let all = self.control.iter();
        all.map(|listening| listening.address).collect()
    }

    /// All of them, with the names by which they are kept for the next version.
    pub(crate) fn named(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let control = self.control.iter().map(|one| (Purpose::Control, one));
        let metrics = self.metrics.iter().map(|one| (Purpose::Metrics, one));
        let admin = self.admin.iter().map(|one| (Purpose::Admin, one));
        let all = control.chain(metrics).chain(admin);
        all.map(|(purpose, one)| (kept_name(purpose, one.origin), one.listener.as_fd()))
    }
}

/// The places of sockets that a program was started with. It needs no rights to listen there, and no other server is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct PassedPlaces {
    addresses: Vec<SocketAddr>,
    paths: Vec<PathBuf>,
    /// Whether the service manager has passed sockets for control connections, which replace those of the configuration.
    replace_control: bool,
}

/// The places of these sockets.
pub(crate) fn passed_places(passed: &[Passed]) -> PassedPlaces {
    let local = |passed: &Passed| SockRef::from(&passed.socket).local_addr().ok();
    let all = || passed.iter().filter_map(local);
    PassedPlaces {
        addresses: all().filter_map(|one| one.as_socket()).collect(),
        paths: all()
            .filter_map(|one| one.as_pathname().map(Path::to_owned))
            .collect(),
        replace_control: passed.iter().any(|one| {
            let is_address = local(one).is_some_and(|local| local.as_socket().is_some());
            is_address && meaning(&one.name) == (Origin::Manager, Purpose::Control)
        }),
    }
}

impl PassedPlaces {
    /// Whether the server does not open a socket at this address of a setting.
    pub(crate) fn replace(&self, key: &str, configured: SocketAddr) -> bool {
        let is_replaced = self.replace_control && key == Purpose::Control.key();
        let mut addresses = self.addresses.iter();
        is_replaced || addresses.any(|address| is_at(configured, *address))
    }

    /// Whether one of the sockets is at this path.
    pub(crate) fn has_path(&self, path: &Path) -> bool {
        self.paths.iter().any(|passed| passed == path)
    }
}

struct Offers(Vec<Offer>);

impl Offers {
    fn control(&mut self, config: &Config) -> Result<Vec<Listening>, StartError> {
        let mut managed = Vec::new();
        while let Some(one) = self.take(Purpose::Control, Origin::Manager, |_| true) {
            managed.push(one);
        }
        if managed.is_empty() {
            let open = |address: &SocketAddr| self.existing_or_new(Purpose::Control, *address);
            return config.listen.iter().map(open).collect();
        }
        if config.keys.is_given("listen") {
            check_same(&config.listen, &managed)?;
        }
        Ok(managed)
    }

    fn one(
        &mut self,
        purpose: Purpose,
        wanted: Option<SocketAddr>,
    ) -> Result<Option<Listening>, StartError> {
        let fits = |found| wanted.is_some_and(|wanted| is_at(wanted, found));
        if let Some(managed) = self.take(purpose, Origin::Manager, fits) {
            return Ok(Some(managed));
        }
        wanted
            .map(|wanted| self.existing_or_new(purpose, wanted))
            .transpose()
    }

    fn existing_or_new(
        &mut self,
        purpose: Purpose,
        wanted: SocketAddr,
    ) -> Result<Listening, StartError> {
        if let Some(found) = self.take(purpose, Origin::Server, |found| is_at(wanted, found)) {
            return Ok(found);
        }
        let (listener, address) = listen_and_tell(wanted)?;
        Ok(Listening {
            listener,
            address,
            origin: Origin::Server,
        })
    }

    fn admin_socket(
        &mut self,
        wanted: Option<&Path>,
    ) -> Result<Option<(UnixListener, Origin)>, StartError> {
        let fits = |offer: &Offer| match &offer.socket {
            Offered::Unix(_, path) => wanted.is_some() && path.as_deref() == wanted,
            Offered::Tcp(..) => false,
        };
        let Some(place) = self.0.iter().position(fits) else {
            return Ok(None);
        };
        let Offer { socket, origin, .. } = self.0.remove(place);
        Ok(match socket {
            Offered::Unix(listener, _) => Some((listener, origin)),
            Offered::Tcp(..) => None,
        })
    }

    fn take(
        &mut self,
        purpose: Purpose,
        origin: Origin,
        fits: impl Fn(SocketAddr) -> bool,
    ) -> Option<Listening> {
        let place = self.0.iter().position(|offer| {
            let is_meant = offer.purpose == purpose && offer.origin == origin;
            is_meant && matches!(offer.socket, Offered::Tcp(_, address) if fits(address))
        })?;
        match self.0.remove(place).socket {
            Offered::Tcp(listener, address) => Some(Listening {
                listener,
                address,
                origin,
            }),
            Offered::Unix(..) => None,
        }
    }

    /// What the service manager passes is meant to be used. The version before had other settings.
    fn check_none_left(self) -> Result<(), ActivationError> {
        for offer in self.0 {
            let (key, address) = match offer.socket {
                Offered::Tcp(_, address) => (offer.purpose.key(), address.to_string()),
                Offered::Unix(_, path) => {
                    let path = path.map(|path| path.display().to_string());
                    ("admin-socket", path.unwrap_or(offer.name))
                }
            };
            match offer.origin {
                Origin::Manager => {
                    return Err(ActivationError::NotConfigured {
                        key,
                        passed: address,
                    });
                }
                Origin::Server => info!(key, address, "the server listens there no more"),
            }
        }
        Ok(())
    }
}

fn check_same(configured: &[SocketAddr], managed: &[Listening]) -> Result<(), ActivationError> {
    let mut left: Vec<SocketAddr> = managed.iter().map(|one| one.address).collect();
    for wanted in configured {
        let place = left.iter().position(|found| is_at(*wanted, *found));
        let place = place.ok_or(ActivationError::NotPassed {
            configured: *wanted,
        })?;
        left.remove(place);
    }
    match left.first() {
        Some(passed) => Err(ActivationError::NotConfigured {
            key: "listen",
            passed: passed.to_string(),
        }),
        None => Ok(()),
    }
}

/// Whether a socket is at a configured address, where port 0 is any.
fn is_at(configured: SocketAddr, found: SocketAddr) -> bool {
    let is_port = configured.port() == 0 || configured.port() == found.port();
    configured.ip() == found.ip() && is_port
}

impl Offer {
    fn new(passed: Passed) -> Result<Self, ActivationError> {
        let Passed { name, socket } = passed;
        let (origin, purpose) = meaning(&name);
        let failed = |error| ActivationError::System {
            name: name.clone(),
            error,
        };
        let facts = SockRef::from(&socket);
        let kind = facts.r#type().map_err(failed)?;
        if kind != socket2::Type::STREAM || !facts.is_listener().map_err(failed)? {
            return Err(ActivationError::NotListening(name));
        }
        let address = facts.local_addr().map_err(failed)?;
        let socket = match address.as_socket() {
            Some(address) => {
                let is_refused = name != INETD && address.is_ipv6();
                if is_refused && !facts.only_v6().map_err(failed)? {
                    return Err(ActivationError::DualStack(address));
                }
                Offered::Tcp(socket.into(), address)
            }
            None if purpose == Purpose::Admin => {
                let path = address.as_pathname().map(Path::to_owned);
                Offered::Unix(OwnedFd::into(socket), path)
            }
            None => return Err(ActivationError::Unix(name)),
        };
        Ok(Self {
            name,
            purpose,
            origin,
            socket,
        })
    }
}

#[cfg(test)]
mod tests;
