//! Cases of globus-url-copy that our client fails on purpose: a part of the name of the case, and the reason.

use super::translation;

/// With `gridhaul guc`; docs/client.md lists them, too.
pub(super) const OF_GUC: &[(&str, &str)] = &[
    ("-mn with an unknown module", "it has no modules"),
    (
        "nosuchdriver -nodcau",
        "it requests a stack also with -nodcau",
    ),
];

/// With `gridhaul copy`, beside the options that it does not have ([`translation::absent`]).
pub(super) const OF_COPY: &[(&str, &str)] = &[
    (
        "nosuchdriver -nodcau",
        "it requests a stack also with --dcau none",
    ),
    ("addresses of", "-vv shows commands in another form"),
    (
        "-checksum-alg with an unknown name",
        translation::ALGORITHMS,
    ),
    ("an unknown name and password", translation::PASSWORDS),
    (
        "-list of a directory, a file, and a pattern",
        translation::PATTERNS,
    ),
];
