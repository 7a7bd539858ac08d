//! `gridhaul sum`.

use super::Ending;
use super::arguments::SumArguments;
use super::files;
use super::output::print;
use crate::transfer::checksum_of_server;

pub(super) async fn run(arguments: &SumArguments) -> Ending {
    files::ended(sum(arguments).await)
}

async fn sum(arguments: &SumArguments) -> Result<(), String> {
    let (url, mut session) = files::open(&arguments.url, &arguments.login).await?;
    let path = url.argument().map_err(|error| error.to_string())?;
    let value = checksum_of_server(&mut session, arguments.algorithm, &path, None).await;
    session.close().await;
    let value = value.map_err(|error| format!("{url}: {error}"))?;
    print(format!("{value}  {}", arguments.url)).map_err(|error| error.to_string())
}
