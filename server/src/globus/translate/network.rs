//! Addresses, logs and the greeting.

use std::net::{IpAddr, SocketAddr};

use super::super::given::{Value, words};
use super::super::translation::{Weight, list, quoted};
use super::{TranslateError, Translator, WhatIsWrong};

impl Translator<'_> {
    /// `port`, `control_interface`, `data_interface` and `hostname`.
    pub(super) fn listeners(&mut self) -> Result<(), TranslateError> {
        let names = ["port", "control_interface", "hostname"];
        let port = match self.given.get("port") {
            Some(placed) => {
                let port = match placed.value {
                    Value::Number(number) => u16::try_from(number).ok(),
                    _ => None,
                };
                port.ok_or_else(|| Self::wrong(placed, WhatIsWrong::Port))?
            }
            None => self.facts.port,
        };
        let host = self.address(&["control_interface", "hostname"])?;
        let listen = match host {
            Some(host) => quoted(&SocketAddr::new(host, port).to_string()),
            // Two sockets, for IPv4 and IPv6, would get two ports.
            None if port == 0 => quoted("0.0.0.0:0"),
            None => port.to_string(),
        };
        let remark = match (host, self.given.get("port")) {
            (None, None) => {
                "all addresses; the port of globus-gridftp-server is a free one without `port`"
            }
            (None, _) => "all addresses",
            (Some(_), _) if self.has_name(&names) => {
                "the server looks no names up: this is the address that the name has today"
            }
            _ => "",
        };
        self.note(&names, vec![("listen", listen)], remark, Weight::Carried);
        if let Some(address) = self.address(&["data_interface", "hostname"])? {
            self.note(
                &["data_interface", "hostname"],
                vec![("data-address", quoted(&address.to_string()))],
                "an address of this machine. Behind address translation, the address that clients reach is advertise-address",
                Weight::Carried,
            );
        }
        Ok(())
    }

    /// The address in the first of these options that is given.
    fn address(&self, names: &[&str]) -> Result<Option<IpAddr>, TranslateError> {
        let placed = names.iter().find_map(|name| self.given.get(name));
        let Some(placed) = placed else {
            return Ok(None);
        };
        let Value::Text(host) = &placed.value else {
            return Ok(None);
        };
        let found = host.parse().ok().or_else(|| (self.facts.resolve)(host));
        match found {
            Some(address) => Ok(Some(address)),
            None => Err(Self::wrong(placed, WhatIsWrong::Host(host.clone()))),
        }
    }

    /// Whether one of these options names a host.
    fn has_name(&self, names: &[&str]) -> bool {
        let hosts = names.iter().filter_map(|name| self.given.text(name));
        hosts
            .into_iter()
            .any(|host| host.parse::<IpAddr>().is_err())
    }

    /// The log, and its level.
    pub(super) fn logs(&mut self) {
        let names = ["log_single", "log_unique"];
        let file = self.given.text("log_single").map(|path| self.path(path));
        let prefix = self.given.text("log_unique");
        let file = file.or_else(|| Some(format!("{}gridftp.log", self.path(prefix?))));
        if let Some(file) = file {
            let remark = match prefix {
                Some(_) => "one file for all sessions",
                None => "",
            };
            self.note(
                &names,
                vec![("log-file", quoted(&file))],
                remark,
                Weight::Carried,
            );
        }
        let names = ["log_level", "debug"];
        let level = self.given.text("log_level").map(level);
        let level = match self.given.is_on("debug") {
            true => Some("debug"),
            false => level,
        };
        if let Some(level) = level {
            self.note(
                &names,
                vec![("log-level", quoted(level))],
                "",
                Weight::Carried,
            );
        } else if self.given.get("debug").is_some() {
            self.note(&["debug"], Vec::new(), "the default", Weight::Carried);
        }
    }

    /// `banner` and `banner_terse`.
    pub(super) fn greeting(&mut self) {
        const LONGEST: usize = 1000;

        let names = ["banner", "banner_terse"];
        let fits = |text: &&str| text.len() <= LONGEST && !text.chars().any(char::is_control);
        let text = match self.given.is_on("banner_terse") {
            true => Some(""),
            false => self.given.text("banner").filter(fits),
        };
        match text {
            Some(text) => {
                self.note(&names, vec![("banner", quoted(text))], "", Weight::Carried);
            }
            None if names.iter().any(|name| self.given.get(name).is_some()) => {
                let remark =
                    "the greeting of this server: a text is one line of at most 1000 bytes";
                self.note(&names, Vec::new(), remark, Weight::Carried);
            }
            None => {}
        }
    }

    /// Drivers of data channels. Those that this server does not have are left out.
    pub(super) fn drivers(&mut self, name: &'static str, key: &'static str) {
        let text = self.given.text(name).unwrap_or_default();
        // `gsi` is added by the protection that clients select.
        let mut names = words(text);
        names.retain(|driver| *driver != "gsi");
        let is_tcp = !names.is_empty() && names.iter().all(|driver| *driver == "tcp");
        let keys = match (key, is_tcp) {
            ("stack", true) => vec![("stack", quoted("tcp"))],
            ("stack", false) => Vec::new(),
            _ => vec![(key, list(&["tcp"]))],
        };
        let remark = match (key, is_tcp) {
            ("stack", false) => {
                "the stack of this server: auto, which is TCP on the wire; options of drivers differ"
            }
            (_, true) => "name auto, splice and rdma as well if clients may use them",
            _ => "TCP only: the other drivers of this list are not here; auto, splice and rdma are",
        };
        self.note(&[name], keys, remark, Weight::Carried);
    }
}

/// The level of the log that has all of these levels of globus-gridftp-server, which are names or the sum of their bits.
fn level(text: &str) -> &'static str {
    const NAMES: [(&str, u32); 6] = [
        ("ERROR", 1),
        ("WARN", 2),
        ("TRANSFER", 4),
        ("INFO", 8),
        ("DUMP", 16),
        ("ALL", 255),
    ];
    let bits = text.parse().unwrap_or_else(|_| {
        let words = words(text);
        let bits = words.iter().filter_map(|word| {
            let known = NAMES
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(word));
            known.map(|(_, bits)| *bits)
        });
        bits.fold(0, |all, bits| all | bits)
    });
    match bits {
        16.. => "debug",
        4.. => "info",
        2.. => "warn",
        _ => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn the_level_has_all_that_was_asked_for() {
        for (text, ours) in [
            ("0", "error"),
            ("255", "debug"),
            ("ERROR,WARN", "warn"),
            ("error,warn,info", "info"),
            ("TRANSFER", "info"),
            ("ALL", "debug"),
            ("dump", "debug"),
            ("nonsense", "error"),
        ] {
            assert_eq!(level(text), ours, "{text}");
        }
    }
}
