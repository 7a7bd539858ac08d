//! Settings that the drivers of this program must know, and settings without effect.

use std::path::PathBuf;

use gridhaul_stack::Registry;

use super::Validated;
use crate::config::similar;
use crate::drivers;
use crate::machine;
use crate::session::GSI;

pub(super) fn check(validated: &mut Validated, registry: &Registry) {
    if let Err(error) = drivers::configured_stack(&validated.config, registry) {
        validated.error("stack", error);
    }
    for error in drivers::client_options_errors(&validated.config, registry) {
        validated.error("client-options", error);
    }
    check_drivers(validated, registry);
    check_limits(validated);
    if !validated.is_wrong("max-transfers") && !validated.is_wrong("max-connections") {
        warn_of_needless_limits(validated);
    }
    check_rules(validated);
    check_memory(validated);
    check_logs(validated);
    if !validated.is_wrong("allowed-drivers") && !validated.is_wrong("anonymous-drivers") {
        warn_of_unused_options(validated);
    }
}

/// Limits that the server's own limits, or its users, leave without effect.
fn warn_of_needless_limits(validated: &mut Validated) {
    let config = &validated.config;
    let mut found = Vec::new();
    for (index, limit) in config.group_limits.iter().enumerate() {
        let of_server = [
            ("max-transfers", limit.transfers, config.limits.transfers),
            (
                "max-connections",
                limit.connections,
                config.limits.connections,
            ),
        ];
        for (key, own, most) in of_server {
            if let Some(own) = own.filter(|own| *own > most) {
                found.push((
                    index,
                    format!(
                        "{key} = {own} is without effect, because that of the server is {most}: lower it, or raise that"
                    ),
                ));
            }
        }
        if config.passwords.is_none()
            && config.security.gsi.is_none()
            && let Some(anonymous) = &config.anonymous
            && !limit.may_be_about(&anonymous.names)
        {
            let names = anonymous.names.join(", ");
            let text = format!(
                "user matches none of {names}, who alone can log in, so that the limit is without effect: correct it"
            );
            found.push((index, text));
        }
    }
    for (index, text) in found {
        let name = &validated.config.group_limits[index].name;
        let text = format!("[[limit]] table {} '{name}': {text}", index + 1);
        let problem = validated.problem_of_table("limit", index, text);
        validated.warnings.push(problem);
    }
    let limits = &validated.config.limits;
    let (connections, address, startups) = (
        limits.connections,
        limits.connections_per_address,
        limits.startups.full,
    );
    for (key, count) in [
        ("max-connections-per-address", address),
        ("max-startups", startups),
    ] {
        if count > connections && validated.sources.is_given(key) {
            let text = format!(
                "{key}: {count} is without effect, because max-connections is {connections}: lower it, or raise that"
            );
            validated.warning(key, text);
        }
    }
}

/// Only clients with certificates have identities and attributes.
fn check_limits(validated: &mut Validated) {
    let config = &validated.config;
    if config.security.gsi.is_some() {
        return;
    }
    let limits = config.group_limits.iter();
    let without_effect: Vec<_> = limits
        .enumerate()
        .filter(|(_, limit)| limit.needs_certificates())
        .map(|(index, limit)| (index, limit.name.clone()))
        .collect();
    for (index, name) in without_effect {
        let text = format!(
            "[[limit]] table {} '{name}' is without effect: identity, vo and fqan need --gsi: give that as well",
            index + 1
        );
        validated.error_of_table("limit", index, text);
    }
}

/// The first rule that is about a client decides.
fn check_rules(validated: &mut Validated) {
    let Some(gsi) = &validated.config.security.gsi else {
        return;
    };
    let rules = gsi.rules.iter().enumerate();
    let hidden: Vec<_> = rules
        .filter_map(|(index, rule)| {
            let first = gsi.rules[..index]
                .iter()
                .position(|first| first.hides(rule, gsi.allow_independent_proxies))?;
            Some((first, index))
        })
        .collect();
    for (first, index) in hidden {
        let text = format!(
            "[[authorize]] table {} is without effect: table {} decides about all its clients before it; delete one of \
             them, or put this one first",
            index + 1,
            first + 1
        );
        validated.error_of_table("authorize", index, text);
    }
}

/// Memory that the machine does not have. The defaults are parts of what it has.
fn check_memory(validated: &mut Validated) {
    let Some(limit) = machine::memory_limit() else {
        return;
    };
    let limits = &validated.config.limits;
    let (buffers, rings) = (machine::buffer_bytes(limits), machine::ring_bytes(limits));
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let (has_buffers, has_rings) = (limits.buffer_memory.is_some(), limits.rdma_memory.is_some());
    if has_buffers && buffers > limit {
        let text = format!(
            "buffer-memory: {} is more than the {} that the server may have: lower it",
            mebibytes(buffers),
            mebibytes(limit)
        );
        validated.error("buffer-memory", text);
    } else if has_rings && rings.saturating_add(buffers) > limit {
        let text = format!(
            "rdma-memory: {} and the {} of buffer-memory are more than the {} that the server may have: lower one of them",
            mebibytes(rings),
            mebibytes(buffers),
            mebibytes(limit)
        );
        validated.error("rdma-memory", text);
    }
}

/// Each log has a format of its own. Devices such as `/dev/null` take all of them.
fn check_logs(validated: &mut Validated) {
    let config = &validated.config;
    let logs = [
        ("log-file", &config.log.file),
        ("transfer-log", &config.transfer_log),
        ("audit-log", &config.log.audit),
    ];
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    let mut repeated = Vec::new();
    for (key, path) in logs {
        let Some(path) = path.clone().filter(|path| !path.starts_with("/dev")) else {
            continue;
        };
        match seen.iter().find(|(_, other)| *other == path) {
            Some((other, _)) => repeated.push((key, *other, path)),
            None => seen.push((key, path)),
        }
    }
    for (key, other, path) in repeated {
        let path = path.display();
        let text = format!("{key}: {path} is the file of {other} as well: give each log its own");
        validated.error(key, text);
    }
}

/// The drivers that clients may name must exist.
fn check_drivers(validated: &mut Validated, registry: &Registry) {
    let data = &validated.config.data;
    let lists = [
        ("allowed-drivers", data.allowed_drivers.clone()),
        ("anonymous-drivers", data.anonymous_drivers.clone()),
    ];
    let known: Vec<_> = registry.drivers().map(|driver| driver.name()).collect();
    for (key, names) in lists {
        // Drivers of anonymous users are those of all users, unless they are given.
        if !validated.sources.is_given(key) {
            continue;
        }
        for name in &names {
            if !known.contains(&name.as_str()) {
                let hint = similar(name, &known);
                let text = format!(
                    "{key}: this program has no driver '{name}'{hint}; it has {}",
                    known.join(", ")
                );
                validated.error(key, text);
            }
        }
    }
}

/// Rules for drivers that clients cannot name may be there for later.
fn warn_of_unused_options(validated: &mut Validated) {
    let data = &validated.config.data;
    // Clients may always name the driver that DCAU needs.
    let may_have = |driver: &str| driver == GSI || data.may_be_asked_for(driver);
    let unused: Vec<_> = data
        .client_options
        .iter()
        .filter(|rules| !may_have(rules.driver()))
        .map(|rules| {
            format!(
                "client-options '{rules}' is without effect: neither allowed-drivers nor anonymous-drivers lets clients \
                 have {}; add it to one of them",
                rules.driver()
            )
        })
        .collect();
    for text in unused {
        validated.warning("client-options", text);
    }
}
