//! The ways of connecting that this end supports at the address of a data connection.

use super::opening::{OpenError, Opening};
use crate::handshake::{Way, Ways};
use crate::settings::Provider;
use crate::verbs::{Place, Protocol, VerbsError};

/// How queue pairs are connected on a port.
pub(super) fn way(place: &Place) -> Way {
    match place.protocol() {
        Protocol::InfiniBand => Way::InfiniBand,
        Protocol::Roce => Way::Roce,
        Protocol::Iwarp => Way::Iwarp,
    }
}

/// The ways that this end supports.
pub(super) struct Abilities {
    pub(super) ways: Ways,
    /// The port of the adapter.
    pub(super) place: Option<Place>,
    /// Why there is no adapter, if one was looked for.
    without_verbs: Option<VerbsError>,
}

impl Abilities {
    /// Why this way was chosen, for the log.
    pub(super) fn reason(&self, way: Way) -> String {
        match (way, &self.place, &self.without_verbs) {
            (Way::Soft, None, Some(error)) => error.to_string(),
            (Way::Soft, None, None) => "provider=soft".to_owned(),
            (Way::Soft, Some(place), _) => {
                format!(
                    "the other end has nothing that understands {}",
                    place.device()
                )
            }
            (Way::Iwarp, None, _) => "the other end has an adapter of iWARP".to_owned(),
            (Way::Provided, None, _) => "there is no other provider".to_owned(),
            (_, Some(place), _) => {
                format!("the data connection has an address of {}", place.device())
            }
            (_, None, _) => "the other end chose so".to_owned(),
        }
    }

    /// Appended to an error: why there is no adapter.
    pub(super) fn reservation(&self) -> String {
        let error = self.without_verbs.as_ref();
        error.map_or_else(String::new, |error| format!(" ({error})"))
    }
}

impl Opening<'_> {
    /// The ways that this end supports at the address of the data connection.
    pub(super) fn abilities(&self) -> Result<Abilities, OpenError> {
        let soft = Ways::default().with(Way::Soft);
        if let Some(provider) = &self.settings.provided {
            return self.provided_abilities(provider.needs_adapter());
        }
        let provider = self.settings.provider;
        if provider == Provider::Soft {
            return Ok(Abilities {
                ways: soft,
                place: None,
                without_verbs: None,
            });
        }
        let programs = match provider {
            Provider::Verbs => Ways::default(),
            Provider::Auto | Provider::Soft => soft,
        };
        match Place::find(self.local_address()?, &self.settings.device_options) {
            Ok(place) => Ok(Abilities {
                ways: programs.with(way(&place)),
                place: Some(place),
                without_verbs: None,
            }),
            Err(error) if provider == Provider::Verbs => Err(OpenError::Local(error.to_string())),
            Err(error) => Ok(Abilities {
                ways: programs,
                place: None,
                without_verbs: Some(error),
            }),
        }
    }

    /// With a provider that replaces the choice, only that one.
    fn provided_abilities(&self, needs_adapter: bool) -> Result<Abilities, OpenError> {
        let mut place = None;
        if needs_adapter {
            let found = Place::find(self.local_address()?, &self.settings.device_options);
            let found = found.map_err(|error| OpenError::Local(error.to_string()))?;
            if way(&found) != Way::Roce {
                return Err(OpenError::Local(format!("{} is no RoCE", found.device())));
            }
            place = Some(found);
        }
        Ok(Abilities {
            ways: Ways::default().with(Way::Provided),
            place,
            without_verbs: None,
        })
    }
}
