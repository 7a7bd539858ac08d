//! Authorization: the first rule that matches an identity decides.

use std::path::PathBuf;

use gridhaul_security::gridmap::{Gridmap, Subject};
use gridhaul_security::voms::{Fqan, Membership};

use crate::config::{Claimant, MemberOf, Outcome, Rule};

/// The authorization of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authorized {
    /// The local account.
    pub(crate) account: String,
    /// The directory that the session sees as `/`; `None` is the server's root.
    pub(crate) root: Option<PathBuf>,
    /// Nothing may be changed.
    pub(crate) read_only: bool,
    /// The verified VOMS attributes, the primary one first.
    pub(crate) attributes: Vec<Fqan>,
    /// The reasons why other VOMS attributes do not count, for the log.
    pub(crate) notes: Vec<String>,
}

/// The accounts of identities for rules with `map = true`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Map<'a> {
    /// Those of the grid-mapfile.
    Gridmap(&'a Gridmap),
    /// The grid-mapfile cannot be read now.
    Unusable,
    /// The callout has named this account for the client.
    Named(&'a str),
}

/// The reason why an identity is refused. The text follows `530 Login incorrect. : `. For an identity without an account it
/// is the text of globus-gridftp-server, which operators search their logs for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// No rule and no entry of the grid-mapfile names the identity.
    #[error("globus_gss_assist: Gridmap lookup failure: Could not map {identity}")]
    NotMapped {
        /// In one-line form.
        identity: String,
    },
    /// The identity may use other accounts.
    #[error("{identity} may not use the account {account}")]
    AccountNotAllowed {
        /// In one-line form.
        identity: String,
        /// The account that the client named.
        account: String,
    },
    /// An independent proxy, and these are not admitted.
    #[error(
        "the proxy {proxy} is an independent one (RFC 3820), which this server does not accept \
         (allow-independent-proxies)"
    )]
    IndependentProxy {
        /// Its subject in one-line form.
        proxy: String,
    },
    /// A rule denies the identity.
    #[error("{identity} is denied by configuration")]
    ByRule {
        /// In one-line form.
        identity: String,
    },
    /// A ban list names the client.
    #[error("{identity} is banned on this server")]
    Banned {
        /// In one-line form.
        identity: String,
    },
    /// A ban list cannot be read.
    #[error("the server cannot read its ban lists now")]
    BansUnusable,
    /// The grid-mapfile cannot be read.
    #[error("the server cannot read its grid-mapfile now")]
    MapUnusable,
    /// The callout denies the login.
    #[error("{identity} is not authorized by this site: {reason}")]
    ByCallout {
        /// In one-line form.
        identity: String,
        /// The callout's reason.
        reason: String,
    },
    /// The callout gave no valid answer.
    #[error("the authorization of this site does not answer; try again later")]
    CalloutFailed,
    /// The callout named another account than the rule that decides.
    #[error(
        "{identity} has no account here on which the site's authorization and the server's rules agree"
    )]
    OtherAccount {
        /// In one-line form.
        identity: String,
    },
    /// There is no account of a pool for the identity.
    #[error("{identity} gets no account of the pool {pool}: {reason}")]
    NoPoolAccount {
        /// In one-line form.
        identity: String,
        /// The pool's name.
        pool: String,
        /// What is wrong.
        reason: String,
    },
}

