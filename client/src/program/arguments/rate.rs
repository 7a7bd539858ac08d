//! Rates of the command line.

/// Bytes per second, with a unit of powers of 1000.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    const UNITS: [(char, u32); 4] = [('k', 1), ('m', 2), ('g', 3), ('t', 4)];
    let last = text.chars().last().map(|last| last.to_ascii_lowercase());
    let unit = UNITS.iter().find(|(unit, _)| Some(*unit) == last);
    let (number, power) = match unit {
        Some((_, power)) => (&text[..text.len() - 1], *power),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let scale = u32::try_from(fraction.len())
        .ok()
        .and_then(|places| 10_u64.checked_pow(places));
    let value = digits.parse::<u64>().ok().filter(|_| is_number);
    let value = value.and_then(|value| value.checked_mul(1000_u64.pow(power)));
    match value.zip(scale).map(|(value, scale)| value / scale) {
        Some(rate @ 1..) => Ok(rate),
        _ => Err("bytes per second, like 500k, 20M or 1.5G".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units_of_powers_of_1000() {
        for (text, rate) in [
            ("1", 1),
            ("500k", 500_000),
            ("20M", 20_000_000),
            ("1.5G", 1_500_000_000),
            ("0.25t", 250_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(rate), "{text}");
        }
        for text in [
            "",
            "0",
            "k",
            ".5M",
            "1.2.3M",
            "-1",
            "+5",
            "1e9",
            "20MB",
            "9999999999999T",
            "0.1",
            "\u{e4}",
        ] {
            parse(text).expect_err(text);
        }
    }
}
