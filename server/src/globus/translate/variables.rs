//! Variables of the environment.

use std::net::IpAddr;

use super::super::given::{Place, Placed};
use super::super::option::Fate;
use super::super::table;
use super::super::translation::{Weight, quoted};
use super::{TranslateError, Translator, WhatIsWrong};
use crate::config::PortRange;

/// The variables that have the versions of TLS.
const TLS: [&str; 2] = [
    "GLOBUS_GSSAPI_MIN_TLS_PROTOCOL",
    "GLOBUS_GSSAPI_MAX_TLS_PROTOCOL",
];

impl Translator<'_> {
    pub(super) fn variables(&mut self) -> Result<(), TranslateError> {
        let given = self.given;
        self.credential();
        self.tls_versions();
        for (name, placed) in given.variables() {
            if name.starts_with("X509_USER_") || TLS.contains(&name) {
                continue;
            }
            let (keys, remark, weight) = match name {
                "GLOBUS_TCP_PORT_RANGE" => (Self::port_range(placed)?, "", Weight::Carried),
                "GLOBUS_HOSTNAME" => self.host_name(&placed.value),
                "X509_CERT_DIR" => self.file("trust", &placed.value),
                "X509_VOMS_DIR" => self.file("vomsdir", &placed.value),
                "GRIDMAP" => self.file("gridmap", &placed.value),
                "GRIDMAPDIR" => self.file("gridmapdir", &placed.value),
                _ => self.without_key(name, placed),
            };
            let origin = (placed.place.clone(), placed.written.clone());
            self.add(vec![origin], keys, &table::plain(remark), weight);
        }
        Ok(())
    }

    /// The certificate and its key, which count together (`globus_gsi_sysconfig`), else the proxy.
    fn credential(&mut self) {
        let given = self.given;
        let value = |name| given.variable(name).map(|path| quoted(&self.path(path)));
        let named = value("X509_USER_CERT").zip(value("X509_USER_KEY"));
        let has_both = named.is_some();
        let keys = match named {
            Some((cert, key)) => vec![("cert", cert), ("key", key)],
            None => value("X509_USER_PROXY")
                .map(|proxy| ("cert", proxy))
                .into_iter()
                .collect(),
        };
        let origins: Vec<_> = given
            .variables()
            .filter(|(name, _)| name.starts_with("X509_USER_"))
            .map(|(_, placed)| (placed.place.clone(), placed.written.clone()))
            .collect();
        if origins.is_empty() {
            return;
        }
        let remark = match (has_both, keys.is_empty()) {
            (false, true) => "X509_USER_CERT and X509_USER_KEY count together",
            _ => "",
        };
        self.add(origins, keys, remark, Weight::Carried);
    }

    fn tls_versions(&mut self) {
        let given = self.given;
        let origins: Vec<_> = given
            .variables()
            .filter(|(name, _)| TLS.contains(name))
            .map(|(_, placed)| (placed.place.clone(), placed.written.clone()))
            .collect();
        if origins.is_empty() {
            return;
        }
        let least = match given.variable(TLS[0]) {
            Some("TLS1_3_VERSION") => "1.3",
            _ => "1.2",
        };
        let versions = match (least, given.variable(TLS[1])) {
            ("1.2", Some("TLS1_2_VERSION")) => "1.2",
            ("1.3", _) => "1.3",
            _ => "1.2-1.3",
        };
        let keys = vec![("tls-versions", quoted(versions))];
        let remark = "versions before 1.2 are not offered";
        self.add(origins, keys, remark, Weight::Carried);
    }

    fn port_range(placed: &Placed<String>) -> Result<Vec<(&'static str, String)>, TranslateError> {
        if placed.value.is_empty() {
            return Ok(Vec::new());
        }
        let range: PortRange = placed.value.parse().map_err(|_| TranslateError {
            place: placed.place.clone(),
            written: placed.written.clone(),
            what: WhatIsWrong::PortRange,
        })?;
        Ok(vec![("port-range", quoted(&range.to_string()))])
    }

    fn host_name(&self, value: &str) -> (Vec<(&'static str, String)>, &'static str, Weight) {
        match value.parse::<IpAddr>() {
            Ok(address) => {
                let keys = vec![("advertise-address", quoted(&address.to_string()))];
                (keys, "", Weight::Carried)
            }
            Err(_) => (
                Vec::new(),
                "replies have addresses; behind address translation set advertise-address",
                Weight::Carried,
            ),
        }
    }

    fn file(
        &self,
        key: &'static str,
        path: &str,
    ) -> (Vec<(&'static str, String)>, &'static str, Weight) {
        match path.is_empty() {
            true => (Vec::new(), "empty", Weight::Carried),
            false => (vec![(key, quoted(&self.path(path)))], "", Weight::Carried),
        }
    }

    fn without_key(
        &self,
        name: &str,
        placed: &Placed<String>,
    ) -> (Vec<(&'static str, String)>, &'static str, Weight) {
        let Some(variable) = table::variable(name) else {
            let remark = "not a variable of this server; the unit of systemd can set it";
            return (Vec::new(), remark, Weight::Carried);
        };
        // The variable of this process counts (`config/places.rs`), and without callouts nothing is lost.
        let is_seen = placed.place == Place::Environment || self.given.is_off("cas");
        let weight = match variable.fate {
            Fate::Guard if !is_seen => Weight::Guard,
            _ => Weight::Carried,
        };
        (Vec::new(), variable.remark, weight)
    }
}
