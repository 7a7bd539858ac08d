//! Each kind of credential, with each version of TLS, protection, number of channels and direction.

use super::{PROTECTIONS, SIZE, USERS, options};
use crate::Case;
use crate::table::transfers::{get, put};

/// What the client allows at most, in the words of its library.
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
                        case.gsi(user)
                            .env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", maximum)
                    }));
                }
            }
        }
    }
    cases
}
