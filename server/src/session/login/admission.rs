//! What a client may use: by its certificate, its password, its local account, or without a proof.

use std::sync::Arc;

use gridhaul_protocol::command::Password;
use gridhaul_protocol::path::RemotePath;
use gridhaul_security::voms::Fqan;
use gridhaul_transfer::{Admission, NodeAccount};
use zeroize::Zeroizing;

use crate::admission::Network;
use crate::passwords::{Grant, Unverified};
use crate::session::context::Context;
use crate::session::initiator::Initiator;
use crate::session::user::LocalUser;
use crate::telemetry::Event;

/// With this name a client asks for the account that its identity is mapped to.
const GLOBUS_MAPPING: &str = ":globus-mapping:";

/// What a client may use.
pub(crate) struct Admitted {
    /// The client proved no identity.
    pub(super) is_anonymous: bool,
    pub(super) account: NodeAccount,
    /// The directory in which the session starts. `None` is the home directory of the account.
    pub(super) home: Option<RemotePath>,
    /// The VOMS attributes that counted.
    pub(super) attributes: Vec<Fqan>,
}

/// A GSI context is proof enough; the name selects one of the accounts of the identity.
pub(crate) async fn admit_by_certificate(
    context: &Context,
    initiator: &Arc<Initiator>,
    name: &str,
) -> Result<Admitted, String> {
    let initiator = Arc::clone(initiator);
    let requested = (name != GLOBUS_MAPPING).then(|| name.to_owned());
    let address = context.peer;
    let work = move || initiator.proof.authorize(requested.as_deref(), address);
    let threads = &context.shared.threads;
    let authorized = threads.log_in(&context.source(), work).await;
    let authorized = authorized.ok_or("The server failed.")??;
    // If another process will serve the client, that process logs them.
    let notes = authorized.notes.iter();
    for note in notes.filter(|_| context.shared.link.get().is_none()) {
        context.publish(&Event::AttributeIgnored {
            session: context.id,
            reason: note,
        });
    }
    Ok(Admitted {
        is_anonymous: false,
        account: NodeAccount {
            source: context.source().with_account(authorized.account.as_str()),
            name: authorized.account.clone(),
            account: Some(authorized.account),
            root: authorized
                .root
                .unwrap_or_else(|| context.config().root.clone()),
            read_only: authorized.read_only,
            // With DCAU only a peer that proves the right identity is accepted. A client that sends DCAU N accepts that its
            // data may come from any host, as third-party copies of gfal2 require.
            admission: Admission::Anyone,
        },
        home: None,
        attributes: authorized.attributes,
    })
}

pub(super) fn admit_local_user(context: &Context, user: LocalUser) -> Admitted {
    Admitted {
        is_anonymous: false,
        account: NodeAccount {
            source: context.source().with_account(user.name.as_str()),
            name: user.name,
            account: None,
            root: context.config().root.clone(),
            read_only: false,
            // As above: the client is responsible for its third-party copies.
            admission: Admission::Anyone,
        },
        home: Some(user.home),
        attributes: Vec::new(),
    }
}

pub(super) async fn admit_by_password(
    context: &Context,
    name: &str,
    password: &Password,
) -> Result<Admitted, Unverified> {
    let (is_anonymous, grant) = match grant_of_anonymous(context, name).await {
        Some(grant) => (true, grant),
        None => (false, grant_by_password(context, name, password).await?),
    };
    Ok(admit_by_name(context, name, is_anonymous, grant))
}

/// What a user of this name may use under this grant.
pub(crate) fn admit_by_name(
    context: &Context,
    name: &str,
    is_anonymous: bool,
    grant: Grant,
) -> Admitted {
    let config = context.config();
    // Anonymous users do not share an account.
    let source = if is_anonymous {
        context.source()
    } else {
        context.source().with_account(name)
    };
    Admitted {
        is_anonymous,
        account: NodeAccount {
            source,
            name: name.to_owned(),
            account: None,
            root: grant.root.unwrap_or_else(|| config.root.clone()),
            read_only: grant.read_only,
            admission: config.data.admission(context.peer),
        },
        home: Some(RemotePath::root()),
        attributes: Vec::new(),
    }
}

/// The grant of anonymous users, if this is the name of one.
pub(crate) async fn grant_of_anonymous(context: &Context, name: &str) -> Option<Grant> {
    context.config().anonymous.as_ref()?;
    let name = name.to_owned();
    context
        .ask_logins(move |logins| logins.without_password(&name))
        .await?
}

async fn grant_by_password(
    context: &Context,
    name: &str,
    password: &Password,
) -> Result<Grant, Unverified> {
    if context.config().passwords.is_none() {
        return Err(Unverified::Wrong);
    }
    let logins = Arc::clone(&context.settings.logins);
    let (network, name) = (Network::of(context.peer), name.to_owned());
    let password = Zeroizing::new(password.as_bytes().to_vec());
    let verifier = &context.shared.verifier;
    verifier.verify(logins, network, name, password).await
}
