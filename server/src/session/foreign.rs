//! `SITE` commands of other servers, which this one refuses or ignores.

use gridhaul_protocol::command::StackRequest;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;

use super::replies;

#[derive(Debug)]
pub(super) enum ForeignCommand {
    /// `SITE AUTHZ_ASSERT`.
    Assertion,
    /// `SITE SETDISKSTACK`.
    DiskStack(StackRequest),
    /// `SITE DSI`.
    StorageInterface,
    /// `SITE UPAS` and `SITE UPRT`.
    Udt,
    /// `SITE RESTRICT`, `SITE CHROOT`, `SITE SHARING`, `SITE HTTP` and `SITE FAULT`. An OK would pretend a restriction
    /// that does not exist.
    NotSupported,
}

impl ForeignCommand {
    pub(super) fn reply(&self) -> Reply {
        match self {
            // It can only add rights, and every user has all rights of its account.
            Self::Assertion => replies::ok(),
            Self::DiskStack(request) => disk_stack(request),
            Self::StorageInterface => Reply::new(500, "no such DSI"),
            Self::Udt => replies::stack_error("udt driver not whitelisted"),
            Self::NotSupported => Reply::new(500, "Command not supported."),
        }
    }
}

/// Files have one driver.
fn disk_stack(request: &StackRequest) -> Reply {
    let drivers = match request {
        StackRequest::Default => return replies::ok(),
        StackRequest::Drivers(text) => StackSpec::parse(text.as_str()),
    };
    let reason = match drivers {
        Ok(stack) => match stack.drivers.iter().find(|driver| driver.name != "file") {
            Some(driver) => format!("{} driver not whitelisted", driver.name),
            None => return replies::ok(),
        },
        Err(error) => error.to_string(),
    };
    Reply::coded(
        500,
        "Setting filesystem driver stack failed.",
        [reason],
        "End.",
    )
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::command::Text;

    use super::*;

    #[test]
    fn files_have_one_driver() {
        let request = |text: &str| StackRequest::Drivers(Text::new(text).expect("a text"));
        assert_eq!(disk_stack(&StackRequest::Default).code(), 250);
        assert_eq!(disk_stack(&request("file")).code(), 250);
        let refused = disk_stack(&request("popen:argv=#cat"));
        assert_eq!(refused.code(), 500);
        let text = String::from_utf8(refused.encode()).expect("ASCII");
        assert!(text.contains("popen driver not whitelisted"), "{text}");
    }
}
