//! Parsers for the values of options.

use std::num::NonZeroU64;
use std::time::Duration;

use gridhaul_stack::options;

use crate::handshake::{MAX_INLINE_BYTES, Mode};
use crate::pacing::Rate;

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

/// The kernel's names of devices use only these characters.
pub(super) fn device(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if text.is_empty() || text.len() > 63 || !text.bytes().all(is_name) {
        return Err("it is not the name of a device, such as mlx5_0".to_owned());
    }
    Ok(text.to_owned())
}
