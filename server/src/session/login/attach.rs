//! Opens the files of a user.

use std::sync::Arc;
use std::time::Duration;

use super::admission::Admitted;
use crate::config::Member;
use crate::group_limits;
use crate::session::context::Context;
use crate::session::initiator::Initiator;
use crate::session::user::{User, home_directory};
use crate::telemetry::Event;

/// How long opening the files may take, including the wait for other logins of the same client.
const ATTACH: Duration = Duration::from_secs(45);

/// Opens the files that the client may use.
///
/// # Errors
///
/// The reason, for the client.
pub(super) async fn attach(
    context: &Context,
    initiator: Option<&Arc<Initiator>>,
    admitted: Admitted,
) -> Result<User, String> {
    let Admitted {
        is_anonymous,
        account,
        home,
        attributes,
    } = admitted;
    let (name, read_only) = (account.name.clone(), account.read_only);
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
        .map_err(|error| error.to_string())?;
    let home = home.unwrap_or_else(|| home_directory(&node.home()));
    context.publish(&Event::LoggedIn {
        session: context.id,
        user: &name,
        identity: initiator.map(|initiator| &*initiator.identity),
        attributes: &attributes,
        read_only,
    });
    Ok(User {
        name,
        is_anonymous,
        initiator: initiator.cloned(),
        source,
        node,
        directory: home.clone(),
        home,
        groups,
        _places: places,
        uploads,
    })
}
