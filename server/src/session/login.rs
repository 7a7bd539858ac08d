//! `USER` and `PASS`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::{Password, Text};
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_security::voms::Fqan;
use gridhaul_transfer::{Admission, NodeAccount};
use zeroize::Zeroizing;

use super::authenticate::{Initiator, Protection};
use super::control::Control;
use super::end::Arrival;
use super::{End, Session, User, replies};
use crate::admission::{Misconduct, Network};
use crate::passwords::{Grant, Unverified};
use crate::telemetry::Event;

/// How far a client is with logging in.
#[derive(Debug, Default)]
pub(super) enum Login {
    /// Not yet.
    #[default]
    Nobody,
    /// A name was given.
    Named(String),
    /// Done.
    Done(User),
}

/// Who a session belongs to when another program asked for name and proof: ssh.
#[derive(Debug, Clone)]
pub(crate) struct LocalUser {
    pub(crate) name: String,
    /// Where the session begins.
    pub(crate) home: RemotePath,
}

/// What a client may use.
pub(super) struct Admitted {
    /// Nothing was proved.
    is_anonymous: bool,
    account: NodeAccount,
    /// Where the session begins; `None` is for the node to say.
    home: Option<RemotePath>,
    attributes: Vec<Fqan>,
}

/// How long opening the files of a client may take, with the wait for others of the same client.
const ATTACH: Duration = Duration::from_secs(45);

/// With this name a client asks for the account that its identity is mapped to.
const GLOBUS_MAPPING: &str = ":globus-mapping:";

impl Login {
    pub(super) fn user(&self) -> Option<&User> {
        match self {
            Self::Done(user) => Some(user),
            Self::Nobody | Self::Named(_) => None,
        }
    }

    /// Of a client that has logged in.
    pub(super) fn change_directory(&mut self, directory: RemotePath) {
        if let Self::Done(user) = self {
            user.directory = directory;
        }
    }
}

impl Session {
    /// `USER`.
    pub(super) fn name(&mut self, name: &Text) -> Reply {
        if self.login.user().is_some() {
            return already_logged_in();
        }
        self.login = Login::Named(name.as_str().to_owned());
        Reply::new(331, format!("Password required for {name}."))
    }

    /// `PASS`.
    pub(super) async fn password(
        &mut self,
        control: &mut Control,
        password: &Password,
    ) -> Result<Reply, End> {
        let name = match std::mem::take(&mut self.login) {
            Login::Named(name) => name,
            done @ Login::Done(_) => {
                self.login = done;
                return Ok(already_logged_in());
            }
            Login::Nobody => return Ok(Reply::new(503, "Login with USER first.")),
        };
        let admitted = match (&self.protection, &self.local_user) {
            (Protection::Gsi(initiator), _) => {
                self.admit_initiator(Arc::clone(initiator), &name).await
            }
            (_, Some(user)) => Ok(self.admit_local_user(user.clone())),
            _ => match self.admit_by_password(&name, password).await {
                Err(reason @ (Unverified::OverBudget(_) | Unverified::Refused(_))) => {
                    return Err(self.send_away(&name, reason));
                }
                admitted => admitted.map_err(|reason| reason.to_string()),
            },
        };
        let reason = match admitted {
            Ok(admitted) if self.shared.link.get().is_some() => {
                let is_anonymous = admitted.is_anonymous;
                self.keep_place(!is_anonymous)?;
                return Err(End::HandedOver(Arrival { name, is_anonymous }));
            }
            Ok(admitted) => match self.begin(admitted).await {
                Ok(reply) => {
                    self.keep_place(!self.is_anonymous())?;
                    return Ok(reply);
                }
                Err(reason) => reason,
            },
            Err(reason) => reason,
        };
        self.refuse(control, &name, &reason).await
    }

    /// The client is logged in, when its files are open. Returns the reply, or why they are not.
    pub(super) async fn begin(&mut self, admitted: Admitted) -> Result<Reply, String> {
        let user = self.attach(admitted).await?;
        let reply = Reply::new(230, format!("User {} logged in.", user.name));
        self.login = Login::Done(user);
        Ok(reply)
    }

