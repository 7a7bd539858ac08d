//! Each kind of credential, with each version of TLS, protection, number of channels and direction.

use crate::table::transfers::{get, put};
use crate::{Case, UserKind};

/// Some blocks for each of the channels, and not a multiple of anything.
const SIZE: u64 = 3_000_001;

/// Whose credentials.
const USERS: [UserKind; 6] = [
    UserKind::Plain,
    UserKind::Spaces,
    UserKind::Utf8,
    UserKind::Voms,
    UserKind::Limited,
    UserKind::ProxyOfProxy,
];

/// What the client allows at most, in the words of its library.
const VERSIONS: [(&str, &str); 2] = [("TLS 1.2", "TLS1_2_VERSION"), ("TLS 1.3", "TLS1_3_VERSION")];

/// How data channels are protected; nothing said is authenticated, and clear.
const PROTECTIONS: [&str; 4] = ["-nodcau", "", "-dcsafe", "-dcpriv"];

/// Stream mode, and MODE E with one and several connections.
const CHANNELS: [&str; 4] = ["", "1", "2", "8"];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for user in USERS {
        for (version, maximum) in VERSIONS {
            for protection in PROTECTIONS {
                for channels in CHANNELS {
                    let mut options = Vec::new();
                    if !protection.is_empty() {
                        options.push(protection);
                    }
                    if !channels.is_empty() {
                        options.extend(["-p", channels]);
                    }
                    let name = |direction: &str| {
                        let options = options.join(" ");
                        format!("gsi/{direction} {} {version} {options}", user.name())
                    };
                    let (to_get, to_put) = (options.clone(), options.clone());
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
