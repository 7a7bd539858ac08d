//! The methods of connecting that this end supports at the address of a data connection.

use super::opening::{OpenError, Opening};
use crate::handshake::{Method, Methods};
use crate::settings::Provider;
use crate::verbs::{Place, Protocol, VerbsError};

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
    /// The port of the adapter.
    pub(super) place: Option<Place>,
    /// Why no adapter was found, if one was searched for.
    verbs_error: Option<VerbsError>,
}

impl Capabilities {
    /// The reason for the choice of a method, for the log.
    pub(super) fn reason(&self, method: Method) -> String {
        match (method, &self.place, &self.verbs_error) {
            (Method::Soft, None, Some(error)) => error.to_string(),
            (Method::Soft, None, None) => "provider=soft".to_owned(),
            (Method::Soft, Some(place), _) => {
                format!(
                    "the other end has no provider that is compatible with {}",
                    place.device()
                )
            }
            (Method::Iwarp, None, _) => "the other end has an adapter of iWARP".to_owned(),
            (Method::Provided, None, _) => "there is no other provider".to_owned(),
            (_, Some(place), _) => {
                format!("the data connection has an address of {}", place.device())
            }
            (_, None, _) => "the other end has chosen it".to_owned(),
        }
    }

    /// The reason why no adapter was found, to be appended to an error.
    pub(super) fn adapter_error(&self) -> String {
        let error = self.verbs_error.as_ref();
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
            return Ok(Capabilities {
                methods: soft,
                place: None,
                verbs_error: None,
            });
        }
        let methods = match provider {
            Provider::Verbs => Methods::default(),
            Provider::Auto | Provider::Soft => soft,
        };
        match Place::find(self.local_address()?, &self.settings.device_options) {
            Ok(place) => Ok(Capabilities {
                methods: methods.with(method(&place)),
                place: Some(place),
                verbs_error: None,
            }),
            Err(error) if provider == Provider::Verbs => Err(OpenError::Local(error.to_string())),
            Err(error) => Ok(Capabilities {
                methods,
                place: None,
                verbs_error: Some(error),
            }),
        }
    }

    /// With a provider that replaces the choice, only that one.
    fn provided_capabilities(&self, needs_adapter: bool) -> Result<Capabilities, OpenError> {
        let mut place = None;
        if needs_adapter {
            let found = Place::find(self.local_address()?, &self.settings.device_options);
            let found = found.map_err(|error| OpenError::Local(error.to_string()))?;
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
            verbs_error: None,
        })
    }
}