/// Decides for an identity with the subjects of its proxies, the lowest first, and of its user (all in one-line form).
/// `requested` is the account that the client named, if it did. The account in the result may be a pool.
pub(super) fn decide(
    rules: &[Rule],
    map: Map<'_>,
    (identity, subjects): (&str, &[&str]),
    memberships: &[Membership],
    requested: Option<&str>,
) -> Result<Authorized, Denied> {
    let subjects: Vec<Subject> = subjects.iter().copied().map(Subject::new).collect();
    let fqans: Vec<Vec<&str>> = memberships
        .iter()
        .map(|membership| membership.attributes.iter().map(Fqan::as_str).collect())
        .collect();
    let member_of: Vec<MemberOf<'_>> = memberships
        .iter()
        .zip(&fqans)
        .map(|(membership, fqans)| MemberOf {
            vo: &membership.vo,
            fqans,
        })
        .collect();
    let claimant = Claimant {
        identity: &Subject::new(identity),
        subjects: &subjects,
        memberships: &member_of,
    };
    for rule in rules {
        if !rule.is_about(&claimant) {
            continue;
        }
        let Outcome::Grant {
            account,
            root,
            read_only,
        } = rule.outcome()
        else {
            return Err(Denied::ByRule {
                identity: identity.to_owned(),
            });
        };
        let accounts: Vec<&str> = match (account, map) {
            (Some(account), Map::Named(named)) if account != named => {
                return Err(Denied::OtherAccount {
                    identity: identity.to_owned(),
                });
            }
            (Some(account), _) => vec![account],
            (None, Map::Named(named)) => vec![named],
            (None, Map::Gridmap(gridmap)) => gridmap
                .accounts(identity)
                .iter()
                .map(String::as_str)
                .collect(),
            (None, Map::Unusable) => return Err(Denied::MapUnusable),
        };
        // Without an entry in the grid-mapfile a later rule may match.
        let Some(first) = accounts.first() else {
            continue;
        };
        let account = match requested {
            None => first,
            Some(requested) => accounts
                .iter()
                .find(|account| may_be(account, requested))
                .ok_or_else(|| Denied::AccountNotAllowed {
                    identity: identity.to_owned(),
                    account: requested.to_owned(),
                })?,
        };
        return Ok(Authorized {
            account: (*account).to_owned(),
            root: root.clone(),
            read_only: *read_only,
            attributes: memberships
                .iter()
                .flat_map(|membership| membership.attributes.iter().cloned())
                .collect(),
            notes: Vec::new(),
        });
    }
    Err(Denied::NotMapped {
        identity: identity.to_owned(),
    })
}

/// Whether the account that a client named may be this one. An account of a pool is known when it was leased.
fn may_be(account: &str, requested: &str) -> bool {
    match pool_of(account) {
        Some(pool) => requested.strip_prefix(pool).is_some_and(is_number),
        None => account == requested,
    }
}

