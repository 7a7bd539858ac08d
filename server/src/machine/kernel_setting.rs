//! Settings of the kernel, by their names for sysctl(8).

use std::fs;

/// The value of a setting. In a container some are missing.
pub(crate) fn kernel_setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")));
    text.ok().map(|text| text.trim().to_owned())
}

/// The limit of automatic buffer tuning in bytes: the third number of `net.ipv4.tcp_rmem` or `net.ipv4.tcp_wmem` (tcp(7)).
pub(crate) fn largest_window(name: &str) -> Option<u64> {
    third(&kernel_setting(name)?)
}

fn third(text: &str) -> Option<u64> {
    text.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_third_number() {
        assert_eq!(third("4096\t131072\t6291456"), Some(6_291_456));
        assert_eq!(third("4096"), None);
        assert_eq!(kernel_setting("kernel.no.such.setting"), None);
        assert_eq!(kernel_setting("kernel.ostype").as_deref(), Some("Linux"));
    }
}
