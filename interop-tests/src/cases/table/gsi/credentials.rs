//! Each kind of credential, with each version of TLS, protection, number of channels and direction.

use super::variants::{PROTECTIONS, SIZE, USERS, options};
use crate::cases::table::transfers::{get, put};
use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, UserKind};

/// The client's highest TLS version, in the notation of OpenSSL.
const VERSIONS: [(&str, &str); 2] = [("TLS 1.2", "TLS1_2_VERSION"), ("TLS 1.3", "TLS1_3_VERSION")];

/// Stream mode, and MODE E with one and several connections.
const CHANNELS: [[&str; 2]; 4] = [["", ""], ["-p", "1"], ["-p", "2"], ["-p", "8"]];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for user in USERS {
        for (version, maximum) in VERSIONS {
            for protection in PROTECTIONS {
                for [flag, channels] in CHANNELS {
                    let to_get = options(&[protection, flag, channels]);
                    let to_put = to_get.clone();
                    let words = to_get.join(" ");
                    let name = |direction: &str| {
                        format!("gsi/{direction} {} {version} {words}", user.name())
                    };
                    let pair = [
                        Case::new(name("get"), move |context| get(context, &to_get, SIZE)),
                        Case::new(name("put"), move |context| put(context, &to_put, SIZE)),
                    ];
                    cases.extend(pair.map(|case| {
                        let case = case.gsi(user);
                        let case = match user {
                            UserKind::Spaces => case.rsa_delegations(),
                            _ => case,
                        };
                        case.env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", maximum)
                    }));
                }
            }
        }
    }
    for (direction, run) in [("get", get as Transfer), ("put", put)] {
        for options in [&[][..], &["-dcpriv", "-p", "2"]] {
            let name = format!(
                "gsi/{direction} spaces, HelloRetryRequest for another group {}",
                options.join(" ")
            );
            let case = Case::new(name, move |context| {
                std::fs::write(context.local("openssl.cnf"), OTHER_GROUP)?;
                run(context, options, SIZE)
            });
            // Clients run in the local directory.
            let case = case.env("OPENSSL_CONF", "openssl.cnf");
            cases.push(case.gsi(UserKind::Spaces));
        }
    }
    cases
}

type Transfer = fn(&Context<'_>, &[&str], u64) -> Result<Observation, Failure>;

/// The client offers a key share of a group that our server does not support, and gets a HelloRetryRequest (RFC 8446
/// 4.1.4).
const OTHER_GROUP: &str = "\
openssl_conf = all
[all]
ssl_conf = tls
[tls]
system_default = groups
[groups]
Groups = P-521:P-256
";