    /// A GSI context is proof enough; the name says which account is wanted.
    pub(super) async fn admit_initiator(
        &self,
        initiator: Arc<Initiator>,
        name: &str,
    ) -> Result<Admitted, String> {
        let requested = (name != GLOBUS_MAPPING).then(|| name.to_owned());
        let work = move || initiator.proof.authorize(requested.as_deref());
        let authorized = self.shared.threads.log_in(&self.source(), work).await;
        let authorized = authorized.ok_or("The server failed.")??;
        // A process that hands the client over leaves it to the other one to tell.
        let notes = authorized.notes.iter();
        for note in notes.filter(|_| self.shared.link.get().is_none()) {
            self.shared.journal.publish(&Event::AttributeIgnored {
                session: self.id,
                reason: note,
            });
        }
        let config = &self.settings.config;
        Ok(Admitted {
            is_anonymous: false,
            account: NodeAccount {
                source: self.source().with_account(authorized.account.as_str()),
                name: authorized.account.clone(),
                account: Some(authorized.account),
                root: authorized.root.unwrap_or_else(|| config.root.clone()),
                read_only: authorized.read_only,
                // With DCAU only a peer that proves the right identity gets through; and a client that says
                // DCAU N knows that its data may come from anywhere, as third-party copies of gfal2 do.
                admission: Admission::Anyone,
            },
            home: None,
            attributes: authorized.attributes,
        })
    }

    fn admit_local_user(&self, user: LocalUser) -> Admitted {
        let config = &self.settings.config;
        Admitted {
            is_anonymous: false,
            account: NodeAccount {
                source: self.source().with_account(user.name.as_str()),
                name: user.name,
                account: None,
                root: config.root.clone(),
                read_only: false,
                // Third-party copies are the client's business here as well.
                admission: Admission::Anyone,
            },
            home: Some(user.home),
            attributes: Vec::new(),
        }
    }

    /// What the client may use under this name with this password.
    async fn admit_by_password(
        &self,
        name: &str,
        password: &Password,
    ) -> Result<Admitted, Unverified> {
        let (is_anonymous, grant) = match self.grant_of_anonymous(name).await {
            Some(grant) => (true, grant),
            None => (false, self.grant(name, password).await?),
        };
        Ok(self.admit_name(name, is_anonymous, grant))
    }

    /// What the user of this name may use, who was granted this.
    pub(super) fn admit_name(&self, name: &str, is_anonymous: bool, grant: Grant) -> Admitted {
        let config = &self.settings.config;
        // Anonymous users have no account in common.
        let source = if is_anonymous {
            self.source()
        } else {
            self.source().with_account(name)
        };
        Admitted {
            is_anonymous,
            account: NodeAccount {
                source,
                name: name.to_owned(),
                account: None,
                root: grant.root.unwrap_or_else(|| config.root.clone()),
                read_only: grant.read_only,
                admission: config.data.admission(self.peer),
            },
            home: Some(RemotePath::root()),
            attributes: Vec::new(),
        }
    }

    /// What anonymous users may use, if that is the name of one.
    pub(super) async fn grant_of_anonymous(&self, name: &str) -> Option<Grant> {
        self.settings.config.anonymous.as_ref()?;
        let (logins, name) = (Arc::clone(&self.settings.logins), name.to_owned());
        let work = move || logins.without_password(&name);
        self.shared.threads.log_in(&self.source(), work).await?
    }

    async fn grant(&self, name: &str, password: &Password) -> Result<Grant, Unverified> {
        if self.settings.config.passwords.is_none() {
            return Err(Unverified::Wrong);
        }
        let logins = Arc::clone(&self.settings.logins);
        let (network, name) = (Network::of(self.peer), name.to_owned());
        let password = Zeroizing::new(password.as_bytes().to_vec());
        let verifier = &self.shared.verifier;
        verifier.verify(logins, network, name, password).await
    }

