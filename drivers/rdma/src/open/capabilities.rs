//! The methods of connecting that this end supports at the address of a data connection.

use super::opening::{OpenError, Opening};
use crate::handshake::{Method, Methods};
use crate::provider::MAX_RAILS;
use crate::settings::Provider;
use crate::verbs::{Place, Protocol};

/// How queue pairs are connected on a port.
pub(super) fn method(place: &Place) -> Method {
    match place.protocol() {
        Protocol::InfiniBand => Method::InfiniBand,
        Protocol::Roce => Method::Roce,
        Protocol::Iwarp => Method::Iwarp,
    }
}

/// The methods that this end supports.
pub(super) struct Capabilities {
    pub(super) methods: Methods,
    /// The port of the adapter; of several, the one that has the data connection's address, or the first.
    pub(super) place: Option<Place>,
    /// The ports of several adapters, in the order of the options; empty unless several are named and found.
    adapters: Vec<Place>,
    /// Why named adapters are not used.
    notices: Vec<String>,
    /// Why no adapter is used, if one was searched for.
    why_none: Option<String>,
}

/// Adapters of this end.
struct Found {
    place: Place,
    adapters: Vec<Place>,
    notices: Vec<String>,
}

impl Capabilities {
    fn without_adapter(methods: Methods, why_none: Option<String>) -> Self {
        Self {
            methods,
            place: None,
            adapters: Vec::new(),
            notices: Vec::new(),
            why_none,
        }
    }

    /// What this end supports without its adapters, whose packets do not get to the other end.
    pub(super) fn after_failed_tests(&self, why: String) -> Result<Self, OpenError> {
        let soft = Methods::default().with(Method::Soft);
        match self.methods.has(Method::Soft) {
            true => Ok(Self::without_adapter(soft, Some(why))),
            false => Err(OpenError::Local(why)),
        }
    }

    /// The reason for the choice of a method, for the log.
    pub(super) fn reason(&self, method: Method) -> String {
        let reason = self.reason_of_method(method);
        match &self.notices[..] {
            [] => reason,
            notices => format!("{reason}; not used: {}", notices.join("; ")),
        }
    }

    fn reason_of_method(&self, method: Method) -> String {
        match (method, &self.place, &self.why_none) {
            (Method::Soft, None, Some(reason)) => reason.clone(),
            (Method::Soft, None, None) => "provider=soft".to_owned(),
            (Method::Soft, Some(place), _) => {
                format!(
                    "the other end has no provider that is compatible with {}",
                    place.device()
                )
            }
            (Method::Iwarp, None, _) => "the other end has an adapter of iWARP".to_owned(),
            (Method::Provided, None, _) => "there is no other provider".to_owned(),
            (_, Some(_), _) if !self.adapters.is_empty() => {
                let names: Vec<_> = self.adapters.iter().map(Place::device).collect();
                format!("the option device names {}", names.join(" and "))
            }
            (_, Some(place), _) => {
                format!("the data connection has an address of {}", place.device())
            }
            (_, None, _) => "the other end has chosen it".to_owned(),
        }
    }

    /// The number of adapters; 0 without any.
    pub(super) fn adapters(&self) -> usize {
        self.adapters.len().max(usize::from(self.place.is_some()))
    }

    /// The ports for so many rails.
    pub(super) fn places(&self, rails: usize) -> &[Place] {
        match &self.adapters[..] {
            several @ [_, ..] if rails > 1 => &several[..several.len().min(rails)],
            _ => self.place.as_slice(),
        }
    }

    /// The most rails that a channel may have. Where its packets can be routed to any host, an administrator must have named
    /// several adapters, or a GID: the other end names the addresses of its further adapters.
    pub(super) fn most_rails(&self) -> usize {
        let Some(place) = &self.place else {
            return 1;
        };
        let is_local = place.protocol() == Protocol::InfiniBand;
        if is_local || !self.adapters.is_empty() || place.allows_any_peer() {
            MAX_RAILS
        } else {
            1
        }
    }

