//! Addresses that another program has. It may be the server that this configuration is for: that is asked over its socket.

use std::net::SocketAddr;

use serde::Deserialize;

use super::report::{Report, Verdict};
use crate::admin::default_path;
use crate::config::{AdminSocket, Config};
use crate::terminal::document_at;
use crate::validate::{InUse, Validated};

/// What is needed of the document of a running server, whose version may be another one.
#[derive(Debug, Deserialize)]
struct Running {
    server: RunningServer,
    configuration: Vec<RunningKey>,
}

#[derive(Debug, Deserialize)]
struct RunningServer {
    pid: u32,
    listening: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RunningKey {
    key: String,
    value: String,
}

pub(super) fn check(report: &mut Report, validated: &Validated) {
    if validated.in_use.is_empty() {
        return;
    }
    let config = &validated.config;
    let running = running(config);
    for one in &validated.in_use {
        match &running {
            Some(running) if running.has(one, config) => {
                let what = match one.address {
                    Some(address) => address.to_string(),
                    None => "the socket".to_owned(),
                };
                let text = format!(
                    "{what} is in use by the server of this configuration, process {}, which runs already",
                    running.server.pid
                );
                report.ok(one.key, text);
            }
            // The server of this configuration answers, and has other addresses.
            Some(_) => report.settings(Verdict::Error, std::slice::from_ref(&one.problem)),
            None => report.settings(Verdict::Warning, std::slice::from_ref(&one.problem)),
        }
    }
}

/// The server that answers at the socket of the configuration, if this account may ask it.
fn running(config: &Config) -> Option<Running> {
    let path = match &config.admin.socket {
        AdminSocket::At(path) => path.clone(),
        AdminSocket::Default => default_path(config.listen.first().map_or(0, SocketAddr::port))?,
        AdminSocket::None => return None,
    };
    let document = document_at(&path).ok()?;
    serde_json::from_slice(&document).ok()
}

impl Running {
    fn has(&self, one: &InUse, config: &Config) -> bool {
        let listens = |address: SocketAddr| self.server.listening.contains(&address.to_string());
        match one.address {
            Some(address) if one.key == "listen" => listens(address),
            // The document does not name the addresses of metrics and administration, except as settings.
            Some(_) => {
                let mut own = config.keys.all().iter();
                let own = own.find(|own| own.key == one.key);
                own.is_some_and(|own| {
                    let mut keys = self.configuration.iter();
                    keys.any(|key| key.key == own.key && key.value == own.value)
                })
            }
            None => config.listen.iter().copied().any(listens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServeArguments, Settings};

    #[test]
    fn a_running_server_has_its_own_addresses_and_no_others() {
        let settings = Settings {
            anonymous: Some(true),
            listen: Some(vec!["127.0.0.1:2811".parse().expect("an address")]),
            metrics_listen: Some("9281".parse().expect("a port")),
            ..Settings::default()
        };
        let config = Config::load(&ServeArguments {
            settings,
            ..ServeArguments::default()
        })
        .expect("valid");
        let running = |listening: &str, metrics: &str| {
            let document = format!(
                r#"{{"server": {{"pid": 5, "listening": ["{listening}"], "more": 1}}, "sessions": [],
                    "configuration": [{{"key": "metrics-listen", "value": "{metrics}", "more": 1}}]}}"#
            );
            serde_json::from_str::<Running>(&document).expect("valid")
        };
        let in_use = |key, address: Option<&str>| InUse {
            key,
            address: address.map(|address| address.parse().expect("an address")),
            problem: crate::config::Problem {
                key: None,
                place: None,
                text: String::new(),
            },
        };
        let listen = in_use("listen", Some("127.0.0.1:2811"));
        let metrics = in_use("metrics-listen", Some("127.0.0.1:9281"));
        let socket = in_use("admin-socket", None);
        let own = running("127.0.0.1:2811", ":9281");
        for one in [&listen, &metrics, &socket] {
            assert!(own.has(one, &config), "{one:?}");
        }
        let other = running("127.0.0.1:2812", ":9282");
        for one in [&listen, &metrics, &socket] {
            assert!(!other.has(one, &config), "{one:?}");
        }
    }
}
