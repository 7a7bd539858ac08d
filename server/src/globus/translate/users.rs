//! Who may log in, and what they see.

use super::super::given::words;
use super::super::translation::{Entry, Weight, list, quoted};
use super::Translator;
use super::paths::{self, View};

impl Translator<'_> {
    /// Certificates, anonymous users, the root, and the rule.
    pub(super) fn users(&mut self) {
        let view = self.view();
        let is_anonymous = self.given.is_on("allow_anonymous");
        // As root it refuses anonymous users without this account ("No anonymous user set").
        let has_account = !self.facts.is_root || self.given.get("anonymous_user").is_some();
        let admits_anonymous = is_anonymous && has_account && view.is_for_all;
        let has_certificate = self.given.variable("X509_USER_CERT").is_some();
        self.admits_certificates =
            !admits_anonymous || self.facts.has_credential || has_certificate;
        if self.admits_certificates {
            self.add(
                Vec::new(),
                vec![("gsi", "true".to_owned())],
                "users with certificates may log in. Accounts with a UID below 1000 are refused: see least-uid",
                Weight::Carried,
            );
        } else {
            self.add(
                Vec::new(),
                Vec::new(),
                "no host certificate was found, so users with certificates cannot log in: set gsi, cert and key when there is one",
                Weight::Carried,
            );
        }
        self.root(&view);
        match (is_anonymous, has_account) {
            (true, false) => self.note(
                &["allow_anonymous"],
                Vec::new(),
                "anonymous users are refused, as by globus-gridftp-server when it was started as root without anonymous_user",
                Weight::Missing,
            ),
            (true, true) if !admits_anonymous => self.note(
                &["allow_anonymous"],
                Vec::new(),
                "anonymous users are refused: restrict_paths cannot be carried over for them",
                Weight::Missing,
            ),
            _ => {}
        }
        self.anonymous(admits_anonymous, view.read_only);
        self.levels();
    }

    fn anonymous(&mut self, are_admitted: bool, read_only: bool) {
        if are_admitted {
            let mut keys = vec![("anonymous", "true".to_owned())];
            let remark = if read_only {
                "read-only, as restrict_paths says"
            } else {
                keys.push(("anonymous-write", "true".to_owned()));
                "anonymous users may also write, as with globus-gridftp-server, where the account may. Delete anonymous-write if they should not"
            };
            self.note(&["allow_anonymous"], keys, remark, Weight::Carried);
        } else if self.given.is_off("allow_anonymous") {
            self.note(
                &["allow_anonymous"],
                Vec::new(),
                "the default",
                Weight::Carried,
            );
        }
        if let Some(names) = self.given.text("anonymous_names_allowed") {
            let names = match names.starts_with('*') {
                true => vec!["*"],
                false => words(names),
            };
            let keys = match are_admitted && !names.is_empty() {
                true => vec![("anonymous-names", list(&names))],
                false => Vec::new(),
            };
            self.note(
                &["anonymous_names_allowed"],
                keys,
                "names are compared as a whole",
                Weight::Carried,
            );
        }
        if let Some(user) = self.given.text("anonymous_user") {
            let keys = match are_admitted && self.facts.is_root {
                true => vec![("user", quoted(user))],
                false => Vec::new(),
            };
            let remark = match keys.is_empty() {
                true => {
                    "without effect: there are no anonymous users, or the server is not started as root"
                }
                false => {
                    "the account of the server, and so of anonymous users; users with certificates have their own"
                }
            };
            self.note(&["anonymous_user"], keys, remark, Weight::Carried);
        }
    }

    /// The directory that users see, and the rule that limits it.
    fn root(&mut self, view: &View) {
        let names = ["chroot_path", "restrict_paths"];
        self.note(
            &names,
            vec![("root", quoted(&view.root))],
            &view.remark,
            view.weight,
        );
        let Some(rule) = &view.rule else { return };
        if !self.admits_certificates {
            return;
        }
        let keys = rule.iter().map(|(key, value)| (*key, value.clone()));
        let placed = self.given.get("restrict_paths").into_iter();
        self.done.rule = Some(Entry {
            origins: placed
                .map(|placed| (placed.place.clone(), placed.written.clone()))
                .collect(),
            keys: keys.collect(),
            remark: "users of the grid-mapfile".to_owned(),
            weight: Weight::Carried,
        });
    }

    fn view(&self) -> View {
        let chroot = self.given.text("chroot_path").map(|path| self.path(path));
        let home = self.given.text("home_dir");
        paths::view(chroot, self.given.text("restrict_paths"), home)
    }

    /// `auth_level` and `cas`.
    fn levels(&mut self) {
        if let Some(level) = self.given.number("auth_level") {
            let remark = match level {
                level if level & 8 != 0 => {
                    "the grid-mapfile is used: other users with certificates need a rule, [[authorize]]"
                }
                0 => "users with certificates are always authorized by the grid-mapfile or rules",
                level if level & 4 != 0 => {
                    "as root, users have the accounts of the grid-mapfile; otherwise all have the account of the server, which the grid-mapfile must name"
                }
                _ => "files are opened by the account of the user",
            };
            self.note(&["auth_level"], Vec::new(), remark, Weight::Carried);
        }
        if self.given.is_off("cas") {
            self.note(
                &["cas"],
                vec![("ignore-gsi-authz", "true".to_owned())],
                "",
                Weight::Carried,
            );
        } else if self.given.get("cas").is_some() {
            self.note(
                &["cas"],
                Vec::new(),
                "the default: with callouts in gsi-authz.conf the server does not start until authz-callout takes their place",
                Weight::Carried,
            );
        }
    }
}