    /// The rate of all adapters together in bytes of payload per second, if it is known.
    pub(super) fn port_rate(&self) -> Option<u64> {
        let mut rates = self.places(MAX_RAILS).iter().map(Place::port_rate);
        let first = rates.next()?;
        rates.try_fold(first?, |sum, rate| Some(sum.saturating_add(rate?)))
    }

    /// The reason why no adapter was found, to be appended to an error.
    pub(super) fn adapter_error(&self) -> String {
        let error = self.why_none.as_ref();
        error.map_or_else(String::new, |error| format!(" ({error})"))
    }
}

impl Opening<'_> {
    /// The methods that this end supports at the address of the data connection.
    pub(super) fn capabilities(&self) -> Result<Capabilities, OpenError> {
        let soft = Methods::default().with(Method::Soft);
        if let Some(provider) = &self.settings.provided {
            return self.provided_capabilities(provider.needs_adapter());
        }
        let provider = self.settings.provider;
        if provider == Provider::Soft {
            return Ok(Capabilities::without_adapter(soft, None));
        }
        let methods = match provider {
            Provider::Verbs => Methods::default(),
            Provider::Auto | Provider::Soft => soft,
        };
        match self.find_adapters() {
            Ok(found) => Ok(Capabilities {
                methods: methods.with(method(&found.place)),
                place: Some(found.place),
                adapters: found.adapters,
                notices: found.notices,
                why_none: None,
            }),
            Err(OpenError::Verbs(error)) if provider == Provider::Auto => Ok(
                Capabilities::without_adapter(methods, Some(error.to_string())),
            ),
            Err(OpenError::Verbs(error)) => Err(OpenError::Local(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn find_adapters(&self) -> Result<Found, OpenError> {
        let local = self.local_address()?;
        let options = &self.settings.device_options;
        if options.adapters.is_empty() {
            return Ok(Found {
                place: Place::find(local, options).map_err(OpenError::Verbs)?,
                adapters: Vec::new(),
                notices: Vec::new(),
            });
        }
        let (mut adapters, mut notices) = (Vec::<Place>::new(), Vec::new());
        let mut first_error = None;
        for name in &options.adapters {
            match Place::find_named(name, local, options) {
                Ok(place) if adapters.iter().all(|other| other.goes_with(&place)) => {
                    adapters.push(place);
                }
                Ok(place) => notices.push(format!(
                    "{}, which is another adapter's port or has another protocol",
                    place.device()
                )),
                Err(error) => {
                    notices.push(error.to_string());
                    first_error.get_or_insert(error);
                }
            }
        }
        let at_local = adapters.iter().find(|place| place.is_at(local));
        let place = at_local.or_else(|| adapters.first()).cloned();
        let Some(place) = place else {
            // There is a name at least, and none was found.
            let error = first_error.ok_or(OpenError::Unexpected)?;
            return Err(OpenError::Verbs(error));
        };
        if adapters.len() < 2 {
            adapters.clear();
        }
        Ok(Found {
            place,
            adapters,
            notices,
        })
    }

    /// With a provider that replaces the choice, only that one.
    fn provided_capabilities(&self, needs_adapter: bool) -> Result<Capabilities, OpenError> {
        let mut place = None;
        if needs_adapter {
            let found = match self.find_adapters() {
                Err(OpenError::Verbs(error)) => return Err(OpenError::Local(error.to_string())),
                found => found?.place,
            };
            if method(&found) != Method::Roce {
                return Err(OpenError::Local(format!(
                    "{} is not a RoCE device",
                    found.device()
                )));
            }
            place = Some(found);
        }
        Ok(Capabilities {
            methods: Methods::default().with(Method::Provided),
            place,
            adapters: Vec::new(),
            notices: Vec::new(),
            why_none: None,
        })
    }
}
