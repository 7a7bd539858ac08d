//! Variables of Globus programs about the data connections that this machine listens for.
//!
//! Sites open the ports of `GLOBUS_TCP_PORT_RANGE` in their firewalls. `GLOBUS_FTP_CLIENT_DATA_IP` is the address that a gateway with
//! address translation forwards to this machine (manual page of globus-url-copy 10.12).

use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::LazyLock;

use gridhaul_protocol::stack::StackSpec;

const PORT_RANGE: &str = "GLOBUS_TCP_PORT_RANGE";
const DATA_IP: &str = "GLOBUS_FTP_CLIENT_DATA_IP";

/// Where this machine listens for data connections, and what servers are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DataPlace {
    /// The first and the last port.
    ports: Option<(u16, u16)>,
    /// The address that servers connect to, if it is not that of the control connection.
    advertised: Option<IpAddr>,
}

/// A variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvironmentError {
    #[error(
        "{name}={0}: two ports, the first one not larger, are like 50000,51000; unset it to listen at any port",
        name = PORT_RANGE
    )]
    Ports(String),
    #[error(
        "{name}={0}: an IP address of this machine or of its gateway is like 192.0.2.1",
        name = DATA_IP
    )]
    Address(String),
}

static OF_PROCESS: LazyLock<Result<DataPlace, EnvironmentError>> =
    LazyLock::new(|| DataPlace::read(|name| env::var_os(name)));

/// Checks the variables of the process, before [`data_place`] is used.
///
/// # Errors
///
/// When one of them cannot be used.
pub(super) fn check() -> Result<(), EnvironmentError> {
    OF_PROCESS.as_ref().map(|_| ()).map_err(Clone::clone)
}

/// What the variables of the process say. Commands that do not listen ignore wrong ones.
pub(super) fn data_place() -> DataPlace {
    OF_PROCESS.clone().unwrap_or_default()
}

impl DataPlace {
    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvironmentError> {
        let text = |name: &str| {
            let value = variable(name)?.to_string_lossy().trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let ports = text(PORT_RANGE).map(|text| ports(&text).ok_or(EnvironmentError::Ports(text)));
        let address = text(DATA_IP).map(|text| text.parse().map_err(|_| text));
        Ok(Self {
            ports: ports.transpose()?,
            advertised: address.transpose().map_err(EnvironmentError::Address)?,
        })
    }

    /// Whether servers are told an address that the user has chosen.
    pub(super) fn is_advertised(&self) -> bool {
        self.advertised.is_some()
    }

    /// The same stack, whose transport listens there. Its own options win.
    pub(super) fn placed(&self, mut stack: StackSpec) -> StackSpec {
        let ports = self.ports.map(|(first, last)| format!("{first}-{last}"));
        let advertised = self.advertised.map(|address| address.to_string());
        // Each transport of this program has the options of `tcp`.
        if let Some(transport) = stack.drivers.first_mut() {
            for (name, value) in [("port", ports), ("advertise", advertised)] {
                let is_free = transport.options.iter().all(|(known, _)| known != name);
                let value = value.filter(|_| is_free);
                transport
                    .options
                    .extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        stack
    }
}

/// Globus programs want a comma; the server of this project accepts these, too.
fn ports(text: &str) -> Option<(u16, u16)> {
    let pair = [',', '-', ' ']
        .into_iter()
        .find_map(|one| text.split_once(one));
    let (first, last) = pair?;
    let [first, last] = [first, last].map(|port| port.trim().parse::<u16>().ok());
    let range = (first?, last?);
    (range.0 > 0 && range.0 <= range.1).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ports: &str, address: &str) -> Result<DataPlace, EnvironmentError> {
        DataPlace::read(|name| {
            let value = match name {
                PORT_RANGE => ports,
                _ => address,
            };
            Some(value.into())
        })
    }

    #[test]
    fn a_stack_listens_at_the_ports_of_the_site() {
        let place = read(" 50000 , 51000", "192.0.2.1").expect("valid");
        let placed = |stack: &str| {
            let stack = StackSpec::parse(stack).expect("a stack");
            place.placed(stack).to_string()
        };
        let all = "port=50000-51000;advertise=192.0.2.1";
        assert_eq!(placed("auto"), format!("auto:{all}"));
        assert_eq!(placed("tcp:cc=bbr,gsi"), format!("tcp:cc=bbr;{all},gsi"));
        assert_eq!(placed("rdma:port=7-8"), "rdma:port=7-8;advertise=192.0.2.1");
        let plain = read("", " ").expect("nothing");
        assert_eq!(plain, DataPlace::default());
        let stack = StackSpec::only("auto");
        assert_eq!(plain.placed(stack.clone()), stack);
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_variable() {
        for ports in ["50000", "2,1", "0,5", "a,b", "1,70000", ","] {
            let error = read(ports, "").expect_err(ports).to_string();
            assert!(error.starts_with(PORT_RANGE), "{error}");
        }
        for address in ["dtn.example.org", "192.0.2", "192.0.2.1:5"] {
            let error = read("", address).expect_err(address).to_string();
            assert!(error.starts_with(DATA_IP), "{error}");
        }
    }
}