/// The pool that stands for an account, as `.atlas` does for `atlas001`.
pub(super) fn pool_of(account: &str) -> Option<&str> {
    account.strip_prefix('.')
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde::Deserialize;

    use super::*;

    const ALICE: &str = "/DC=org/CN=Alice";
    const BOB: &str = "/DC=org/CN=Bob";
    const CAROL: &str = "/DC=org/CN=Carol";

    /// Decides for a claimant without independent proxies.
    fn decide(
        rules: &[Rule],
        gridmap: &Gridmap,
        identity: &str,
        memberships: &[Membership],
        requested: Option<&str>,
    ) -> Result<Authorized, Denied> {
        super::decide(
            rules,
            Map::Gridmap(gridmap),
            (identity, &[identity]),
            memberships,
            requested,
        )
    }

    /// The rules of a configuration file.
    fn rules(text: &str) -> Vec<Rule> {
        #[derive(Deserialize)]
        struct File {
            authorize: Vec<Rule>,
        }

        toml::from_str::<File>(text).expect("valid").authorize
    }

    fn gridmap() -> Gridmap {
        let content = format!("\"{ALICE}\" alice\n\"{BOB}\" bob,grid\n");
        let (gridmap, problems) = Gridmap::parse(content.as_bytes());
        assert_eq!(problems, []);
        gridmap
    }

    fn membership(vo: &str, attributes: &[&str]) -> Membership {
        let fqan = |text: &&str| Fqan::new(text).expect("a name");
        Membership {
            vo: vo.to_owned(),
            attributes: attributes.iter().map(fqan).collect(),
            expires: SystemTime::UNIX_EPOCH,
        }
    }

    const RULES: &str = "
        [[authorize]]
        identity = '/DC=org/CN=Carol'
        deny = true

        [[authorize]]
        fqan = '/atlas/Role=production'
        account = 'atlasprd'
        root = '/srv/atlas'

        [[authorize]]
        identity = '*'
        map = true

        [[authorize]]
        vo = 'atlas'
        account = 'atlas'
        root = '/srv/atlas'
        read-only = true
    ";

    #[test]
    fn without_rules_the_grid_mapfile_decides() {
        let rules = [Rule::gridmap()];
        let decide = |identity, requested| {
            decide(&rules, &gridmap(), identity, &[], requested).map(|granted| granted.account)
        };
        assert_eq!(decide(ALICE, None), Ok("alice".to_owned()));
        assert_eq!(decide(BOB, None), Ok("bob".to_owned()));
        assert_eq!(decide(BOB, Some("grid")), Ok("grid".to_owned()));
        assert_eq!(
            decide(ALICE, Some("bob"))
                .expect_err("another's")
                .to_string(),
            "/DC=org/CN=Alice may not use the account bob"
        );
        assert_eq!(
            decide(CAROL, None).expect_err("unknown").to_string(),
            "globus_gss_assist: Gridmap lookup failure: Could not map /DC=org/CN=Carol"
        );
    }

    #[test]
    fn the_first_rule_that_applies_decides() {
        let rules = rules(RULES);
        let member = membership("atlas", &["/atlas"]);
        let producer = membership("atlas", &["/atlas", "/atlas/Role=production"]);
        let dave = "/DC=org/CN=Dave";
        for (identity, memberships, expected) in [
            (ALICE, &[][..], Some(("alice", None, false))),
            (
                ALICE,
                std::slice::from_ref(&member),
                Some(("alice", None, false)),
            ),
            (
                ALICE,
                std::slice::from_ref(&producer),
                Some(("atlasprd", Some("/srv/atlas"), false)),
            ),
            (CAROL, std::slice::from_ref(&producer), None),
            (
                dave,
                std::slice::from_ref(&member),
                Some(("atlas", Some("/srv/atlas"), true)),
            ),
            (dave, &[membership("cms", &["/cms"])], None),
        ] {
            let decided = decide(&rules, &gridmap(), identity, memberships, None).ok();
            let decided = decided.map(|granted| (granted.account, granted.root, granted.read_only));
            let expected =
                expected.map(|(account, root, read_only): (&str, Option<&str>, bool)| {
                    (account.to_owned(), root.map(PathBuf::from), read_only)
                });
            assert_eq!(decided, expected, "{identity} {memberships:?}");
        }
    }

    #[test]
    fn a_denial_is_told_from_an_unknown_identity() {
        let rules = rules(RULES);
        let denied =
            |identity| decide(&rules, &gridmap(), identity, &[], None).expect_err("denied");
        assert!(matches!(denied(CAROL), Denied::ByRule { .. }));
        assert!(matches!(
            denied("/DC=org/CN=Dave"),
            Denied::NotMapped { .. }
        ));
    }

    #[test]
    fn an_independent_proxy_does_not_lead_around_a_rule_that_denies() {
        let proxy = "/DC=org/CN=Carol/CN=777";
        for pattern in [
            "/DC=org/CN=Carol",
            "/dc=ORG/cn=carol",
            "*/CN=C?rol",
            "*/CN=777",
        ] {
            let rules = rules(&format!(
                "[[authorize]]
                identity = '{pattern}'
                deny = true

                [[authorize]]
                identity = '/DC=org/*'
                account = 'grid'"
            ));
            let decide = |subjects: &[&str]| {
                super::decide(
                    &rules,
                    Map::Gridmap(&gridmap()),
                    (proxy, subjects),
                    &[],
                    None,
                )
            };
            let denied = decide(&[proxy, CAROL]).expect_err(pattern);
            assert!(matches!(denied, Denied::ByRule { .. }), "{pattern}");
        }
    }

    #[test]
    fn a_denial_by_attribute_holds_wherever_the_attribute_stands() {
        let rules = rules(
            "[[authorize]]
            vo = 'cms'
            deny = true

            [[authorize]]
            identity = '*'
            map = true",
        );
        let (atlas, cms) = (
            membership("atlas", &["/atlas"]),
            membership("cms", &["/cms"]),
        );
        let decide =
            |memberships: &[Membership]| decide(&rules, &gridmap(), ALICE, memberships, None);
        for memberships in [&[cms.clone(), atlas.clone()], &[atlas.clone(), cms]] {
            assert!(matches!(decide(memberships), Err(Denied::ByRule { .. })));
        }
        // A user who leaves the attributes out is not denied: rules that grant must ask for them instead.
        assert!(decide(&[atlas]).is_ok());
        assert!(decide(&[]).is_ok());
    }

    #[test]
    fn a_named_account_must_be_that_of_the_deciding_rule() {
        let rules = rules(RULES);
        let producer = [membership("atlas", &["/atlas/Role=production"])];
        let decide = |requested| decide(&rules, &gridmap(), ALICE, &producer, Some(requested));
        assert!(decide("atlasprd").is_ok());
        assert!(matches!(
            decide("alice"),
            Err(Denied::AccountNotAllowed { .. })
        ));
    }

    #[test]
    fn all_verified_attributes_are_passed_on() {
        let memberships = [
            membership("atlas", &["/atlas", "/atlas/de"]),
            membership("cms", &["/cms"]),
        ];
        let granted =
            decide(&[Rule::gridmap()], &gridmap(), ALICE, &memberships, None).expect("mapped");
        let attributes: Vec<&str> = granted.attributes.iter().map(Fqan::as_str).collect();
        assert_eq!(attributes, ["/atlas", "/atlas/de", "/cms"]);
    }

    /// Decides for Alice with another map.
    fn decide_with(
        rules: &[Rule],
        map: Map<'_>,
        requested: Option<&str>,
    ) -> Result<String, Denied> {
        let decided = super::decide(rules, map, (ALICE, &[ALICE]), &[], requested);
        decided.map(|authorized| authorized.account)
    }

    #[test]
    fn a_map_that_cannot_be_read_refuses_and_leads_to_no_later_rule() {
        let rules = rules(RULES);
        assert_eq!(
            decide_with(&rules, Map::Unusable, None),
            Err(Denied::MapUnusable)
        );
        let carol = super::decide(&rules, Map::Unusable, (CAROL, &[CAROL]), &[], None);
        assert!(matches!(carol, Err(Denied::ByRule { .. })));
    }

    #[test]
    fn an_account_of_the_callout_takes_the_place_of_the_map_only() {
        let mapped = [Rule::gridmap()];
        let named = Map::Named("grid07");
        assert_eq!(decide_with(&mapped, named, None), Ok("grid07".to_owned()));
        let other = decide_with(&mapped, named, Some("alice"));
        assert!(matches!(other, Err(Denied::AccountNotAllowed { .. })));
        let fixed = rules("[[authorize]]\nidentity = '*'\naccount = 'atlas'");
        assert!(matches!(
            decide_with(&fixed, named, None),
            Err(Denied::OtherAccount { .. })
        ));
        assert!(decide_with(&fixed, Map::Named("atlas"), None).is_ok());
        let denies = rules("[[authorize]]\nidentity = '*/CN=Alice'\ndeny = true");
        assert!(matches!(
            decide_with(&denies, named, None),
            Err(Denied::ByRule { .. })
        ));
    }

    #[test]
    fn a_client_may_name_an_account_of_its_pool() {
        let mapped = [Rule::gridmap()];
        let decide = |requested| decide_with(&mapped, Map::Named(".atlas"), requested);
        assert_eq!(decide(None), Ok(".atlas".to_owned()));
        assert_eq!(decide(Some("atlas007")), Ok(".atlas".to_owned()));
        for requested in [".atlas", "atlas", "atlasprd1", "atlas7x", "other7"] {
            assert!(decide(Some(requested)).is_err(), "{requested}");
        }
    }
}
