//! Parsers for the values of options.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use gridhaul_stack::options;

use crate::handshake::{MAX_INLINE_BYTES, Mode};
use crate::pacing::Rate;
use crate::provider::MAX_RAILS;
use crate::verbs::AdapterName;

/// Which provider carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Verbs if both ends have them for the data connection's address; otherwise `soft`.
    Auto,
    Soft,
    Verbs,
}

/// The largest ring, in bytes: the bandwidth-delay product of 100 Gb/s and 300 ms.
pub(super) const MAX_RING_BYTES: u64 = 4 << 30;

pub(super) fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "auto" => Ok(Rate::Auto { port: None }),
        _ => options::rate(text)
            .map(Rate::Fixed)
            .map_err(|reason| format!("it is not auto, and {reason}")),
    }
}

pub(super) fn between(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| match options::number(text) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("it is not a number from {least} to {most}")),
    }
}

pub(super) fn slab(text: &str, slabs: u64) -> Result<NonZeroU64, String> {
    let most = MAX_RING_BYTES / slabs;
    options::bytes(text)
        .ok()
        .filter(|bytes| (4096..=most).contains(bytes))
        .and_then(NonZeroU64::new)
        .ok_or_else(|| format!("it is not a number of bytes from 4096 to {most}"))
}

pub(super) fn message(text: &str, slab: u64) -> Result<u64, String> {
    match options::bytes(text) {
        Ok(bytes) if (1024..=slab).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "it is not a number of bytes from 1024 to a slab's, {slab}"
        )),
    }
}

pub(super) fn depth(text: &str) -> Result<Option<usize>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let number = between(2, 65_536)(text)?;
    Ok(usize::try_from(number).ok())
}

pub(super) fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "put" => Ok(Mode::Put),
        "get" => Ok(Mode::Get),
        _ => Err("it is neither put nor get".to_owned()),
    }
}

pub(super) fn inline(text: &str) -> Result<u16, String> {
    options::bytes(text)
        .ok()
        .and_then(|bytes| u16::try_from(bytes).ok())
        .filter(|bytes| *bytes <= MAX_INLINE_BYTES)
        .ok_or_else(|| format!("it is not a number of bytes from 0 to {MAX_INLINE_BYTES}"))
}

pub(super) fn stall(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(600);
    options::duration(text)
        .ok()
        .filter(|time| range.contains(time))
        .ok_or_else(|| "it is not a time from 100ms to 10m".to_owned())
}

pub(super) fn register(text: &str) -> Result<bool, String> {
    match text {
        "static" => Ok(false),
        "dynamic" => Ok(true),
        _ => Err("there are static and dynamic".to_owned()),
    }
}

pub(super) fn provider(text: &str) -> Result<Provider, String> {
    match text {
        "auto" => Ok(Provider::Auto),
        "soft" => Ok(Provider::Soft),
        "verbs" => Ok(Provider::Verbs),
        _ => Err("there are soft, verbs, and auto, which chooses".to_owned()),
    }
}

/// `enum ibv_mtu`.
pub(super) fn mtu(text: &str) -> Result<u8, String> {
    match text {
        "256" => Ok(1),
        "512" => Ok(2),
        "1024" => Ok(3),
        "2048" => Ok(4),
        "4096" => Ok(5),
        _ => Err("it is not 256, 512, 1024, 2048 or 4096".to_owned()),
    }
}

/// With or without the bit of full members. 0 is no partition.
pub(super) fn partition(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|number| number & 0x7fff != 0)
        .ok_or_else(|| "it is not a P_Key, such as 0x8001".to_owned())
}

/// One device, or several adapters by name or address.
pub(super) fn devices(text: &str) -> Result<Vec<AdapterName>, String> {
    let names: Vec<_> = match text.split_once('+') {
        None => vec![AdapterName::Device(device(text)?)],
        Some(_) => text.split('+').map(adapter).collect::<Result<_, _>>()?,
    };
    if names.len() > MAX_RAILS {
        return Err(format!("there are more than {MAX_RAILS} adapters"));
    }
    let is_repeated = |(place, name)| names[..place].contains(name);
    match names.iter().enumerate().find(|named| is_repeated(*named)) {
        Some(_) => Err("it names an adapter twice".to_owned()),
        None => Ok(names),
    }
}

fn adapter(text: &str) -> Result<AdapterName, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(AdapterName::Address(address.to_canonical())),
        Err(_) => device(text).map(AdapterName::Device),
    }
}

/// The kernel's names of devices use only these characters.
fn device(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if text.is_empty() || text.len() > 63 || !text.bytes().all(is_name) {
        return Err("it is not the name of a device, such as mlx5_0".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_have_names_or_addresses() {
        let device = |name: &str| AdapterName::Device(name.to_owned());
        let address = |text: &str| AdapterName::Address(text.parse().unwrap());
        assert_eq!(devices("mlx5_0"), Ok(vec![device("mlx5_0")]));
        // A single name may look like an address.
        assert_eq!(devices("10.0.0.1"), Ok(vec![device("10.0.0.1")]));
        let two = vec![device("mlx5_0"), device("mlx5_1")];
        assert_eq!(devices("mlx5_0+mlx5_1"), Ok(two));
        let mixed = vec![
            address("192.0.2.1"),
            address("2001:db8::1"),
            device("mlx5_1"),
        ];
        assert_eq!(devices("192.0.2.1+2001:db8::1+mlx5_1"), Ok(mixed));
        for wrong in [
            "",
            "+",
            "mlx5_0+",
            "a+b+c+d+e",
            "a+a",
            "192.0.2.1+::ffff:192.0.2.1",
            "a+b/c",
        ] {
            assert!(devices(wrong).is_err(), "{wrong}");
        }
    }
}
