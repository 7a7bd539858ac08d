//! Opens the files of a user.

use std::sync::Arc;
use std::time::Duration;

use gridhaul_transfer::AttachError;

use super::admission::Admitted;
use super::refusal::Refusal;
use crate::config::Member;
use crate::group_limits;
use crate::session::context::Context;
use crate::session::security::ControlSecurity;
use crate::session::user::{Membership, User, home_directory};
use crate::telemetry::Event;

/// How long opening the files may take, including the wait for other logins of the same client.
const ATTACH: Duration = Duration::from_secs(45);

/// Opens the files that the client may use.
///
/// # Errors
///
/// The refusal.
pub(super) async fn attach(
    context: &Context,
    security: &ControlSecurity,
    admitted: Admitted,
) -> Result<User, Refusal> {
    let Admitted {
        is_anonymous,
        account,
        home,
        attributes,
    } = admitted;
    let initiator = security.initiator();
    let (name, read_only) = (account.name.clone(), account.read_only);
    let local = account.account.clone();
    let source = account.source.clone();
    let groups = context.shared.group_limits.of(
        context.config(),
        &Member {
            identity: initiator.map(|initiator| &*initiator.identity),
            attributes: &attributes,
            user: &name,
            peer: context.peer,
        },
    );
    let places = group_limits::admit(&groups)
        .ok_or("Too many sessions of your group are open; try again later.")?;
    let uploads = context.config().upload_name(&account.root);
    let node = Arc::clone(&context.shared.node);
    let threads = &context.shared.threads;
    let attached = threads.attach(&source, move || node.attach(&account));
    let node = tokio::time::timeout(ATTACH, attached)
        .await
        .map_err(|_| format!("Your files did not answer within {} s.", ATTACH.as_secs()))?
        .ok_or("The server failed.")?
        .map_err(|error| refused(&error))?;
    let home = home.unwrap_or_else(|| home_directory(&node.home()));
    let delegated = initiator.and_then(|initiator| initiator.delegated.as_ref().ok()?.as_ref());
    let delegated = delegated.map(|credential| {
        let inventory = &context.shared.inventory;
        inventory.delegated(credential.expires())
    });
    let user = User {
        name,
        is_anonymous,
        initiator: initiator.cloned(),
        account: local,
        membership: Membership::of(&attributes),
        source,
        node,
        directory: home.clone(),
        home,
        groups,
        _places: places,
        uploads,
        _delegated: delegated,
    };
    context.publish(&Event::LoggedIn {
        session: context.id,
        user: &user.name,
        client: user.client(context.peer),
        protection: security.description(),
        attributes: &attributes,
        read_only,
    });
    Ok(user)
}

/// What is wrong with an account is for the administrator.
fn refused(error: &AttachError) -> Refusal {
    match error {
        AttachError::Account(reason) => Refusal {
            reason: reason.clone(),
            reply: "Your account cannot be used here now; the log of the server has the reason."
                .to_owned(),
        },
        AttachError::Root(_) => error.to_string().into(),
    }
}
