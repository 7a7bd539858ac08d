//! Cases of globus-url-copy that our client fails on purpose: a part of the name of the case, and the reason.

/// With `gridhaul guc`; docs/client.md lists them, too.
pub(super) const OF_GUC: &[(&str, &str)] = &[
    ("-mn with an unknown module", "it has no modules"),
    (
        "nosuchdriver -nodcau",
        "it requests a stack also with -nodcau",
    ),
    ("-data-cred", "it has no credential for data channels only"),
    ("addresses of", "-dbg shows no commands"),
];

/// With `gridhaul copy`.
pub(super) const OF_COPY: &[(&str, &str)] = &[
    ("-mn with an unknown module", "it has no modules"),
    (
        "nosuchdriver -nodcau",
        "it requests a stack also with --dcau none",
    ),
    ("-data-cred", "it has no credential for data channels only"),
    ("addresses of", "it shows no commands"),
    ("-src-cred", "one user copies"),
    ("-src-dcstack", "a stack is for both ends"),
    ("-dst-dcstack", "a stack is for both ends"),
    ("-fsstack", "commands to single servers are in gridhaul guc"),
    ("-aa,", "commands to single servers are in gridhaul guc"),
    (
        "-src-pipe",
        "commands to single servers are in gridhaul guc",
    ),
    ("-do dumps", "--dry-run prints the copies"),
    ("-df dumps", "--resume has a journal"),
    (
        "-checksum-alg with an unknown name",
        "it knows its algorithms",
    ),
    (
        "an unknown name and password",
        "passwords are in files, or typed",
    ),
    (
        "-list of a directory, a file, and a pattern",
        "gridhaul ls takes no pattern",
    ),
];
