//! Requests that a page of another site could have caused.
//!
//! Such a page can send requests to this server with the administrator's browser, and, with a name that it lets point to this
//! machine (DNS rebinding), also read the answers. So requests must be for this machine by an address or a known name, and
//! actions must come from our own page or from no page at all.

use std::net::{IpAddr, Ipv6Addr};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};

use crate::http::{Answer, refusal};

/// Where a browser says that a request comes from (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests for other names.
pub(in crate::admin) fn check_host(
    headers: &HeaderMap,
    names: &[String],
) -> Result<(), Box<Answer>> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        _ => {
            return Err(refusal(
                StatusCode::BAD_REQUEST,
                "A request needs one Host.",
            ));
        }
    };
    if is_ours(host, names) {
        return Ok(());
    }
    Err(refusal(
        StatusCode::MISDIRECTED_REQUEST,
        "The administration is not for this host name: use an address, localhost, the host's name, or a name of admin-names.",
    ))
}

/// `HOST` or `HOST:PORT`, where an IPv6 address has brackets.
fn is_ours(host: &str, names: &[String]) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
        return is_port && address.parse::<Ipv6Addr>().is_ok();
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_number(port) => name,
        Some(_) => return false,
        None => host,
    };
    let name = name.to_ascii_lowercase();
    name == "localhost" || names.contains(&name) || name.parse::<IpAddr>().is_ok()
}

fn is_number(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Refuses requests that a page of another site has caused.
pub(in crate::admin) fn check_origin(headers: &HeaderMap) -> Result<(), Box<Answer>> {
    let refused = || {
        refusal(
            StatusCode::FORBIDDEN,
            "This request comes from another site.",
        )
    };
    let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return Err(refused());
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().ok().and_then(|origin| {
        let (scheme, authority) = origin.split_once("://")?;
        matches!(scheme, "http" | "https").then_some(authority)
    });
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    match (origin, host) {
        (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(refused()),
    }
}

/// Refuses actions that are not JSON, which pages of other sites cannot send without asking.
pub(in crate::admin) fn check_post(headers: &HeaderMap) -> Result<(), Box<Answer>> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    if kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(refusal(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "An action needs Content-Type: application/json.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
        let values = list
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().expect("valid")));
        values.collect()
    }

    #[test]
    fn requests_are_for_addresses_and_known_names() {
        let names = ["dtn.example.org".to_owned()];
        for host in [
            "127.0.0.1:2880",
            "127.0.0.1",
            "[::1]:2880",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "DTN.example.org:443",
            "192.0.2.1",
        ] {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:2880",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:x",
            "[::1",
            "[::1]x",
            "[localhost]",
            "dtn.example.org@evil",
            "::1",
        ] {
            assert!(!is_ours(host, &names), "{host}");
        }
        let none = check_host(&headers(&[]), &names).expect_err("no host");
        assert_eq!(none.status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn actions_come_from_our_page_or_from_none() {
        let host = (HOST, "127.0.0.1:2880");
        for (origin, site, expected) in [
            (None, None, true),
            (Some("http://127.0.0.1:2880"), Some("same-origin"), true),
            (Some("http://127.0.0.1:2880"), None, true),
            (None, Some("none"), true),
            (Some("http://127.0.0.1:2881"), None, false),
            (Some("http://evil.example"), None, false),
            (Some("null"), None, false),
            (Some("ftp://127.0.0.1:2880"), None, false),
            (None, Some("cross-site"), false),
            (None, Some("same-site"), false),
            (Some("http://127.0.0.1:2880"), Some("cross-site"), false),
        ] {
            let mut list = vec![host.clone()];
            list.extend(origin.map(|origin| (ORIGIN, origin)));
            list.extend(site.map(|site| (SEC_FETCH_SITE, site)));
            assert_eq!(check_origin(&headers(&list)).is_ok(), expected, "{list:?}");
        }
    }

    #[test]
    fn actions_are_json() {
        let is_json = |kind| check_post(&headers(&[(CONTENT_TYPE, kind)])).is_ok();
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        assert!(!is_json("text/plain") && !is_json("application/x-www-form-urlencoded"));
        assert!(check_post(&headers(&[])).is_err());
    }
}
