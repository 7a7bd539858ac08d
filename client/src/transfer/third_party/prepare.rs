//! What two servers are told before files go between them.

use gridhaul_protocol::command::{DataChannelAuthentication, Text, TransferMode};

use super::super::TransferFailure;
use super::ThirdPartyCopy;
use crate::session::{Addresses, DataProtection, Kept, OtherEnd, Session};

/// Tells both servers the settings, and where data goes. Returns the data channels of the source and of the destination.
pub(super) async fn prepare(
    source: &mut Session,
    destination: &mut Session,
    copy: &ThirdPartyCopy,
) -> Result<[Kept; 2], TransferFailure> {
    let (from, to) = (TransferFailure::Source, TransferFailure::Destination);
    // Neither server could prove to the other that it acts for the user.
    let have_tls = source.login().has_tls() || destination.login().has_tls();
    if have_tls && copy.settings.protection != DataProtection::None {
        return Err(TransferFailure::BetweenTls);
    }
    let [of_source, of_destination] = users(source, destination);
    let settings = &copy.settings;
    let settled = source.settle_with(settings, of_destination).await;
    settled.map_err(from)?;
    let settled = destination.settle_with(settings, of_source).await;
    settled.map_err(to)?;
    if copy.settings.mode == TransferMode::Extended {
        destination.settle_markers().await.map_err(to)?;
        destination.settle_progress().await.map_err(to)?;
    }
    let channels = [(&*destination, true), (&*source, false)].map(|(with, sends)| Kept {
        with: OtherEnd::Session(with.id()),
        sends,
        settings: copy.settings.clone(),
        stack: None,
    });
    let are_open = [
        source.takes_kept(&channels[0]),
        destination.takes_kept(&channels[1]),
    ];
    if are_open != [true, true] {
        open_port(source, destination, copy).await?;
    }
    Ok(channels)
}

async fn open_port(
    source: &mut Session,
    destination: &mut Session,
    copy: &ThirdPartyCopy,
) -> Result<(), TransferFailure> {
    let of_source = source.addresses(&copy.settings);
    let of_destination = destination.addresses(&copy.settings);
    let addresses = match of_source.map_err(TransferFailure::Source)? {
        // It would be told several.
        Addresses::One => Addresses::One,
        _ => of_destination.map_err(TransferFailure::Destination)?,
    };
    let addresses = destination.passive_for_others(addresses).await;
    let addresses = addresses.map_err(TransferFailure::Destination)?;
    let told = source.active(addresses).await;
    told.map_err(TransferFailure::Source)
}

/// The users of the source and of the destination, as the other server is told.
fn users(source: &Session, destination: &Session) -> [DataChannelAuthentication; 2] {
    let name = |session: &Session| {
        if let Some(own) = session.data_credential() {
            return Some(own.credential().identity().one_line().to_owned());
        }
        let identity = session.login().identity()?;
        Some(identity.credential.identity().one_line().to_owned())
    };
    let same = DataChannelAuthentication::User;
    let (Some(one), Some(other)) = (name(source), name(destination)) else {
        return [same.clone(), same];
    };
    if one == other {
        return [same.clone(), same];
    }
    // GFD.20: `DCAU S` names whom the other end acts for.
    [one, other].map(|name| match Text::new(name) {
        Some(name) => DataChannelAuthentication::Subject(name),
        None => same.clone(),
    })
}