    /// From now on the connection counts as one of a user, if there is room for one more.
    fn keep_place(&mut self, proved: bool) -> Result<(), End> {
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let kept = place.logged_in(proved, std::time::Instant::now());
        kept.map_err(|refusal| End::TryLater(refusal.to_string()))
    }

    /// Opens the files that the user may use.
    async fn attach(&self, admitted: Admitted) -> Result<User, String> {
        let Admitted {
            is_anonymous,
            account,
            home,
            attributes,
        } = admitted;
        let (name, read_only) = (account.name.clone(), account.read_only);
        let source = account.source.clone();
        let node = Arc::clone(&self.shared.node);
        let attached = self
            .shared
            .threads
            .attach(&source, move || node.attach(&account));
        let node = tokio::time::timeout(ATTACH, attached)
            .await
            .map_err(|_| format!("Your files did not answer within {} s.", ATTACH.as_secs()))?
            .ok_or("The server failed.")?
            .map_err(|error| error.to_string())?;
        let home = home.unwrap_or_else(|| beginning(&node.home()));
        self.shared.journal.publish(&Event::LoggedIn {
            session: self.id,
            user: &name,
            identity: self.identity(),
            attributes: &attributes,
            read_only,
        });
        Ok(User {
            name,
            is_anonymous,
            source,
            node,
            directory: home.clone(),
            home,
        })
    }

    /// Whether the client has proved nothing, until now at least.
    pub(super) fn is_anonymous(&self) -> bool {
        match self.login.user() {
            Some(user) => user.is_anonymous,
            None => self.identity().is_none() && self.local_user.is_none(),
        }
    }

    /// Who the client proved to be, in one-line form.
    pub(super) fn identity(&self) -> Option<&str> {
        match &self.protection {
            Protection::Gsi(initiator) => Some(&initiator.identity),
            _ => None,
        }
    }

    /// Ends the session of a client whose password was not even looked at: it costs no more than this.
    fn send_away(&self, name: &str, reason: Unverified) -> End {
        if matches!(reason, Unverified::OverBudget(_)) {
            self.penalize(Misconduct::Refused);
        }
        let reason = reason.to_string();
        self.shared.journal.publish(&Event::LoginFailed {
            session: self.id,
            peer: self.peer,
            user: name,
            identity: None,
            reason: &reason,
        });
        End::TryLater(reason)
    }

    pub(super) async fn refuse(
        &mut self,
        control: &mut Control,
        name: &str,
        reason: &str,
    ) -> Result<Reply, End> {
        /// Slows down password guessing. The session holds nothing meanwhile but its connection, which has
        /// not logged in and can be displaced.
        const DELAY: Duration = Duration::from_secs(1);

        self.shared.journal.publish(&Event::LoginFailed {
            session: self.id,
            peer: self.peer,
            user: name,
            identity: self.identity(),
            reason,
        });
        self.failures += 1;
        self.penalize(Misconduct::Refused);
        let reply = if self.identity().is_some() {
            replies::not_mapped(reason)
        } else {
            tokio::time::sleep(DELAY).await;
            Reply::new(530, format!("Login incorrect. : {reason}"))
        };
        if let Err(end) = self.check_failures() {
            self.send(control, &reply);
            return Err(end);
        }
        Ok(reply)
    }

    /// Ends the session of a client that was refused too often.
    pub(super) fn check_failures(&self) -> Result<(), End> {
        if self.failures >= self.settings.config.limits.login_attempts {
            return Err(End::WrongLogins);
        }
        Ok(())
    }
}

/// A home directory as a session has it; one that cannot be is the root.
pub(crate) fn beginning(home: &Path) -> RemotePath {
    let root = RemotePath::root();
    PathArgument::new(home.as_os_str().as_bytes())
        .and_then(|home| root.join(&home, &root).ok())
        .map_or_else(RemotePath::root, |home| home.without_parents())
}

fn already_logged_in() -> Reply {
    Reply::new(503, "You are already logged in.")
}
