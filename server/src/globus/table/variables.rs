//! Variables of the environment.

use super::{Fate, Variable};
use crate::globus::option::variable;
use Fate::{Guard, Keys, Needless};

/// The variables of the toolkit that concern the server.
pub(crate) const VARIABLES: &[Variable] = &[
    variable(
        "GLOBUS_TCP_PORT_RANGE",
        Keys(&["port-range"]),
        "the variable of the process works too",
    ),
    variable("GLOBUS_UDP_PORT_RANGE", Needless, "UDT is not supported"),
    variable(
        "GLOBUS_TCP_SOURCE_RANGE",
        Needless,
        "connections that the server opens have any port: let them out of the firewall",
    ),
    variable(
        "GLOBUS_HOSTNAME",
        Keys(&["advertise-address"]),
        "an address; names are not announced",
    ),
    variable(
        "X509_USER_CERT",
        Keys(&["cert"]),
        "the variable of the process works too, as those below",
    ),
    variable("X509_USER_KEY", Keys(&["key"]), ""),
    variable(
        "X509_USER_PROXY",
        Keys(&["cert"]),
        "if the two before are not set",
    ),
    variable("X509_CERT_DIR", Keys(&["trust"]), ""),
    variable("X509_VOMS_DIR", Keys(&["vomsdir"]), ""),
    variable("GRIDMAP", Keys(&["gridmap"]), ""),
    variable("GRIDMAPDIR", Keys(&["gridmapdir"]), ""),
    variable(
        "GSI_AUTHZ_CONF",
        Guard,
        "the callouts of this file are not loaded: see [callouts](operators/accounts.md#callouts)",
    ),
    variable(
        "GLOBUS_GSSAPI_MIN_TLS_PROTOCOL",
        Keys(&["tls-versions"]),
        "versions before 1.2 are not offered",
    ),
    variable(
        "GLOBUS_GSSAPI_MAX_TLS_PROTOCOL",
        Keys(&["tls-versions"]),
        "",
    ),
    variable("GLOBUS_LOCATION", Needless, "nothing is looked for there"),
    variable(
        "GLOBUS_THREAD_MODEL",
        Needless,
        "one process serves all sessions with threads of its own",
    ),
    variable(
        "GLOBUS_ERROR_VERBOSE",
        Needless,
        "`log-level` selects what the log has",
    ),
    variable("GLOBUS_USAGE_OPTOUT", Needless, "no statistics are sent"),
    variable(
        "LCMAPS_DB_FILE",
        Needless,
        "for LCMAPS: set it for the service that `authz-callout` asks",
    ),
    variable("LCMAPS_POLICY_NAME", Needless, "the same"),
    variable("LLGT_LIFT_PRIVILEGED_PROTECTION", Needless, "the same"),
];
